package generations

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// expected is what PyTorch says in float64 (tests/generate/perplexity.py).
type expected struct {
	Window, Stride int
	Models         []struct {
		Model              string
		Inputs, References [][]int32
		NLL                []float64
		Greedy             []int32
	}
}

func opened(t *testing.T) (*ort.Library, *loaded.Set) {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	return l, set
}

// TestPerplexity: the model as exported and the engine have the perplexity that PyTorch has in float64, and do not
// diverge; a side that leaves keys out does.
func TestPerplexity(t *testing.T) {
	data := must.Value(os.ReadFile("../../../../tests/generate/testdata/perplexity.json"))(t)
	var want expected
	must.Succeed(t, json.Unmarshal(data, &want))
	l, set := opened(t)
	told := false // a first difference
	for _, m := range want.Models {
		t.Run(m.Model, func(t *testing.T) {
			dir := t.TempDir()
			must.Succeed(t, models.Small(m.Model, dir))
			lossy := "self=keys:skip=0.5"
			o := Options{A: "none", B: "auto", Others: []string{lossy}, Search: []byte(`{"max_new_tokens": 2}`), Batch: 1,
				PromptLength: 3, Rounds: 1, CacheBytes: 64 << 20,
				Texts: &Texts{Inputs: m.Inputs}}
			over := OverInputs
			if len(m.References) > 0 {
				over, o.Texts.References = OverReferences, m.References
			} else {
				o.Texts.Window, o.Texts.Stride = want.Window, want.Stride
			}
			r := must.Value(CompareAll(t.Context(), l, set, dir, o))(t)
			nll := 0.0
			for _, x := range m.NLL {
				nll += x / float64(len(m.NLL))
			}
			for _, s := range []*Side{&r.A, &r.Sides[0].Side} {
				if x := s.Likelihood; math.Abs(x.NLL-nll) > 2e-6*nll || math.Abs(x.Perplexity/math.Exp(nll)-1) > 1e-5 {
					t.Errorf("%s: nll %.9f and perplexity %.9f, want %.9f and %.9f", s.Name, x.NLL, x.Perplexity, nll, math.Exp(nll))
				}
			}
			told = told || r.Sides[1].Divergence.First != nil
			f, exact, wrong := r.Forced, r.Sides[0].Divergence, r.Sides[1].Divergence
			if f.Over != over || f.Tokens != len(m.NLL) || f.Left != 0 || f.Window != o.Texts.Window ||
				f.Stride != o.Texts.Stride {
				t.Errorf("%+v, want %d tokens over %s", f, len(m.NLL), over)
			}
			if exact.KLMax > 1e-6 || exact.KLMean > 1e-8 || exact.EqualGreedy != exact.Tokens || exact.First != nil {
				t.Errorf("the engine: %+v", exact)
			}
			if !slices.ContainsFunc(r.Sides[1].Attention,
				func(l plan.LayerStrategy) bool { return l.Strategy == plan.Keys }) {
				return // llama's heads share keys, of which no values are computed
			}
			if wrong.KLMean < 1e-5 || wrong.KLMean < 1e3*exact.KLMean || wrong.KLP99 < wrong.KLMean ||
				wrong.KLMax < wrong.KLP99 || (wrong.EqualGreedy == wrong.Tokens) != (wrong.First == nil) ||
				wrong.First != nil && wrong.First.A.Probability < wrong.First.A.Other || wrong.RatioCI95[0] >= wrong.RatioCI95[1] {
				t.Errorf("with keys left out: %+v, first %+v", wrong, wrong.First)
			}
		})
	}
	if !told {
		t.Error("keys were left out, and no greedy token was another")
	}
}

// TestTextsBounded: as many tokens are predicted as are asked for, and the rest is told.
func TestTextsBounded(t *testing.T) {
	l, set := opened(t)
	dir := t.TempDir()
	must.Succeed(t, models.Small("gpt2", dir))
	text := make([]int32, 30)
	for i := range text {
		text[i] = int32(7 * i % 90)
	}
	for _, c := range []struct {
		texts        Texts
		count, left  int
		size, stride int
		err          string
	}{
		{Texts{Inputs: [][]int32{text, text}}, 58, 0, 0, 0, ""},
		{Texts{Inputs: [][]int32{text, text}, Tokens: 40, Window: 10, Stride: 9}, 40, 18, 10, 9, ""},
		{Texts{Inputs: [][]int32{text, text}, Tokens: 29}, 29, 29, 0, 0, ""},
		{Texts{Inputs: [][]int32{text[:1], nil}}, 0, 0, 0, 0, ""}, // nothing to predict
		{Texts{Inputs: [][]int32{text[:3], text[:8]}, References: [][]int32{text[3:8], nil}}, 5, 0, 0, 0, ""},
		{Texts{Inputs: [][]int32{text}, Window: 4, Stride: 4}, 0, 0, 0, 0, "windows of 4 tokens that begin 4 apart"},
		{Texts{Inputs: [][]int32{text}, Window: 1 << 20}, 0, 0, 0, 0, "positions"},
		{Texts{Inputs: [][]int32{text}, References: [][]int32{}}, 0, 0, 0, 0, "1 inputs and 0 references"},
		{Texts{Inputs: [][]int32{{5, 1 << 20}, text}}, 0, 0, 0, 0, "token 1 is 1048576"},
	} {
		o := Options{A: "none", B: "keys_values", Search: []byte(`{"max_new_tokens": 2}`), Batch: 1, PromptLength: 3,
			Rounds: 1, CacheBytes: 64 << 20, Texts: &c.texts}
		r, err := Compare(t.Context(), l, set, dir, o)
		if c.err != "" {
			must.Fail(t, err, c.err)
			continue
		}
		must.Succeed(t, err)
		if c.count == 0 {
			if r.Forced != nil || r.A.Likelihood != nil || r.Divergence != nil {
				t.Errorf("of nothing: %+v", r.Forced)
			}
			continue
		}
		if f, want := r.Forced, (c.count+28)/29; f.Texts != want {
			t.Errorf("%d texts, want %d: %+v", f.Texts, want, f)
		}
		if f := r.Forced; f.Tokens != c.count || f.Left != c.left || r.Divergence.Tokens != c.count ||
			c.size > 0 && (f.Window != c.size || f.Stride != c.stride) {
			t.Errorf("%+v, want %d tokens and %d left", f, c.count, c.left)
		}
	}
}

// TestForcedApart: in a child process the texts say what they say in this one, outputs of A are what is predicted
// where there are no references.
func TestForcedApart(t *testing.T) {
	l, set := opened(t)
	folder := must.Value(filepath.Abs("../../../../build/plugins"))(t)
	model := "../../../../models/g2p"
	inputs := [][]int32{{11, 8, 15, 15, 18}, {26, 18, 21, 15}, {7, 21}}
	for _, references := range []bool{false, true} {
		t.Run(fmt.Sprint(references), func(t *testing.T) {
			texts := &Texts{Inputs: inputs}
			over := OverOutputs
			if references {
				over = OverReferences
				texts.References = [][]int32{{5, 6, 7, 2}, {8, 9, 2}, {10, 2}}
			}
			o := Options{A: "none", B: "auto", Search: []byte(`{"max_new_tokens": 9}`), Batch: 1, PromptLength: 4, Rounds: 1,
				CacheBytes: 64 << 20, Texts: texts}
			here := must.Value(Compare(t.Context(), l, set, model, o))(t)
			var told []int64
			o.Progress = func(done, _ int64) { told = append(told, done) }
			j := Job[Options]{Folder: model, Options: o, Folders: []string{folder}}
			there := must.Value(Apart(t.Context(), j))(t).Result()
			if here.Forced == nil || here.Forced.Over != over || here.Forced.Texts != 3 || here.Forced.Window != 0 ||
				!reflect.DeepEqual(here.Forced, there.Forced) ||
				!reflect.DeepEqual(here.Divergence, there.Divergence) ||
				!reflect.DeepEqual(here.A.Likelihood, there.A.Likelihood) {
				t.Errorf("here %+v, %+v; there %+v, %+v", here.Forced, here.Divergence, there.Forced, there.Divergence)
			}
			if d := there.Divergence; d.KLMax > 1e-8 || d.EqualGreedy != d.Tokens {
				t.Errorf("%+v", d)
			}
			must.Equal(t, told[len(told)-1], int64(there.Forced.Tokens), told)
			if !references {
				// Greedy search took the most likely token at each step.
				if p := there.A.Likelihood.Perplexity; p > 8 {
					t.Errorf("perplexity of what a generated %g", p)
				}
			}
		})
	}
}
