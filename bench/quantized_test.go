package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/measure/comparison/divergence"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// A figure's own name chooses it alone, although others contain it; anything else all that contain it.
func TestChosen(t *testing.T) {
	all := []figure{{name: "generate-gpt2"}, {name: "generate-gpt2-int8"}, {name: "generate-t5"}}
	for only, want := range map[string][]string{
		"":              {"generate-gpt2", "generate-gpt2-int8", "generate-t5"},
		"generate-gpt2": {"generate-gpt2"},
		"generate":      {"generate-gpt2", "generate-gpt2-int8", "generate-t5"},
		"int8":          {"generate-gpt2-int8"},
		"nothing":       nil,
	} {
		var got []string
		for _, f := range chosen(all, only) {
			got = append(got, f.name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("-only %q: %v, want %v", only, got, want)
		}
	}
}

// Names are those of files, and each says once what is asked for; weights are such as the engine reads.
func TestQuantizedCases(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range slices.Concat(figures(), quantizedFigures(), peerFigures("")) {
		if seen[f.name] || f.name != filepath.Base(f.name) || f.what == "" || f.need == "" {
			t.Errorf("%q: %q, %q", f.name, f.what, f.need)
		}
		seen[f.name] = true
	}
	for _, c := range quantizedPeers() {
		w, err := prepare.ParseWeights(c.weights())
		if err != nil || !w.Quantizes() || len(c.ways) == 0 || c.fewer.check == "" {
			t.Errorf("%s: weights %q, error %v, ways %v, check %q", c.name, c.weights(), err, c.ways, c.fewer.check)
		}
		if module := filepath.Join("peers", c.peer+".py"); !exists(module) {
			t.Errorf("%s: there is no %s", c.name, module)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Speed after the prompt is judged where the peer says when it had the first token, and it must say so.
func TestQuantizedOutcome(t *testing.T) {
	list := func(x ...float64) []float64 { return x }
	for _, c := range []struct {
		name    string
		a, b    peerSide
		whole   bool
		met     bool
		after   float64
		problem string
	}{
		{"both twice", peerSide{Seconds: list(4, 4), FirstSeconds: list(2, 2)},
			peerSide{Seconds: list(2, 2), FirstSeconds: list(1, 1)}, false, true, 2, ""},
		{"steps alone are slow", peerSide{Seconds: list(9, 9), FirstSeconds: list(8, 8)},
			peerSide{Seconds: list(2, 2), FirstSeconds: list(1, 1)}, false, false, 1, ""},
		{"the prompt alone is slow", peerSide{Seconds: list(4, 4), FirstSeconds: list(1, 1)},
			peerSide{Seconds: list(4, 4), FirstSeconds: list(3, 3)}, false, false, 3, ""},
		{"no first token is known", peerSide{Seconds: list(4, 4)}, peerSide{Seconds: list(2, 2), FirstSeconds: list(1, 1)},
			true, true, 0, ""},
		{"one is missing", peerSide{Name: "peer", Seconds: list(4, 4), FirstSeconds: list(2)},
			peerSide{Seconds: list(2, 2), FirstSeconds: list(1, 1)}, false, false, 0,
			"peer says of 1 of 2 runs when they had the first token, graft of 2 of 2"},
	} {
		r := &peerResult{Batch: 1, NewTokens: 11, Beams: 1, A: c.a, B: c.b, quantizedResult: &quantizedResult{}}
		r.Speedup.Median = c.a.Seconds[0] / c.b.Seconds[0]
		o, err := r.quantizedOutcome(peerCase{least: 2, fewer: &quantizedCase{whole: c.whole}})
		if c.problem != "" {
			if err == nil || err.Error() != c.problem {
				t.Errorf("%s: %v, want %s", c.name, err, c.problem)
			}
			continue
		}
		if err != nil || o.Met != c.met || (r.After == nil) != (c.after == 0) {
			t.Errorf("%s: %+v, error %v", c.name, o, err)
			continue
		}
		if r.After != nil && (r.After.Median != c.after || r.StepB != 1e3*(c.b.Seconds[0]-c.b.FirstSeconds[0])/10) {
			t.Errorf("%s: %+v, a step of %g ms", c.name, r.After, r.StepB)
		}
	}
}

// What is said beside stands in the result's own object.
func TestQuantizedResultIsFlat(t *testing.T) {
	for _, c := range []struct {
		beside *quantizedResult
		has    bool
	}{{nil, false}, {&quantizedResult{Checked: "float32", Float32Equal: 3}, true}} {
		data := must.Value(json.Marshal(&peerResult{quantizedResult: c.beside}))(t)
		var object map[string]any
		must.Succeed(t, json.Unmarshal(data, &object))
		if _, has := object["float32_tokens_equal"]; has != c.has || object["schema_version"] == nil {
			t.Errorf("%s", data)
		}
	}
}

// A step is compared with the longer of what its bytes and what its operations take.
func TestStepFloor(t *testing.T) {
	c := &stepCell{Rows: 4, Requests: 1, Beams: 4, Bandwidth: []float64{9, 10, 11}}
	folder, b := tinyDecoder(t)
	g, err := decode.Open(t.Context(), folder, decode.Options{Library: b.library, Plugins: b.set,
		CacheBytes: 64 << 20, Batch: 4})
	must.Succeed(t, err)
	defer g.Close()
	c.Sides = []stepTime{{Steps: []float64{5, 6, 7}}}
	attention := 2. * 2 * gpt2Layers * gpt2Width * stepPast * 4
	bytes := float64(g.Engine().StepBytes() + stepPast*g.Engine().PromptBytes())
	operations := 0.
	for _, w := range g.Weights().Linear {
		operations += 2 * float64(w.Float32Bytes/4) * 4
	}
	if bytes <= stepPast || operations <= 0 {
		t.Fatalf("a step of %g bytes and %g operations", bytes, operations)
	}
	for _, p := range []struct {
		name  string
		peak  peak
		floor float64
	}{
		{"memory", peak{Float32: 1e18, Int8: 1e18}, 1e3 * bytes / 10e9},
		{"arithmetic", peak{Float32: 1e6, Int8: 1e18}, 1e3 * (operations + attention) / 1e6},
		{"a peak that nobody knows", peak{}, 1e3 * bytes / 10e9},
	} {
		c.judge([]*stepSide{{generator: g}}, p.peak)
		if got := c.Sides[0].Ratio * p.floor; math.Abs(got/6-1) > 1e-12 {
			t.Errorf("%s: a ratio of %g to %g ms, whose product is %g and not the median", p.name, c.Sides[0].Ratio, p.floor,
				got)
		}
	}
}

// tinyDecoder is the smallest decoder of the tree, and what opens it.
func tinyDecoder(t *testing.T) (string, *bench) {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, false))(t)
	dir := t.TempDir()
	must.Succeed(t, models.Small("gpt2", dir))
	return dir, &bench{library: l, set: set}
}

// Every token but each text's first is predicted once, as far as there may be so many.
func TestPerplexityParts(t *testing.T) {
	texts := [][]int32{make([]int32, 1), make([]int32, 10), make([]int32, 7)}
	for tokens, want := range map[int]int{0: 0, 1: 1, 9: 9, 10: 10, 15: 15, 100: 15} {
		parts := must.Value(perplexityParts(texts, 4, 2, tokens))(t)
		predicted := map[[2]int]bool{}
		for _, p := range parts {
			for n := p.From; n < p.End; n++ {
				if predicted[[2]int{p.text, n}] || n >= len(texts[p.text]) || n-p.Begin < 1 || p.End-p.Begin > 4 {
					t.Errorf("at most %d tokens: %+v", tokens, p)
				}
				predicted[[2]int{p.text, n}] = true
			}
		}
		if len(predicted) != want {
			t.Errorf("at most %d tokens: %d, want %d", tokens, len(predicted), want)
		}
	}
}

// The bounds of the perplexity's figure: int8 near float32, and no side significantly worse than its peer.
func TestPerplexityOutcome(t *testing.T) {
	side := func(name string, ratio float64) *perplexitySide {
		return &perplexitySide{Name: name, Likelihood: &divergence.Likelihood{Perplexity: 20 * ratio},
			Divergence: &divergence.Divergence{Tokens: 1, PerplexityRatio: ratio}}
	}
	for _, c := range []struct {
		name string
		int8 float64
		low  float64 // of the interval of int4 over Q4_0
		met  bool
	}{{"near and no worse", 1.004, 0.99, true}, {"int8 is far", 1.006, 0.99, false},
		{"int4 is worse", 1.001, 1.001, false}} {
		r := &perplexityReport{Sides: []*perplexitySide{side("float32", 1), side("int8", c.int8), side("int4", 1.05),
			side("Q8_0", 1), side("Q4_0", 1.05)},
			Pairs: []perplexityPair{{Ours: "int8", Peer: "Q8_0", Ratio: 1, CI95: [2]float64{0.99, 1.01}},
				{Ours: "int4", Peer: "Q4_0", Ratio: 1, CI95: [2]float64{c.low, 1.02}}}}
		if o := r.outcome(); o.Met != c.met || !strings.Contains(o.Got, "int4 over Q4_0") {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
}

// Without make trained-models there is one error that says so.
func TestTrainedMissing(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	_, err := trainedFolder(smollm2)
	if d := (*diagnostic.Error)(nil); !errors.As(err, &d) || d.Fix != "run make trained-models" ||
		!strings.HasSuffix(d.Path, filepath.Join("trained", smollm2)) {
		t.Errorf("%v", err)
	}
}

// The loops end, and do as many operations as they say: more of them take no fewer.
func TestPeak(t *testing.T) {
	floats, integers := arithmetics()
	for _, a := range slices.Concat(floats, integers) {
		a.run(1)
		a.run(1000)
		if a.by == "" || a.operations <= 0 {
			t.Errorf("%+v", a)
		}
	}
	p := measurePeak()
	for what, x := range map[string]struct {
		list []arithmetic
		rate float64
		by   string
	}{"float32": {floats, p.Float32, p.Float32By}, "int8": {integers, p.Int8, p.Int8By}} {
		if (len(x.list) > 0) != (x.rate > 0) || (x.by == "") != (x.rate == 0) || math.IsInf(x.rate, 0) {
			t.Errorf("%s: %g operations a second by %q, of %d loops", what, x.rate, x.by, len(x.list))
		}
	}
}

// lastFirst is a device whose requests end in the reverse of their order.
type lastFirst struct{ generate.Device }

func (lastFirst) Run(_ context.Context, _ search.Options, next func() (*decode.Input, error),
	done func(decode.Output) error) error {
	var list []decode.Output
	for {
		in, err := next()
		if err != nil || in == nil {
			for _, out := range slices.Backward(list) {
				err = errors.Join(err, done(out))
			}
			return err
		}
		list = append(list, decode.Output{Index: in.Index, Hypotheses: []search.Hypothesis{{Tokens: in.Tokens}}})
	}
}

// Outputs of several inputs at once are in the order of the inputs, whichever ends first.
func TestTimedOrder(t *testing.T) {
	inputs := []*decode.Input{{Tokens: []int32{5}}, {Tokens: []int32{6}}, {Tokens: []int32{7}}}
	list, _, err := timed(t.Context(), &generate.Generator{Device: lastFirst{}}, search.Options{}, inputs)
	if err != nil || len(list) != len(inputs) {
		t.Fatalf("%d outputs, %v", len(list), err)
	}
	for i, out := range list {
		if !slices.Equal(out.Hypotheses[0].Tokens, inputs[i].Tokens) {
			t.Errorf("output %d is that of tokens %v", i, out.Hypotheses[0].Tokens)
		}
	}
}
