package search

import (
	"errors"
	"fmt"
)

// Stepper runs the steps of a batch. It uses the memory of a request again in the next step. One
// goroutine at a time.
type Stepper struct {
	req        Request
	processors []Processor
	rows       []int // a state: its rows before the step
	scratch    []float32
}

// Step takes one step of every state that is not done: logits is [rows, vocab], the rows of the
// states one after the other (State.Rows of each, and then one for each token that it Drafted). Those of drafted
// positions change places where beams do; otherwise logits are only read.
// Afterwards each state's Moves say which rows the next step has. Diverse beams take one call of the selector a
// group, since what a group chooses depends on the groups before it; others one call in all, and one more for each
// drafted position that any state has chosen: its processors and random numbers are those of a step of its own. After
// an error the states cannot go on.
func (st *Stepper) Step(selector Selector, logits []float32, vocab int, states []*State) error {
	rows, phases := 0, 0
	st.rows = st.rows[:0]
	for i, s := range states {
		s.accepted = 0
		if s.in.Vocab != vocab {
			return fmt.Errorf("input %d was made for %d logits a row and is given %d", i, s.in.Vocab, vocab)
		}
		st.rows = append(st.rows, s.Rows())
		rows += st.rows[i] + len(s.draft)
		if !s.done {
			phases = max(phases, s.phases())
		}
	}
	if len(logits) != rows*vocab {
		return fmt.Errorf("%d logits for a step of %d rows of %d: %d are needed", len(logits), rows, vocab, rows*vocab)
	}
	for phase := range phases {
		if err := st.phase(selector, logits, vocab, states, phase, 0); err != nil {
			return err
		}
	}
	// Only now, so that all calls of a step see the same rows.
	for _, s := range states {
		if !s.done {
			s.advance()
		}
	}
	for position := 1; st.accept(logits, vocab, states, position); position++ {
		if err := st.phase(selector, logits, vocab, states, 0, position); err != nil {
			return err
		}
		for _, s := range states {
			if s.accepted == position {
				s.advance()
			}
		}
	}
	for _, s := range states {
		s.unarrange()
		s.draft = s.draft[:0]
	}
	return nil
}

// accept counts the drafted positions, from 1 on, that states have just chosen, and reports whether there are any.
// They end no search: their tokens are no end tokens, and another still fits after them.
func (st *Stepper) accept(logits []float32, vocab int, states []*State, position int) (found bool) {
	first := 0
	for i, s := range states {
		rows := st.rows[i]
		if s.accepted == position-1 && s.chose(position, rows) {
			s.accepted, found = position, true
			at := (first + position*rows) * vocab
			st.scratch = s.arrange(logits[at:at+rows*vocab], vocab, st.scratch)
		}
		first += rows + len(s.draft)
	}
	return found
}

// phase is one call of the selector: for all states that are not done, or at a position from 1 on for those that have
// chosen as many drafted positions, with the logits of their rows there.
func (st *Stepper) phase(selector Selector, logits []float32, vocab int, states []*State, phase, position int) error {
	req := &st.req
	req.Logits, req.Vocab = logits, vocab
	req.Rows, req.Groups, st.processors = req.Rows[:0], req.Groups[:0], st.processors[:0]
	asked := func(s *State) bool { return !s.done && (position == 0 || s.accepted == position) }
	type span struct{ row, group int }
	spans := make([]span, 0, len(states)+1)
	for i, s := range states {
		first := len(req.Rows)
		spans = append(spans, span{first, len(req.Groups)})
		for range st.rows[i] + len(s.draft) {
			req.Rows = append(req.Rows, Row{})
		}
		if asked(s) {
			st.processors = s.request(phase, first+position*st.rows[i], req, st.processors)
		}
	}
	spans = append(spans, span{len(req.Rows), len(req.Groups)})
	lists, err := st.run(selector, states, func(row int) (input, at int) {
		for spans[input+1].row <= row {
			input++
		}
		return input, row - spans[input].row - position*st.rows[input]
	})
	if err != nil {
		return err
	}
	for i, s := range states {
		if !asked(s) {
			continue
		}
		if err := s.take(phase, spans[i].row+position*st.rows[i], lists[spans[i].group:spans[i+1].group]); err != nil {
			return fmt.Errorf("input %d of the batch: %w", i, err)
		}
	}
	return nil
}

// run calls the selector, unless there is no group, and says of which input and step an error is.
func (st *Stepper) run(selector Selector, states []*State, locate func(row int) (input, at int)) ([][]Candidate,
	error) {
	if len(st.req.Groups) == 0 {
		return nil, nil
	}
	lists, err := selector.Run(&st.req)
	var bad *RowError
	if errors.As(err, &bad) && bad.Row >= 0 && bad.Row < len(st.req.Rows) {
		input, at := locate(bad.Row)
		return nil, &StepError{Input: input, Step: states[input].step(), Row: at, Err: &RowError{at, bad.Found}}
	}
	if err != nil {
		return nil, err
	}
	if len(lists) != len(st.req.Groups) {
		return nil, fmt.Errorf("top-k selection gave %d lists of candidates for %d groups", len(lists), len(st.req.Groups))
	}
	return lists, nil
}

// StepError says for which input of the batch, at which step and in which of its rows the
// logits cannot be searched.
type StepError struct {
	Input int // index in the states of the call
	Step  int // tokens that its rows had generated, so 0 is the prompt
	Row   int // of the input
	Err   *RowError
}

func (e *StepError) Error() string {
	return fmt.Sprintf("input %d of the batch, step %d: %v", e.Input, e.Step, e.Err)
}

func (e *StepError) Unwrap() error { return e.Err }
