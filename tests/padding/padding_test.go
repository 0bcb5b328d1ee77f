package padding

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/opgraft/graft/host/meaning/padding"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// rounds is how many masks each model is given: GRAFT_PADDING_MASKS, or 12.
func rounds(t *testing.T) int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("GRAFT_PADDING_MASKS"), "12"))
	if err != nil || n < 1 {
		t.Fatalf("GRAFT_PADDING_MASKS is %q, needed is a number of masks", os.Getenv("GRAFT_PADDING_MASKS"))
	}
	return n
}

type bench struct {
	library *ort.Library
	set     *loaded.Set
}

func open(t *testing.T) *bench {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	return &bench{l, set}
}

// TestHiddenRows: every model whose attention a mask of tokens hides keys of gives the answers of ONNX Runtime
// by default, those of hidden tokens included.
func TestHiddenRows(t *testing.T) { each(t, plan.ExactPadding) }

// TestHiddenRowsAreZeros: every model whose padding can be removed, told to ignore it, gives what ONNX Runtime gives of
// visible tokens, and zeros of hidden ones where rows of tokens are outputs.
func TestHiddenRowsAreZeros(t *testing.T) { each(t, plan.IgnorePadding) }

func each(t *testing.T, mode plan.Padding) {
	b := open(t)
	removed := 0
	for _, f := range models.Fixtures() {
		if f.Exporter == "full" {
			continue
		}
		t.Run(f.String(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.onnx")
			must.Succeed(t, f.Write(path, 1))
			if b.compare(t, path, mode) {
				removed++
			}
		})
	}
	if removed < 15 {
		t.Errorf("padding was removed of %d models, needed are 15 at least", removed)
	}
}

// compare runs a model with and without padding; false where padding cannot be removed.
func (b *bench) compare(t *testing.T, path string, mode plan.Padding) bool {
	m := must.Value(model.Open(path))(t)
	defer m.Close()
	a := must.Value(patch.ViewApart(t.Context(), m, m.Proto()))(t)
	facts, why := padding.Find(a.Graph, a.Shapes, a.Report)
	if facts == nil {
		t.Logf("padding is kept: %s", why)
		return false
	}
	plain := must.Value(session.Open(b.library, path, session.Options{Unpatched: true}))(t)
	defer plain.Close()
	s, computed := b.patched(t, path, mode)
	defer s.Close()
	want := plan.VisibleRows
	switch {
	case facts.Blind && (facts.First || facts.Last), mode == plan.ExactPadding && !facts.Exact():
		want = plan.MaskedRows
		if facts.Mixed || len(facts.Blocks) == 0 { // attention that stays as it is gains nothing then
			want = plan.AllRows
		}
	}
	if computed != want {
		t.Fatalf("%s rows are computed, want %s", computed, want)
	}
	for round := range rounds(t) {
		r := rand.New(rand.NewPCG(uint64(round), 7))
		batch, positions := 1+r.IntN(5), 1+r.IntN(40)
		// A sequence that is hidden wholly has rows of its own where something else than rows is read of it.
		visible := mask(r, batch, positions, !facts.Added)
		where := fmt.Sprintf("round %d, %d x %d", round, batch, positions)
		fed := must.Value(inputs.Of(b.library, m,
			inputs.Options{Seed: uint64(round),
				Lengths: map[roles.Length]int64{roles.Batch: int64(batch), roles.New: int64(positions),
					roles.Encoder: int64(positions)}}))(t, where)
		must.Succeed(t, write(fed.Values[facts.From], visible, facts.Added))
		expected := must.Value(plain.Run(t.Context(), fed.Values))(t, where)
		got := must.Value(s.Run(t.Context(), fed.Values))(t, where)
		for i, o := range plain.Outputs() {
			rows := computed == plan.VisibleRows && slices.Contains(facts.Outputs, o.Name)
			must.Equal(t, differs(expected[i], got[i], visible, rows), "", where, o.Name)
		}
		fed.Close()
		for i := range expected {
			expected[i].Close()
			got[i].Close()
		}
	}
	return true
}

// session is a patched one.
func (b *bench) session(t *testing.T, path string, mode plan.Padding) *session.Session {
	s, _ := b.patched(t, path, mode)
	return s
}

// patched is a patched session, with which tokens it computes.
func (b *bench) patched(t *testing.T, path string, mode plan.Padding) (s *session.Session, computed plan.Rows) {
	p := &sessions.Patcher{Plugins: b.set.Plugins,
		Options: b.set.Plan(plan.Options{Padding: mode, QuantizationNoise: true})}
	s, a := b.planned(t, path, p)
	return s, a.Plan.Rows()
}

// planned is a session with what was planned for it.
func (b *bench) planned(t *testing.T, path string, p *sessions.Patcher) (s *session.Session, a *patch.Analysis) {
	s = must.Value(session.Open(b.library, path, session.Options{Patcher: func(r session.Request) (*session.Patch, error) {
		planned, err := p.Plan(t.Context(), r)
		if err != nil {
			return nil, err
		}
		a = planned.Analysis
		return planned.Patch()
	}}))(t)
	return s, a
}

// differs says where two outputs differ; of one that holds rows of tokens, hidden ones are zeros.
func differs(want, got *ort.Value, visible []bool, rows bool) string {
	if !slices.Equal(want.Shape(), got.Shape()) {
		return fmt.Sprintf(" has shape %v, want %v", got.Shape(), want.Shape())
	}
	x, err := ort.Data[float32](want)
	if err != nil {
		return err.Error()
	}
	y, err := ort.Data[float32](got)
	if err != nil {
		return err.Error()
	}
	width := len(x) / max(1, len(visible))
	for i := range x {
		if rows && !visible[i/width] {
			if y[i] != 0 {
				return fmt.Sprintf("[%d] is %g where the token is hidden", i, y[i])
			}
			continue
		}
		if d := math.Abs(float64(x[i]) - float64(y[i])); !(d <= 1e-5+1e-4*math.Abs(float64(x[i]))) &&
			!(x[i] != x[i] && y[i] != y[i]) {
			return fmt.Sprintf("[%d] is %g, want %g (token %d)", i, y[i], x[i], i/max(1, width))
		}
	}
	return ""
}
