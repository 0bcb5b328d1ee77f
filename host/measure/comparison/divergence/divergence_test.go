package divergence

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// naive is what the definitions say: probabilities, by exponentials of numbers that are small enough for them.
func naive(logits []float32) []float64 {
	p, sum := make([]float64, len(logits)), 0.0
	for i, x := range logits {
		p[i] = math.Exp(float64(x))
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

func logitsOf(r *rand.Rand, n int, spread float64) []float32 {
	list := make([]float32, n)
	for i := range list {
		list[i] = float32(spread * r.NormFloat64())
	}
	return list
}

// TestAgainstDefinitions compares random logits of three sides, a few tokens a call, with the definitions in float64.
func TestAgainstDefinitions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		vocab, tokens, spread := 2+r.IntN(300), 1+r.IntN(40), 8*r.Float64()
		s := New(3, vocab)
		var nll [3]float64
		var kls [3][]float64
		var equal [3]int
		var differences []float64 // of side 2
		first := -1
		for from := 1; from <= tokens; {
			n := min(1+r.IntN(7), tokens+1-from)
			logits := make([][]float32, 3)
			targets := make([]int32, n)
			for i := range n {
				targets[i] = int32(r.IntN(vocab))
				a := logitsOf(r, vocab, spread)
				b := slices.Clone(a)
				for j := range b {
					b[j] += float32(spread / 4 * r.NormFloat64())
				}
				rows := [3][]float32{a, a, b}
				p := naive(a)
				for side, row := range rows {
					logits[side] = append(logits[side], row...)
					q := naive(row)
					nll[side] -= math.Log(q[targets[i]])
					kl := 0.0
					for j := range p {
						kl += p[j] * math.Log(p[j]/q[j])
					}
					kls[side] = append(kls[side], kl)
					if slices.Index(row, slices.Max(row)) == slices.Index(a, slices.Max(a)) {
						equal[side]++
					} else if first < 0 {
						first = from + i
					}
				}
				differences = append(differences, math.Log(p[targets[i]]/naive(b)[targets[i]]))
			}
			must.Succeed(t, s.Add(7, from, targets, logits))
			from += n
		}
		for side := range 3 {
			if l := s.Likelihood(side); math.Abs(l.NLL-nll[side]/float64(tokens)) > 1e-9 ||
				math.Abs(l.Perplexity/math.Exp(nll[side]/float64(tokens))-1) > 1e-9 {
				t.Fatalf("side %d: %+v, want an nll of %g", side, l, nll[side]/float64(tokens))
			}
		}
		same := s.Divergence(1)
		if same.KLMax != 0 || same.EqualGreedy != tokens || same.First != nil || same.PerplexityRatio != 1 ||
			same.RatioCI95 != [2]float64{1, 1} {
			t.Fatalf("of equal logits %+v", same)
		}
		d := s.Divergence(2)
		mean, variance := 0.0, 0.0
		for _, x := range differences {
			mean += x / float64(tokens)
		}
		for _, x := range differences {
			variance += (x - mean) * (x - mean)
		}
		half := 0.0
		if tokens > 1 {
			half = 1.959963984540054 * math.Sqrt(variance/float64(tokens-1)/float64(tokens))
		}
		slices.Sort(kls[2])
		at := 0.99 * float64(tokens-1)
		low := kls[2][int(at)]
		p99 := low + (at-math.Floor(at))*(kls[2][min(int(at)+1, tokens-1)]-low)
		sum := 0.0
		for _, x := range kls[2] {
			sum += x
		}
		for _, x := range []struct {
			what      string
			got, want float64
		}{
			{"mean", d.KLMean, sum / float64(tokens)}, {"99th percentile", d.KLP99, p99},
			{"greatest", d.KLMax, kls[2][tokens-1]}, {"ratio", math.Log(d.PerplexityRatio), mean},
			{"interval", math.Log(d.RatioCI95[1] / d.RatioCI95[0]), 2 * half},
			{"equal", float64(d.EqualGreedy), float64(equal[2])},
		} {
			if math.Abs(x.got-x.want) > 1e-9*max(1, math.Abs(x.want)) {
				t.Fatalf("%s: %g, want %g", x.what, x.got, x.want)
			}
		}
		if (d.First == nil) != (first < 0) || first >= 0 && (d.First.Token != first || d.First.Text != 7) {
			t.Fatalf("first difference %+v, want token %d", d.First, first)
		}
		if d.Tokens != tokens || s.Tokens() != tokens {
			t.Fatalf("%d tokens, want %d", d.Tokens, tokens)
		}
	}
}

// TestKnown: what is known without computing.
func TestKnown(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		name        string
		a, b        []float32
		target      int32
		ppl, pplB   float64
		kl          float64
		differences bool
	}{
		{"uniform", []float32{3, 3, 3, 3}, []float32{-7, -7, -7, -7}, 2, 4, 4, 0, false},
		{"a token of half", []float32{0, 0, -inf}, []float32{0, 0, -inf}, 0, 2, 2, 0, false},
		{"twice the weight", []float32{0, 0}, []float32{float32(math.Log(3)), 0}, 1, 2, 4, math.Log(2) - math.Log(3)/2,
			false},
		{"the other token", []float32{0, 100}, []float32{100, 0}, 1, 1, math.Exp(100), 100, true},
		{"great logits", []float32{30000, 30001}, []float32{-30001, -30000}, 1, 1 + math.Exp(-1), 1 + math.Exp(-1), 0, false},
		{"b excludes what a may say", []float32{0, 0}, []float32{0, -inf}, 0, 2, 1, math.MaxFloat64, false},
		{"b excludes the token", []float32{0, 1}, []float32{0, -inf}, 1, 1 + math.Exp(-1), math.MaxFloat64, math.MaxFloat64,
			true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(2, len(c.a))
			must.Succeed(t, s.Add(0, 1, []int32{c.target}, [][]float32{c.a, c.b}))
			near := func(got, want float64) bool { return math.Abs(got-want) <= 1e-6*max(want, 1) }
			d := s.Divergence(1)
			if a, b := s.Likelihood(0).Perplexity, s.Likelihood(1).Perplexity; !near(a, c.ppl) || !near(b, c.pplB) ||
				!near(d.KLMean, c.kl) || !near(d.KLP99, c.kl) || (d.First != nil) != c.differences {
				t.Errorf("perplexities %g and %g, want %g and %g; %+v, want a divergence of %g", a, b, c.ppl, c.pplB, d, c.kl)
			}
			text, err := json.Marshal(d)
			var again Divergence
			if err != nil || json.Unmarshal(text, &again) != nil || !reflect.DeepEqual(&again, d) {
				t.Errorf("%s, %v", text, err)
			}
		})
	}
}

// TestDifference: the first is told with what both sides think of both tokens.
func TestDifference(t *testing.T) {
	s := New(2, 2)
	half, third := float32(0), float32(math.Log(2))
	for text := range 3 {
		must.Succeed(t, s.Add(text, 5, []int32{0, 0}, [][]float32{{1, 0, half, third}, {1, 0, third, half}}))
	}
	d := s.Divergence(1)
	x := d.First
	if x == nil || x.Text != 0 || x.Token != 6 || x.A.Token != 1 || x.B.Token != 0 ||
		math.Abs(x.A.Probability-2./3) > 1e-6 || math.Abs(x.A.Other-1./3) > 1e-6 || x.B.Probability != x.A.Probability {
		t.Errorf("%+v", x)
	}
	if d.EqualGreedy != 3 || d.EqualShare() != 0.5 {
		t.Errorf("%+v", d)
	}
}

// TestNoDistribution: logits that are none are an error that says where, and nothing is added.
func TestNoDistribution(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		row  []float32
		want string
	}{
		{[]float32{nan, 0}, "the logits that predict token 4 are no distribution: the logit of token 0 is NaN"},
		{[]float32{0, nan}, "the logits that predict token 4 are no distribution: the logit of token 1 is NaN"},
		{[]float32{0, inf}, "the logits that predict token 4 are no distribution: the logit of token 1 is +Inf"},
		{[]float32{-inf, -inf}, "the logits that predict token 4 are no distribution: all logits are -Inf"},
	} {
		s := New(2, 2)
		err := s.Add(0, 3, []int32{0, 1}, [][]float32{{0, 0, 0, 0}, append([]float32{0, 0}, c.row...)})
		wrong := (*ErrLogits)(nil)
		if !errors.As(err, &wrong) || wrong.Side != 1 || wrong.Token != 4 || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
		if err := s.Add(0, 3, []int32{0, 2}, [][]float32{{0, 0, 0, 0}, {0, 0, 0, 0}}); err == nil ||
			err.Error() != "token 4 is 2, the vocabulary has 2" {
			t.Errorf("a token that the vocabulary lacks: %v", err)
		}
		if s.Tokens() != 0 || s.Likelihood(0) != nil || s.Divergence(1) != nil {
			t.Errorf("%d tokens were added", s.Tokens())
		}
	}
}

// TestWindows: each token that counts is predicted once, with as much before it as is promised.
func TestWindows(t *testing.T) {
	for _, c := range []struct {
		n, first, size, stride int
		want                   []Window
	}{
		{0, 1, 4, 2, nil},
		{1, 1, 4, 2, nil},
		{2, 0, 4, 2, []Window{{0, 2, 1}}},
		{4, 1, 4, 2, []Window{{0, 4, 1}}},
		{5, 1, 4, 2, []Window{{0, 4, 1}, {2, 5, 4}}},
		{9, 1, 4, 2, []Window{{0, 4, 1}, {2, 6, 4}, {4, 8, 6}, {6, 9, 8}}},
		{9, 7, 4, 2, []Window{{4, 8, 7}, {6, 9, 8}}},
		{9, 9, 4, 2, nil},
	} {
		if got, err := Windows(c.n, c.first, c.size, c.stride); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
	r := rand.New(rand.NewPCG(3, 3))
	for range 2000 {
		n, first, size := r.IntN(200), r.IntN(60), 2+r.IntN(50)
		stride := 1 + r.IntN(size-1)
		list := must.Value(Windows(n, first, size, stride))(t)
		next := max(first, 1)
		for _, w := range list {
			if w.From != next || w.End <= w.From || w.End > n || w.End-w.Begin > size ||
				w.From-w.Begin < min(w.From, size-stride) {
				t.Fatalf("%d tokens from %d in windows of %d, %d apart: %v", n, first, size, stride, list)
			}
			next = w.End
		}
		if next < n {
			t.Fatalf("%d tokens from %d in windows of %d, %d apart end at %d", n, first, size, stride, next)
		}
	}
	for _, c := range [][2]int{{1, 1}, {0, 0}, {4, 0}, {4, 4}, {4, 9}, {4, -1}} {
		if _, err := Windows(9, 1, c[0], c[1]); err == nil {
			t.Errorf("windows of %d, %d apart", c[0], c[1])
		}
	}
}
