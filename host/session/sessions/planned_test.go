package sessions

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
)

// encoder has attention that hides padding, and operators beside it.
const encoder = "../../../models/encoders/embedder/onnx/model.onnx"

// TestLeftOutWherePaddingStays: what is left out of a plan stays so when the model's padding turns out not to be
// removable and it is planned anew, with other choices before it.
func TestLeftOutWherePaddingStays(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	planned := func(s *Patcher, these plan.LeftOut) *patch.Analysis {
		var a *patch.Analysis
		x := must.Value(session.Open(l, encoder, session.Options{Patcher: func(r session.Request) (*session.Patch, error) {
			p, err := s.PlanWithout(t.Context(), r, these)
			if err != nil {
				return nil, err
			}
			a = p.Analysis
			return p.Patch()
		}}))(t)
		x.Close()
		return a
	}
	options := set.Plan(plan.Options{Force: true, Padding: plan.IgnorePadding})
	if rows := planned(&Patcher{Plugins: set.Plugins, Options: options}, nil).Plan.Rows(); rows != plan.VisibleRows {
		t.Fatalf("%q rows are computed: the model's padding is not removed", rows)
	}
	failed := 0
	s := &Patcher{Plugins: set.Plugins, Options: options, applies: func(ctx context.Context, a *patch.Analysis) error {
		if a.Plan.Rows() != plan.AllRows {
			failed++
			return errors.Join(patch.ErrPadding, errors.New("as the test says"))
		}
		return a.Apply(ctx)
	}}
	all := planned(s, nil).Plan
	if failed != 1 || all.Rows() != plan.AllRows || len(all.Placed()) < 3 {
		t.Fatalf("planned anew %d times, with %d operators for %q rows", failed, len(all.Placed()), all.Rows())
	}
	for key := range all.Placed() {
		got := planned(s, plan.LeftOut{key: "it answers otherwise"}).Plan
		if got.Placed()[key] != nil {
			t.Errorf("%v was left out, and is placed", key)
		}
		must.Equal(t, len(got.Placed()), len(all.Placed())-1, key)
	}
}

// TestLoggedCounts: what is replaced is a part of what is counted beside it, of attention or of a pattern.
func TestLoggedCounts(t *testing.T) {
	if m := newSession(t, load(t, "cpu"), nil); m.err != nil || !strings.Contains(m.log, " blocks=1 replaced=1 ") {
		t.Errorf("error %v, logged %s", m.err, m.log)
	}
}
