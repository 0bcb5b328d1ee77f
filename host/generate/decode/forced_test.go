package decode_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// allLogits are those after each token from the first on that is not skipped, fed in pieces of random lengths.
func allLogits(t *testing.T, f decode.Forced, err error, r *rand.Rand, n, skip int) []float32 {
	t.Helper()
	must.Succeed(t, err)
	defer f.Close()
	must.Succeed(t, f.Skip(t.Context(), skip))
	var all []float32
	for at := skip; at < n; {
		piece := min(1+r.IntN(n), n-at)
		rows := must.Value(f.Next(t.Context(), piece))(t)
		all = append(all, rows...)
		at += piece
	}
	must.Fail(t, must.Error(f.Next(t.Context(), 1)), decode.ErrForcedEnd)
	return all
}

// reference is a model as exported, at a level of ONNX Runtime's optimiser.
func reference(t *testing.T, l *ort.Library, folder string, level session.OptimizationLevel) *exported.Generator {
	t.Helper()
	m := must.Value(exported.OpenAt(t.Context(), folder, decode.Options{Library: l, ReferenceSelector: true}, level))(t)
	t.Cleanup(func() { m.Close() })
	return m
}

// away is the most that numbers are from those needed, in tolerances of 1e-4 and 1e-4 of what is needed.
func away(got, want []float32) (most float64) {
	for i := range want {
		d := math.Abs(float64(got[i] - want[i]))
		if x := d / (1e-4 + 1e-4*math.Abs(float64(want[i]))); !(x <= most) {
			most = x
		}
	}
	return most
}

// TestForced: fed in pieces, the engine has the logits that the model as exported has of the whole text, and what is
// generated afterwards is what was generated before.
func TestForced(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	for _, c := range []struct {
		folder   string
		strategy plan.Strategy
	}{{"gpt2", ""}, {"llama", ""}, {"llama", plan.HiddenStates}, {"gpt2", plan.PromptHiddenStates}, {"bart", ""},
		{"bart-merged", ""}, {"t5", ""}} {
		t.Run(c.folder+string(c.strategy), func(t *testing.T) {
			dir := t.TempDir()
			must.Succeed(t, models.Small(c.folder, dir))
			g := open(t, dir, func(o *decode.Options) { o.Attention.Self = c.strategy })
			m, plain := reference(t, l, dir, session.OptimizeNone), reference(t, l, dir, session.OptimizeDefault)
			r := rand.New(rand.NewPCG(5, 5))
			tokens := func(n int) []int32 {
				list := make([]int32, n)
				for i := range list {
					list[i] = int32(r.IntN(g.Config().Inputs))
				}
				return list
			}
			before := run(t, g, g.Search(), []*decode.Input{{Tokens: []int32{5, 6, 7}}})
			for range 4 {
				n := 2 + r.IntN(40)
				in := &decode.Input{Tokens: tokens(n)}
				if g.Engine().HasEncoder() {
					in = &decode.Input{Tokens: tokens(1 + r.IntN(20)), Prompt: in.Tokens}
				}
				whole, err := m.Force(t.Context(), in)
				want := allLogits(t, whole, err, r, n, 0)
				whole, err = plain.Force(t.Context(), in)
				optimized := allLogits(t, whole, err, r, n, 0)
				skip := r.IntN(n)
				pieces, err := g.Force(t.Context(), in)
				got := allLogits(t, pieces, err, r, n, skip)
				// How ONNX Runtime rounds is another on each processor: the bound is twice what its optimisations change.
				bound := max(1, 2*away(optimized, want))
				want = want[skip*g.Config().Vocab:]
				if len(got) != len(want) {
					t.Fatalf("%d logits, want %d", len(got), len(want))
				}
				if off := away(got, want); !(off <= bound) {
					t.Fatalf("logits are %g tolerances away from those without optimisations, want at most %g", off, bound)
				}
			}
			after := run(t, g, g.Search(), []*decode.Input{{Tokens: []int32{5, 6, 7}}})
			must.Equal(t, before[0].Hypotheses[0].Tokens, after[0].Hypotheses[0].Tokens)
			if self, _, cross, _ := g.Engine().Memory(); self+cross != 0 {
				t.Errorf("%d and %d bytes of the cache are taken", self, cross)
			}
		})
	}
}

// TestForcedByPlaceholder: a model that predicts in the place of a placeholder has logits after the last token of a
// step alone: the engine reads single tokens where each is asked for, and the model as exported says so.
func TestForcedByPlaceholder(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	for _, folder := range []string{"prophetnet", "unilm"} {
		dir := t.TempDir()
		must.Succeed(t, models.Small(folder, dir))
		g := open(t, dir, nil)
		in := &decode.Input{Tokens: []int32{5, 9, 7, 12, 5, 9, 30, 8}}
		if g.Engine().HasEncoder() {
			in = &decode.Input{Tokens: []int32{11, 6}, Prompt: in.Tokens}
		}
		const prompt, n = 3, 8
		from := func(skip int) []float32 { // the prompt first, then the logits after token skip
			f := must.Value(g.Force(t.Context(), in))(t)
			defer f.Close()
			must.Succeed(t, f.Skip(t.Context(), prompt))
			must.Succeed(t, f.Skip(t.Context(), skip-prompt))
			rows := must.Value(f.Next(t.Context(), n-skip))(t)
			return slices.Clone(rows)
		}
		all := from(prompt)
		if len(all) != (n-prompt)*g.Config().Vocab {
			t.Fatalf("%s: %d logits", folder, len(all))
		}
		for skip := prompt + 1; skip < n; skip++ {
			want := all[(skip-prompt)*g.Config().Vocab:]
			for i, x := range from(skip) {
				if d := math.Abs(float64(x - want[i])); !(d <= 1e-4+1e-4*math.Abs(float64(want[i]))) {
					t.Fatalf("%s, from token %d: logit %d is %g, want %g", folder, skip, i, x, want[i])
				}
			}
		}
		if self, _, cross, _ := g.Engine().Memory(); self+cross != 0 {
			t.Errorf("%s: %d and %d bytes of the cache are taken", folder, self, cross)
		}
		m := must.Value(exported.Open(t.Context(), dir, decode.Options{Library: l, ReferenceSelector: true}))(t)
		defer m.Close()
		if _, err := m.Force(t.Context(), in); err == nil ||
			!strings.Contains(err.Error(), "after the last of its tokens alone") {
			t.Errorf("%s as exported: %v", folder, err)
		}
	}
}

// TestForcedRefused: a token or a length that the model has not is an error of both.
func TestForcedRefused(t *testing.T) {
	dir := t.TempDir()
	must.Succeed(t, models.Small("gpt2", dir))
	l := must.Value(ort.FindAndOpen(""))(t)
	g := open(t, dir, nil)
	m := must.Value(exported.Open(t.Context(), dir, decode.Options{Library: l, ReferenceSelector: true}))(t)
	defer m.Close()
	for _, c := range []struct {
		tokens []int32
		want   string
	}{
		{[]int32{1, int32(g.Config().Inputs)}, "token 1 is"},
		{[]int32{-1}, "token 0 is -1"},
		{make([]int32, g.Config().Positions+1), "positions"},
	} {
		for _, side := range []interface {
			Force(ctx context.Context, in *decode.Input) (decode.Forced, error)
		}{g, m} {
			must.Fail(t, must.Error(side.Force(t.Context(), &decode.Input{Tokens: c.tokens})), c.want)
		}
	}
}
