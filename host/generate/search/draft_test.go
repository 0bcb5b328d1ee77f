package search

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// guess drafts what a search without drafts chose, as far as each of its rows goes on and up to a random place, and
// other tokens from there on.
func guess(r *rand.Rand, chosen [][]Move) func(*lane, int) [][]int32 {
	return func(l *lane, most int) [][]int32 {
		draft := make([][]int32, len(l.rows))
		order := make([]int, len(l.rows)) // the row that each beam goes on with
		for i := range order {
			order[i] = i
		}
		right := r.IntN(8)
		for i := range min(most, r.IntN(10)) {
			at := len(l.moves) + i
			for row := range draft {
				draft[row] = append(draft[row], int32(r.IntN(l.model.vocab)))
			}
			if i >= right || at >= len(chosen) {
				continue
			}
			var next []int
			for _, m := range chosen[at] {
				if m.Parent < len(order) {
					draft[order[m.Parent]][i] = m.Token
					next = append(next, order[m.Parent])
				}
			}
			if len(next) != len(order) {
				right = 0
				continue
			}
			order = next
		}
		return draft
	}
}

// TestDraftsGiveHuggingFacesTokens: whatever is drafted, the tokens and scores of greedy search and of beams are
// those of Hugging Face's generate, with every option, in batches of both.
func TestDraftsGiveHuggingFacesTokens(t *testing.T) {
	var cases []golden
	readGolden(t, "generate.json.gz", &cases)
	r := rand.New(rand.NewPCG(3, 17))
	var accepted, refused, ended [2]int                   // of greedy search, of beams
	swapped := 0                                          // drafts in which beams changed places
	for start := 0; start < len(cases); start += 2 * 37 { // half of them
		batch := cases[start:min(start+37, len(cases))]
		lanes := make([]*lane, len(batch))
		for i := range batch {
			plain := batch[i].lane(t)
			generate(t, new(Reference), plain)
			lanes[i] = batch[i].lane(t)
			lanes[i].draft = guess(r, plain.moves)
		}
		generate(t, new(Reference), lanes...)
		for i, l := range lanes {
			if err := batch[i].check(l.state.Results()); err != nil {
				t.Errorf("case %d (%s): %v", start+i, batch[i].Name, err)
			}
			kind := min(1, l.state.o.NumBeams-1)
			accepted[kind], refused[kind] = accepted[kind]+l.accepted, refused[kind]+l.refused
			if l.accepted > 0 && l.state.Results()[0].Ended {
				ended[kind]++
			}
			swapped += l.swapped
		}
	}
	t.Logf("greedy search and beams: %v drafted positions were accepted, %v refused; %v cases with some ended by a "+
		"token; in %d drafts beams changed places", accepted, refused, ended, swapped)
	if swapped < 200 {
		t.Error("beams seldom change places")
	}
	for kind := range 2 {
		if accepted[kind] < 300 || refused[kind] < 500 || ended[kind] < 20 {
			t.Error("the cases are too tame to show anything")
		}
	}
}

// TestSamplingWithDrafts: random numbers are used in the order of tokens, so that what is sampled is the same with
// and without drafts, and its probabilities are those of the logits.
func TestSamplingWithDrafts(t *testing.T) {
	const vocab = 12
	r := rand.New(rand.NewPCG(5, 23))
	model := newHashModel(7, vocab, nil)
	prompt := []int32{3, 4}
	for _, c := range []struct {
		name    string
		samples uint64
		change  func(*Options)
	}{
		{"neutral", 100_000, func(*Options) {}},
		{"all", 20_000, func(o *Options) {
			o.Temperature, o.TopK, o.TopP, o.MinP, o.TypicalP = 1.4, 10, 0.95, 0.01, 0.9
			o.RepetitionPenalty, o.NoRepeatNgramSize, o.EOSTokenID, o.MinNewTokens = 1.3, 2, []int32{2}, 2
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Default()
			o.DoSample, o.MaxNewTokens, o.Seed, o.TopK = true, 3, 9, 0
			c.change(&o)
			// What is sampled first has no draft: the probabilities of the second token after each of them.
			counts := make([][]int, vocab)
			for i := range counts {
				counts[i] = make([]int, vocab)
			}
			var stepper, plainStepper Stepper
			accepted := uint64(0)
			step := func(st *Stepper, s *State, rows ...[]int32) {
				var logits []float32
				for _, row := range rows {
					logits = model.logits(logits, row)
				}
				must.Succeed(t, st.Step(new(Reference), logits, vocab, []*State{s}))
			}
			for i := range c.samples {
				s := must.Value(New(o, Input{Prompt: prompt, Vocab: vocab, Index: i}))(t)
				step(&stepper, s, prompt)
				first := s.Moves()[0].Token
				draft := int32(r.IntN(vocab))
				must.Succeed(t, s.Draft([]int32{draft}))
				row := []int32{prompt[0], prompt[1], first}
				rows := [][]int32{row}
				if len(s.Drafted()) > 0 { // not the end token
					rows = append(rows, append(slices.Clone(row), draft))
				}
				step(&stepper, s, rows...)
				accepted += uint64(s.Accepted())
				for !s.Done() {
					row = append(row, s.Moves()[0].Token)
					step(&stepper, s, row)
				}
				tokens := s.Results()[0].Tokens
				counts[first][tokens[1]]++
				if i%10 != 0 {
					continue
				}
				alone := must.Value(New(o, Input{Prompt: prompt, Vocab: vocab, Index: i}))(t)
				for row := slices.Clone(prompt); !alone.Done(); row = append(row, alone.Moves()[0].Token) {
					step(&plainStepper, alone, row)
					if alone.Done() {
						break
					}
				}
				if !equalResults(s.Results(), alone.Results()) {
					t.Fatalf("sample %d: %v, without a draft %v", i, s.Results(), alone.Results())
				}
			}
			if accepted < c.samples/50 {
				t.Errorf("only %d of %d drafts were accepted", accepted, c.samples)
			}
			if c.name != "neutral" {
				return
			}
			for first, found := range counts {
				want := make([]float64, vocab)
				sum := 0.0
				for i, x := range model.logits(nil, []int32{prompt[1], int32(first)}) {
					want[i] = math.Exp(float64(x))
					sum += want[i]
				}
				for i := range want {
					want[i] /= sum
				}
				if statistic, limit := chiSquare(found, want); statistic > limit {
					t.Errorf("after token %d: chi-square %.1f, at most %.1f is expected: %v", first, statistic, limit, found)
				}
			}
		})
	}
}

// TestDraftLimits: where nothing can be drafted, and what is refused or left out of a draft.
func TestDraftLimits(t *testing.T) {
	const vocab = 8
	model := newHashModel(3, vocab, nil)
	begin := func(change func(*Options)) *State {
		o := Default()
		o.MaxNewTokens, o.EOSTokenID = 6, []int32{2}
		o.MinNewTokens = 6
		change(&o)
		s := must.Value(New(o, Input{Prompt: []int32{1, 3}, Vocab: vocab}))(t)
		must.Equal(t, s.Drafts(), 0)
		must.Succeed(t, new(Stepper).Step(new(Reference), model.logits(nil, []int32{1, 3}), vocab, []*State{s}))
		return s
	}
	for _, c := range []struct {
		name   string
		change func(*Options)
		most   int
	}{
		{"greedy", func(*Options) {}, 4},
		{"one sample", func(o *Options) { o.DoSample = true }, 4},
		{"several samples", func(o *Options) { o.DoSample, o.NumReturnSequences = true, 2 }, 0},
		{"beams", func(o *Options) { o.NumBeams = 2 }, 4},
		{"diverse beams", func(o *Options) { o.NumBeams, o.NumBeamGroups, o.DiversityPenalty = 2, 2, 1 }, 0},
		{"one token", func(o *Options) { o.MaxNewTokens, o.MinNewTokens = 1, 0 }, 0},
		{"two tokens", func(o *Options) { o.MaxNewTokens = 2 }, 0},
		{"three tokens", func(o *Options) { o.MaxNewTokens = 3 }, 1},
	} {
		must.Equal(t, begin(c.change).Drafts(), c.most, c.name)
	}
	s := begin(func(*Options) {})
	if err := s.Draft([]int32{4, 4, 4, 4, 4}); err == nil ||
		err.Error() != "5 tokens are drafted for one of 1 rows, needed are equally many for each of 1, at most 4" {
		t.Error(err)
	}
	if err := s.Draft([]int32{4, 5, 2, 4}); err != nil || !slices.Equal(s.Drafted(), []int32{4, 5}) {
		t.Errorf("an end token in a draft: %v, %v", s.Drafted(), err)
	}
	logits := model.logits(nil, []int32{1, 3})
	if err := new(Stepper).Step(new(Reference), logits, vocab, []*State{s}); err == nil ||
		err.Error() != "8 logits for a step of 3 rows of 8: 24 are needed" {
		t.Error(err)
	}
}

// TestStepErrorInADraft: logits that cannot be searched are named by the step that they would be without drafts;
// those after a token that was not chosen are not looked at.
func TestStepErrorInADraft(t *testing.T) {
	const vocab = 3
	o := Default()
	for _, c := range []struct {
		draft int32
		step  int // of the error; 0: none
	}{{2, 2}, {1, 0}} {
		var states []*State
		for range 2 {
			s := must.Value(New(o, Input{Prompt: []int32{1}, Vocab: vocab}))(t)
			states = append(states, s)
		}
		var stepper Stepper
		must.Succeed(t, stepper.Step(new(Reference), []float32{0, 0, 1, 0, 0, 1}, vocab, states))
		must.Succeed(t, states[1].Draft([]int32{c.draft}))
		err := stepper.Step(new(Reference), []float32{0, 1, 2, 3, 4, 5, 6, float32(math.NaN()), 8}, vocab, states)
		var where *StepError
		if (err != nil) != (c.step > 0) ||
			err != nil && (!errors.As(err, &where) || where.Input != 1 || where.Step != c.step || where.Row != 0) {
			t.Errorf("draft %d: %v", c.draft, err)
		}
	}
}
