package search

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestForkGoesOnAsTheSearch: a fork that is given the logits of the search makes its moves, with every option, and
// the search goes on as if there had been no fork.
func TestForkGoesOnAsTheSearch(t *testing.T) {
	var cases []golden
	readGolden(t, "generate.json.gz", &cases)
	r := rand.New(rand.NewPCG(4, 17))
	var compared, ended, sampled [2]int // of greedy search and sampling, of beams
	for i := 0; i < len(cases); i += 3 {
		for _, sample := range []bool{false, true} {
			plain := cases[i].lane(t)
			if sample {
				o := plain.state.o
				if o.NumBeamGroups > 1 || o.NumBeams == 1 && o.NumReturnSequences > 1 {
					continue
				}
				o.DoSample, o.Seed, o.Temperature = true, r.Uint64(), 1.2
				plain = newLane(t, o, plain.state.in, plain.model)
			}
			whole := newLane(t, plain.state.o, plain.state.in, plain.model)
			generate(t, new(Reference), whole)

			var stepper Stepper
			step := func(l *lane) {
				var logits []float32
				for _, row := range l.rows {
					logits = l.model.logits(logits, row)
				}
				must.Succeed(t, stepper.Step(new(Reference), logits, goldenVocab, []*State{l.state}))
				rows := make([][]int32, len(l.state.Moves()))
				for j, m := range l.state.Moves() {
					rows[j] = append(slices.Clone(l.rows[m.Parent]), m.Token)
				}
				l.rows = rows
			}
			kind := min(1, plain.state.o.NumBeams-1)
			for at := 0; !plain.state.Done(); at++ {
				if at > 0 && r.IntN(3) == 0 {
					fork := &lane{state: plain.state.Fork(), model: plain.model, rows: slices.Clone(plain.rows)}
					for ahead := at; ahead < at+1+r.IntN(6) && !fork.state.Done(); ahead++ {
						before := len(fork.rows)
						step(fork)
						if fork.state.Done() {
							ended[kind]++
							if len(whole.moves) != ahead+1 {
								t.Fatalf("case %d (%s): a fork ends at %d, the search at %d", i, cases[i].Name, ahead, len(whole.moves))
							}
							break
						}
						if !slices.Equal(fork.state.Moves(), whole.moves[ahead]) {
							t.Fatalf("case %d (%s), position %d: a fork made %v, the search %v", i, cases[i].Name, ahead, fork.state.Moves(),
								whole.moves[ahead])
						}
						if c := fork.state.Confidence(); (c > 0) != fork.state.Stays(before) && len(plain.state.groups) == 1 || c < 0 ||
							c > 1+1e-5 && !sample {
							t.Fatalf("case %d (%s), position %d: confidence %g, rows stay: %v", i, cases[i].Name, ahead, c,
								fork.state.Stays(before))
						}
						compared[kind]++
						if sample {
							sampled[kind]++
						}
					}
				}
				step(plain)
			}
			if !equalResults(plain.state.Results(), whole.state.Results()) {
				t.Fatalf("case %d (%s): %v with forks, %v without", i, cases[i].Name, plain.state.Results(), whole.state.Results())
			}
		}
	}
	t.Logf("of greedy search and of beams: %v moves compared, %v of them sampled, %v forks ended", compared, sampled,
		ended)
	for kind := range 2 {
		if compared[kind] < 500 || ended[kind] < 20 || sampled[kind] < 200 {
			t.Error("the cases are too tame to show anything")
		}
	}
}

// TestSamplingWithDraftsOfAModel: what another model samples with the same random numbers is often what the search
// samples, and whatever it is, what is sampled has the probabilities of the search's own logits.
func TestSamplingWithDraftsOfAModel(t *testing.T) {
	const vocab, samples = 12, 100_000
	model, other := newHashModel(7, vocab, nil), newHashModel(8, vocab, nil)
	// The draft model's logits are the model's with noise, as those of a smaller model of one family are.
	mixed := func(to []float32, tokens []int32) []float32 {
		a, b := model.logits(nil, tokens), other.logits(nil, tokens)
		for i := range a {
			to = append(to, a[i]+0.25*b[i])
		}
		return to
	}
	o := Default()
	o.DoSample, o.MaxNewTokens, o.Seed, o.TopK = true, 3, 9, 0
	prompt := []int32{3, 4}
	counts := make([][]int, vocab)
	for i := range counts {
		counts[i] = make([]int, vocab)
	}
	var stepper, forked Stepper
	accepted := 0
	step := func(st *Stepper, s *State, logits []float32) {
		must.Succeed(t, st.Step(new(Reference), logits, vocab, []*State{s}))
	}
	for i := range uint64(samples) {
		s := must.Value(New(o, Input{Prompt: prompt, Vocab: vocab, Index: i}))(t)
		step(&stepper, s, model.logits(nil, prompt))
		first := s.Moves()[0].Token
		row := []int32{prompt[0], prompt[1], first}
		fork := s.Fork()
		step(&forked, fork, mixed(nil, row))
		draft := fork.Moves()[0].Token
		must.Succeed(t, s.Draft([]int32{draft}))
		step(&stepper, s, model.logits(model.logits(nil, row), append(slices.Clone(row), draft)))
		accepted += s.Accepted()
		second := draft
		if s.Accepted() == 0 {
			second = s.Moves()[0].Token
		}
		counts[first][second]++
	}
	share := float64(accepted) / samples
	t.Logf("%.3f of the drafts were accepted", share)
	// With random numbers of its own, a draft would be accepted only where two independent samples agree.
	if share < 0.5 {
		t.Error("few drafts were accepted")
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
}
