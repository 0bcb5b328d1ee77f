package patch_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
)

// whole leads a graph of about n nodes through the whole analysis, and says what that took.
func whole(t *testing.T, drawn func(*drawing, int), n int) (steps, parts int64, err error) {
	t.Helper()
	m := parsed(t, encoded(t, drawn, n))
	a, err := patch.Analyse(unhurried(t), m, manifests(t, "flash-decode", "fused-gelu", "packed-linear"),
		plan.Options{Force: true})
	if err != nil {
		return 0, 0, err
	}
	if err := a.Apply(unhurried(t)); err != nil {
		return 0, 0, err
	}
	steps, parts = a.Graph.Steps()
	return steps, parts, nil
}

// unhurried is a context in which steps end an analysis, and not time.
func unhurried(t testing.TB) context.Context {
	ctx, done := context.WithTimeout(context.Background(), time.Hour)
	t.Cleanup(done)
	return ctx
}

// TestSteps: what an analysis takes grows as the graph does, whatever the graph is.
func TestSteps(t *testing.T) {
	for _, a := range adversaries {
		t.Run(a.name, func(t *testing.T) {
			one, parts, err := whole(t, a.draw, 600)
			must.Succeed(t, err)
			two, _, err := whole(t, a.draw, 1200)
			must.Succeed(t, err)
			if float64(two) > 2.2*float64(one) {
				t.Errorf("%d steps, of a graph twice as large %d: %.2fx", one, two, float64(two)/float64(one))
			}
			if one > 100*parts {
				t.Errorf("%d steps for %d nodes, inputs and outputs", one, parts)
			}
		})
	}
}

// TestLeftAlone: an analysis ends with its context, and says so.
func TestLeftAlone(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	m := parsed(t, encoded(t, adversaries[0].draw, 10))
	a := must.Value(patch.View(unhurried(t), m, m.Proto()))(t)
	_, analysed := patch.Analyse(ctx, m, nil, plan.Options{})
	for name, err := range map[string]error{"Analyse": analysed, "Choose": a.Choose(ctx, nil, plan.Options{}),
		"Apply": a.Apply(ctx)} {
		if !errors.Is(err, graph.ErrBounds) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestIncomplete: a node without an input that its operator always has is an error that names it.
func TestIncomplete(t *testing.T) {
	for _, c := range []struct {
		op string
		in []string
	}{{"Where", nil}, {"Add", []string{"", ""}}, {"MatMul", []string{"v1"}}} {
		d := draw()
		x := d.floats("batch", 4, "seq", "seq")
		d.output(d.of("Softmax", d.of("Add", d.of(c.op, c.in...), x)))
		_, err := patch.Analyse(t.Context(), parsed(t, encode(t, d)), nil, plan.Options{})
		must.Fail(t, err, "("+c.op+") has no input")
	}
}

// TestBranchHandsOut: a branch that hands out what an operator makes now hands out that.
func TestBranchHandsOut(t *testing.T) {
	d := draw()
	c := d.input(onnx.Tensor_BOOL)
	q, k, v := d.heads()
	y := d.of("MatMul", d.of("Softmax", d.of("MatMul", q, k)), v)
	yes, no := d.inside(), d.inside()
	yes.output(y)
	no.output(no.of("Neg", y))
	d.output(d.add("If", []string{c}, "then_branch", yes.p, "else_branch", no.p))
	m := parsed(t, encode(t, d))
	a, err := patch.Analyse(unhurried(t), m, manifests(t, "flash-decode"), plan.Options{Force: true})
	if err != nil || a.Plan.Replaced() != 1 {
		t.Fatal(err)
	}
	must.Succeed(t, a.Apply(unhurried(t)))
	must.Value(graph.New(m.Proto(), m))(t, "the rewritten graph is not sound")
}
