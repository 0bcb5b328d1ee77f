package search

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// chiSquare compares counts with probabilities; cells that expect fewer than 5 are joined. It gives the
// statistic and the value that it exceeds once in about 10,000 times by chance (Wilson and Hilferty).
func chiSquare(counts []int, probabilities []float64) (statistic, limit float64) {
	total := 0
	for _, c := range counts {
		total += c
	}
	cells, rest, restWant := 0, 0.0, 0.0
	for i, c := range counts {
		want := probabilities[i] * float64(total)
		if want < 5 {
			rest, restWant = rest+float64(c), restWant+want
			continue
		}
		cells++
		statistic += (float64(c) - want) * (float64(c) - want) / want
	}
	if restWant >= 5 {
		cells++
		statistic += (rest - restWant) * (rest - restWant) / restWant
	}
	k := float64(cells - 1)
	return statistic, k * math.Pow(1-2/(9*k)+3.72*math.Sqrt(2/(9*k)), 3)
}

// TestSampling: what a search samples has the probabilities of its logits after processors and warpers.
func TestSampling(t *testing.T) {
	const vocab, sequences, samples = 30, 50, 400
	for name, change := range map[string]func(*Options){
		"neutral":     func(o *Options) { o.TopK = 0 },
		"temperature": func(o *Options) { o.TopK, o.Temperature = 0, 0.5 },
		"top k":       func(o *Options) { o.TopK = 6 },
		"top p":       func(o *Options) { o.TopK, o.TopP = 0, 0.7 },
		"min p":       func(o *Options) { o.TopK, o.MinP = 0, 0.1 },
		"typical p":   func(o *Options) { o.TopK, o.TypicalP = 0, 0.6 },
		"processors":  func(o *Options) { o.SuppressTokens, o.RepetitionPenalty = []int32{3, 4, 5}, 1.5 },
		"all":         func(o *Options) { o.Temperature, o.TopK, o.TopP, o.MinP = 1.5, 12, 0.9, 0.05 },
	} {
		t.Run(name, func(t *testing.T) {
			o := Default()
			o.DoSample, o.NumReturnSequences, o.MaxNewTokens, o.Seed = true, sequences, 1, 11
			change(&o)
			model := newHashModel(99, vocab, nil)
			prompt := []int32{7, 9, 7}
			// The probabilities, directly.
			p := Reference{row: model.logits(nil, prompt)}
			for _, token := range o.SuppressTokens {
				p.row[token] = negInf
			}
			if o.RepetitionPenalty != 1 {
				for _, token := range []int32{7, 9} {
					apply(p.row, []Processor{{token, Penalise, o.RepetitionPenalty}})
				}
			}
			p.warp(&Group{Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopP, MinP: o.MinP, TypicalP: o.TypicalP})
			want := make([]float64, vocab)
			sum := 0.0
			for i, x := range p.row {
				want[i] = math.Exp(float64(x))
				sum += want[i]
			}
			for i := range want {
				want[i] /= sum
			}
			counts := make([]int, vocab)
			for i := range uint64(samples) {
				l := newLane(t, o, Input{Prompt: prompt, Vocab: vocab, Index: i}, model)
				generate(t, new(Reference), l)
				results := l.state.Results()
				if len(results) != sequences {
					t.Fatalf("%d sequences, want %d", len(results), sequences)
				}
				for _, h := range results {
					token := h.Tokens[0]
					counts[token]++
					if math.Abs(h.Score-math.Log(want[token])) > 1e-4 {
						t.Fatalf("token %d has the score %g, want %g", token, h.Score, math.Log(want[token]))
					}
				}
			}
			statistic, limit := chiSquare(counts, want)
			if statistic > limit {
				t.Errorf("chi-square %.1f, at most %.1f is expected: %v", statistic, limit, counts)
			}
		})
	}
}

// TestBeamSampling: samples without replacement over all rows, the first with the probabilities of
// all pairs, the second with those of what is left.
func TestBeamSampling(t *testing.T) {
	const vocab, rows = 6, 2
	r := rand.New(rand.NewPCG(8, 9))
	model := newHashModel(5, vocab, nil)
	req := &Request{Vocab: vocab, Rows: []Row{{Bias: -1}, {Bias: -0.5, Processors: []Processor{{2, Ban, 0}}}}}
	req.Logits = model.logits(model.logits(nil, []int32{1}), []int32{2})
	req.Groups = []Group{{Count: rows, K: 2, Mode: Sample, LogSoftmax: true, Temperature: 0.8, TopK: 5,
		Uniform: make([]float32, 2)}}
	weights := make([]float64, rows*vocab)
	sum := 0.0
	for i := range rows {
		p := new(Reference)
		must.Succeed(t, p.prepare(req, &req.Groups[0], i))
		for j, x := range p.row {
			weights[i*vocab+j] = math.Exp(float64(x))
			sum += weights[i*vocab+j]
		}
	}
	first := make([]float64, len(weights))
	second := make([]float64, len(weights))
	for i, w := range weights {
		first[i] = w / sum
		for j, v := range weights {
			if j != i {
				second[j] += w / sum * v / (sum - w)
			}
		}
	}
	counts := [2][]int{make([]int, len(weights)), make([]int, len(weights))}
	for range 20000 {
		for i := range req.Groups[0].Uniform {
			req.Groups[0].Uniform[i] = r.Float32()
		}
		lists := must.Value(new(Reference).Run(req))(t)
		for i, c := range lists[0] {
			counts[i][int(c.Row)*vocab+int(c.Token)]++
		}
		if a, b := lists[0][0], lists[0][1]; a.Row == b.Row && a.Token == b.Token {
			t.Fatalf("sampled twice: %+v", a)
		}
	}
	for i, want := range [][]float64{first, second} {
		if statistic, limit := chiSquare(counts[i], want); statistic > limit {
			t.Errorf("sample %d: chi-square %.1f, at most %.1f is expected", i, statistic, limit)
		}
	}
}

// TestPick: the ends of the interval, and what is impossible.
func TestPick(t *testing.T) {
	for _, c := range []struct {
		weights []float64
		u       float32
		want    int
	}{
		{[]float64{0, 1, 1, 0}, 0, 1},
		{[]float64{0, 1, 1, 0}, 0.4999, 1},
		{[]float64{0, 1, 1, 0}, 0.5, 2},
		{[]float64{0, 1, 1, 0}, 0.99999994, 2},
		{[]float64{0, 0}, 0.3, -1},
	} {
		must.Equal(t, pick(c.weights, c.u), c.want, c.weights, c.u)
	}
}

// TestSampleAlone: with a seed, an input gives the same alone and in a batch, its first sequences do
// not depend on how many are returned, and other seeds and inputs give others.
func TestSampleAlone(t *testing.T) {
	const vocab = 40
	o := Default()
	o.DoSample, o.MaxNewTokens, o.Seed, o.EOSTokenID = true, 15, 3, []int32{2, 4}
	for _, beams := range []int{1, 3} {
		o.NumBeams = beams
		with := func(index uint64, change func(*Options)) *lane {
			changed := o
			change(&changed)
			return newLane(t, changed, Input{Prompt: []int32{5, int32(index % 3)}, Vocab: vocab, Index: index},
				newHashModel(1, vocab, nil))
		}
		same := func(o *Options) {}
		var batch []*lane
		for i := range uint64(12) {
			batch = append(batch, with(i, same))
		}
		generate(t, new(Reference), batch...)
		different := 0
		for i := range uint64(12) {
			alone := with(i, same)
			generate(t, new(Reference), alone)
			if !equalResults(alone.state.Results(), batch[i].state.Results()) {
				t.Errorf("%d beams, input %d: %v alone, %v in a batch", beams, i, alone.state.Results(), batch[i].state.Results())
			}
			if beams == 1 {
				more := with(i, func(o *Options) { o.NumReturnSequences = 3 })
				generate(t, new(Reference), more)
				if !equalResults(alone.state.Results(), more.state.Results()[:1]) {
					t.Errorf("input %d: the first of three sequences is another one", i)
				}
			}
			other := with(i, func(o *Options) { o.Seed = 4 })
			generate(t, new(Reference), other)
			if !equalResults(alone.state.Results(), other.state.Results()) {
				different++
			}
		}
		if different < 10 {
			t.Errorf("%d beams: another seed changed %d of 12 samples", beams, different)
		}
	}
}

func equalResults(a, b []Hypothesis) bool {
	return slices.EqualFunc(a, b, func(x, y Hypothesis) bool {
		return slices.Equal(x.Tokens, y.Tokens) && cmp.Compare(x.Score, y.Score) == 0 && x.Ended == y.Ended
	})
}

// hashNumbers is a selector whose random numbers are the hashes of testdata/make.py.
type hashNumbers struct {
	Reference
	seed, step uint64
}

func (h *hashNumbers) Run(req *Request) ([][]Candidate, error) {
	for i := range req.Groups {
		for k := range req.Groups[i].Uniform {
			req.Groups[i].Uniform[k] = float32(mix(h.seed+h.step*64+uint64(k))>>40) / (1 << 24)
		}
	}
	h.step++
	return h.Reference.Run(req)
}

// TestSamplingHuggingFace: given the same random numbers, sampling and beam sampling give the tokens
// that Hugging Face gives.
func TestSamplingHuggingFace(t *testing.T) {
	var cases []golden
	readGolden(t, "sampling.json.gz", &cases)
	if len(cases) < 200 {
		t.Fatalf("%d cases, 200 are wanted", len(cases))
	}
	for i := range cases {
		g := &cases[i]
		l := g.lane(t)
		generate(t, &hashNumbers{seed: g.Seed}, l)
		if err := g.check(l.state.Results()); err != nil {
			t.Errorf("case %d (%s, seed %d): %v", i, g.Options, g.Seed, err)
		}
	}
}
