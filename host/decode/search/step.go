package search

import (
	"errors"
	"fmt"
)

// Stepper runs the steps of a batch. It keeps the memory of a request from step to step. One
// goroutine at a time.
type Stepper struct {
	req   Request
	edits []Edit
}

// Step takes one step of every sample that is not done: scores is [rows, vocab], the rows of the
// samples one after the other (State.Rows of each), and only read. Afterwards each sample's Moves
// say which rows the next step has. Diverse beams take one call of the tail a group, since what a
// group chooses depends on the groups before it; others one call in all. After an error the samples
// cannot go on.
func (st *Stepper) Step(tail Tail, scores []float32, vocab int, samples []*State) error {
	rows, phases := 0, 0
	for i, s := range samples {
		if s.in.Vocab != vocab {
			return fmt.Errorf("sample %d was made for %d scores a row and is given %d", i, s.in.Vocab, vocab)
		}
		rows += s.Rows()
		if !s.done {
			phases = max(phases, s.phases())
		}
	}
	if len(scores) != rows*vocab {
		return fmt.Errorf("%d scores for a step of %d rows of %d: %d are needed", len(scores), rows, vocab, rows*vocab)
	}
	for phase := range phases {
		if err := st.phase(tail, scores, vocab, samples, phase); err != nil {
			return err
		}
	}
	// Only now, so that all calls of a step see the same rows.
	for _, s := range samples {
		if !s.done {
			s.advance()
		}
	}
	return nil
}

func (st *Stepper) phase(tail Tail, scores []float32, vocab int, samples []*State, phase int) error {
	req := &st.req
	req.Scores, req.Vocab = scores, vocab
	req.Rows, req.Groups, st.edits = req.Rows[:0], req.Groups[:0], st.edits[:0]
	type span struct{ row, group int }
	spans := make([]span, 0, len(samples)+1)
	for _, s := range samples {
		spans = append(spans, span{len(req.Rows), len(req.Groups)})
		if !s.done {
			st.edits = s.ask(phase, req, st.edits)
		}
	}
	spans = append(spans, span{len(req.Rows), len(req.Groups)})
	lists, err := st.run(tail, samples, func(row int) (sample, at int) {
		for spans[sample+1].row <= row {
			sample++
		}
		return sample, row - spans[sample].row
	})
	if err != nil {
		return err
	}
	for i, s := range samples {
		if s.done {
			continue
		}
		if err := s.take(phase, spans[i].row, lists[spans[i].group:spans[i+1].group]); err != nil {
			return fmt.Errorf("sample %d: %w", i, err)
		}
	}
	return nil
}

// run calls the tail, unless nothing is asked, and says of which sample and step an error is.
func (st *Stepper) run(tail Tail, samples []*State, locate func(row int) (sample, at int)) ([][]Candidate, error) {
	if len(st.req.Groups) == 0 {
		return nil, nil
	}
	lists, err := tail.Run(&st.req)
	var bad *RowError
	if errors.As(err, &bad) && bad.Row >= 0 && bad.Row < len(st.req.Rows) {
		sample, at := locate(bad.Row)
		return nil, &StepError{Sample: sample, Step: samples[sample].Step(), Row: at, Err: &RowError{at, bad.Found}}
	}
	if err != nil {
		return nil, err
	}
	if len(lists) != len(st.req.Groups) {
		return nil, fmt.Errorf("the step tail gave %d lists of candidates for %d groups", len(lists), len(st.req.Groups))
	}
	return lists, nil
}

// StepError says in which sample of the batch, at which step and in which of the sample's rows the
// scores cannot be searched.
type StepError struct {
	Sample int // index in the samples of the call
	Step   int // tokens that the sample's rows had generated, so 0 is the prompt
	Row    int // of the sample
	Err    *RowError
}

func (e *StepError) Error() string {
	return fmt.Sprintf("sample %d, step %d: %v", e.Sample, e.Step, e.Err)
}

func (e *StepError) Unwrap() error { return e.Err }
