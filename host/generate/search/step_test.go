package search

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// failing is a selector that gives what it was told to.
type failing struct {
	lists [][]Candidate
	err   error
}

func (f failing) Run(*Request) ([][]Candidate, error) { return f.lists, f.err }

// TestStepErrors: what a step refuses, and how it says where.
func TestStepErrors(t *testing.T) {
	o := Default()
	state := func() *State {
		s := must.Value(New(o, Input{Prompt: []int32{1}, Vocab: 3}))(t)
		return s
	}
	logits := []float32{1, 2, 3, 4, float32(math.NaN()), 6}
	for _, c := range []struct {
		name     string
		selector Selector
		logits   []float32
		vocab    int
		want     string
	}{
		{"NaN", new(Reference), logits, 3, "input 1 of the batch, step 0: logits of row 0: the logit of token 1 is NaN"},
		{"length", new(Reference), logits[:5], 3, "5 logits for a step of 2 rows of 3: 6 are needed"},
		{"vocabulary", new(Reference), logits, 2, "input 0 was made for 3 logits a row and is given 2"},
		{"lists", failing{lists: make([][]Candidate, 1)}, logits, 3,
			"top-k selection gave 1 lists of candidates for 2 groups"},
		{"empty list", failing{lists: make([][]Candidate, 2)}, logits, 3,
			"input 0 of the batch: top-k selection gave no candidate for rows 0 to 0: every token is banned or impossible"},
		{"wrong row", failing{lists: [][]Candidate{{{Row: 1}}, {{Row: 1}}}}, logits, 3,
			"input 0 of the batch: top-k selection gave row 1 and token 0: rows 0 to 0 and tokens below 3 were requested"},
		{"its own", failing{err: errors.New("no memory")}, logits, 3, "no memory"},
	} {
		err := new(Stepper).Step(c.selector, c.logits, c.vocab, []*State{state(), state()})
		must.FailExactly(t, err, c.want)
	}
	var where *StepError
	err := new(Stepper).Step(new(Reference), logits, 3, []*State{state(), state()})
	var row *RowError
	if !errors.As(err, &row) || row.Row != 0 {
		t.Errorf("found %#v", err)
	}
	if !errors.As(err, &where) || where.Input != 1 || !strings.Contains(where.Err.Found, "NaN") {
		t.Errorf("found %#v", err)
	}
}

// TestLateBias: transformers 4.55.4 looks for a sequence of n tokens once the context holds n, 5.24.0 once it holds
// n-1. The tokens are theirs, greedy, where the logits are 1, 2, 3, 4 in every step.
func TestLateBias(t *testing.T) {
	logits := []float32{1, 2, 3, 4}
	for _, c := range []struct {
		generation, config string
		want               []int32
	}{
		{`{"transformers_version": "4.57.6", "bad_words_ids": [[1, 3]]}`, `{}`, []int32{3, 3}},
		{`{"transformers_version": "5.17.0", "bad_words_ids": [[1, 3]]}`, `{}`, []int32{3, 3}},
		{`{"transformers_version": "5.18.0", "bad_words_ids": [[1, 3]]}`, `{}`, []int32{2, 3}},
		{`{"transformers_version": "5.24.0", "bad_words_ids": [[1, 3]]}`, `{}`, []int32{2, 3}},
		{`{"transformers_version": "5.24.0", "sequence_bias": [[[1, 3], -1.5]]}`, `{}`, []int32{2, 3}},
		{`{"transformers_version": "4.57.6", "sequence_bias": [[[1, 3], -1.5]]}`, `{}`, []int32{3, 3}},
		{`{"bad_words_ids": [[1, 3]]}`, `{"transformers_version": "4.57.6"}`, []int32{3, 3}},
		{`{"bad_words_ids": [[1, 3]]}`, `{}`, []int32{2, 3}},
		{`{"transformers_version": "5.24.0", "bad_words_ids": [[0, 1, 3]]}`, `{}`, []int32{3, 3}},
		{`{"transformers_version": "4.57.6", "bad_words_ids": [[1, 3, 3]]}`, `{}`, []int32{3, 3}},
		{`{"transformers_version": "5.24.0", "bad_words_ids": [[1, 3, 3]]}`, `{}`, []int32{3, 2}},
	} {
		o := must.Value(FromConfig([]byte(c.generation), []byte(c.config)))(t)
		o.MaxNewTokens = 2
		s := must.Value(New(o, Input{Prompt: []int32{1}, Vocab: 4}))(t)
		var stepper Stepper
		for s.Rows() > 0 {
			must.Succeed(t, stepper.Step(new(Reference), logits, 4, []*State{s}))
		}
		must.Equal(t, s.Results()[0].Tokens, c.want, c.generation, c.config)
	}
}

// TestRows: the requests of an input, step by step: one row for the prompt, a row a beam afterwards,
// none when it is done; diverse beams ask a group at a time, with the tokens chosen so far lowered.
func TestRows(t *testing.T) {
	o := Default()
	o.NumBeams, o.NumBeamGroups, o.DiversityPenalty, o.MaxNewTokens = 4, 2, 0.5, 2
	s := must.Value(New(o, Input{Prompt: []int32{1}, Vocab: 8}))(t)
	model := newHashModel(3, 8, nil)
	selector := &recording{}
	var stepper Stepper
	if s.Rows() != 1 || s.step() != 0 || s.Limit() != 3 {
		t.Fatalf("%d rows, step %d, limit %d", s.Rows(), s.step(), s.Limit())
	}
	must.Succeed(t, stepper.Step(selector, model.logits(nil, []int32{1}), 8, []*State{s}))
	if len(selector.requests) != 2 || len(selector.requests[0].Groups) != 1 || len(selector.requests[1].Rows) != 1 {
		t.Fatalf("requests %+v", selector.requests)
	}
	if g := selector.requests[1].Groups[0]; g.First != 0 || g.Count != 1 || g.K != 4 || g.Mode != LogProbs {
		t.Errorf("the second group's first step: %+v", g)
	}
	must.Empty(t, selector.requests[0].Rows[0].Processors)
	moves := slices.Clone(s.Moves())
	want := []Processor{{moves[0].Token, Add, -0.5}, {moves[1].Token, Add, -0.5}}
	if processors := selector.requests[1].Rows[0].Processors; !slices.Equal(processors, want) {
		t.Errorf("processors of the second group: %v, want %v", processors, want)
	}
	if s.Rows() != 4 || len(moves) != 4 || s.step() != 1 {
		t.Fatalf("%d rows, moves %v, step %d", s.Rows(), moves, s.step())
	}
	for i, m := range moves {
		if m.Parent != 0 || !slices.Equal(generated(s, i), []int32{m.Token}) {
			t.Errorf("row %d has %v after %+v", i, generated(s, i), m)
		}
	}
	var logits []float32
	for _, m := range moves {
		logits = model.logits(logits, []int32{1, m.Token})
	}
	must.Succeed(t, stepper.Step(selector, logits, 8, []*State{s}))
	if g := selector.requests[3].Groups[0]; g.First != 2 || g.Count != 2 {
		t.Errorf("the second group's second step: %+v", g)
	}
	if !s.Done() || s.Rows() != 0 || len(s.Moves()) != 0 || len(s.Results()) != 1 || s.Results()[0].Ended ||
		generated(s, 0) != nil {
		t.Errorf("after the limit: done %t, %d rows, moves %v, results %v", s.Done(), s.Rows(), s.Moves(), s.Results())
	}
}

// recording is the reference, and records what was requested.
type recording struct {
	Reference
	requests []Request
}

func (r *recording) Run(req *Request) ([][]Candidate, error) {
	c := *req
	c.Rows, c.Groups = slices.Clone(req.Rows), slices.Clone(req.Groups)
	for i := range c.Rows {
		c.Rows[i].Processors = slices.Clone(c.Rows[i].Processors)
	}
	r.requests = append(r.requests, c)
	return r.Reference.Run(req)
}

// canned gives the same candidates in every step, so that what is measured is the search alone.
type canned struct{ tokens int32 }

func (c *canned) Run(req *Request) ([][]Candidate, error) {
	lists := make([][]Candidate, len(req.Groups))
	for i, g := range req.Groups {
		for k := range g.K {
			c.tokens = (c.tokens*1103515245 + 12345) & 0x7fff
			lists[i] = append(lists[i], Candidate{int32(g.First + k%g.Count), c.tokens % int32(req.Vocab), -float32(k)})
		}
	}
	return lists, nil
}

// BenchmarkSearch is the search without the selector: 64 steps of 4 beams after a prompt of 704 tokens,
// with what each option adds.
func BenchmarkSearch(b *testing.B) {
	const vocab = 50257
	prompt := make([]int32, 704)
	for i := range prompt {
		prompt[i] = int32(i*7919) % 3000
	}
	logits := make([]float32, 4*vocab)
	for name, change := range map[string]func(*Options){
		"greedy":     func(o *Options) {},
		"ngrams":     func(o *Options) { o.NoRepeatNgramSize = 3 },
		"repetition": func(o *Options) { o.RepetitionPenalty = 1.2 },
	} {
		b.Run(name, func(b *testing.B) {
			o := Default()
			o.NumBeams, o.MaxNewTokens = 4, 64
			change(&o)
			selector := &canned{}
			b.ReportAllocs()
			for b.Loop() {
				s := must.Value(New(o, Input{Prompt: prompt, Vocab: vocab}))(b)
				var stepper Stepper
				for !s.Done() {
					must.Succeed(b, stepper.Step(selector, logits[:s.Rows()*vocab], vocab, []*State{s}))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/64, "µs/step")
		})
	}
}

// generated is what row i of a search has so far.
func generated(s *State, i int) []int32 {
	for g := range s.groups {
		if rows := s.groups[g].rows; i < len(rows) {
			return rows[i].tokens
		} else if s.started {
			i -= len(rows)
		}
	}
	return nil
}
