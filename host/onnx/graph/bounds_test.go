package graph

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

func chain(t *testing.T, n int) *Graph {
	t.Helper()
	p := &onnx.Graph{Input: []*onnx.ValueInfo{{Name: proto.String("0")}},
		Output: []*onnx.ValueInfo{{Name: proto.String(fmt.Sprint(n))}}}
	for i := range n {
		p.Node = append(p.Node, &onnx.Node{OpType: proto.String("Relu"), Input: []string{fmt.Sprint(i)},
			Output: []string{fmt.Sprint(i + 1)}})
	}
	g := must.Value(New(&onnx.Model{Graph: p}, stored{}))(t)
	return g
}

// TestBounded: a part of an analysis ends at so many steps, at so much memory, and with its context.
func TestBounded(t *testing.T) {
	g := chain(t, 10)
	_, parts := g.Steps()
	allowed := int(stepsOfAny + stepsOfPart*parts)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	failed := errors.New("a part's own")
	for _, c := range []struct {
		name string
		ctx  context.Context
		part func() error
		want error
		text string
	}{
		{"steps within", t.Context(), func() error { g.Spend(allowed - 1); return nil }, nil, ""},
		{"one step more", t.Context(), func() error { g.Spend(allowed); return nil }, ErrBounds,
			"for a graph of 31 nodes, inputs and outputs"},
		{"single steps", t.Context(), func() error {
			for range allowed {
				g.Spend(1)
			}
			return nil
		}, ErrBounds, "its analysis was stopped after"},
		{"memory within", t.Context(), func() error { g.Hold(maxHeld); return nil }, nil, ""},
		{"memory", t.Context(), func() error { g.Hold(maxHeld + 1); return nil }, ErrBounds,
			"take more than 512 MiB to follow"},
		{"an ended context", ended, func() error { return nil }, context.Canceled, "its analysis was ended"},
		{"its own error", t.Context(), func() error { return failed }, failed, ""},
		{"a part of a part", t.Context(), func() error {
			return g.Bounded(t.Context(), func() error { g.Spend(allowed); return nil })
		}, ErrBounds, ""},
	} {
		err := g.Bounded(c.ctx, c.part)
		if !errors.Is(err, c.want) || c.want != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: error %v", c.name, err)
		}
	}
	// Processor time is counted while a part takes steps, over all parts of a context, and does not pass in a wait.
	spin := func() error {
		for range allowed - 1 {
			g.Spend(1)
		}
		return nil
	}
	if err := g.Bounded(WithProcessorTime(t.Context(), time.Nanosecond), spin); !errors.Is(err, ErrBounds) ||
		!errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "--analysis-time") {
		t.Errorf("too little processor time: error %v", err)
	}
	waits := WithProcessorTime(t.Context(), 10*time.Second)
	const wait = 20 * time.Millisecond
	must.Succeed(t, g.Bounded(waits, func() error { time.Sleep(wait); return spin() }), "a part that waits")
	left := waits.Value(processorTimeKey{}).(*processorTime)
	if used := 10*time.Second - left.left; used <= 0 || left.parts != 0 {
		t.Errorf("%v of processor time were counted, %d parts are open", used, left.parts)
	}
	left.left = 0
	must.Fail(t, g.Bounded(waits, spin), context.DeadlineExceeded)
	g.Spend(2 * allowed) // outside of Bounded
	g.Hold(2 * maxHeld)
}

// TestLongChains: no way through a graph needs a stack as deep as the graph is long.
func TestLongChains(t *testing.T) {
	const n = 50_000
	g := chain(t, n)
	if err := g.Sort(); err != nil || len(g.Nodes) != n {
		t.Fatal(err, len(g.Nodes))
	}
	// The last is the first: all others wait for it.
	g.Nodes[0], g.Nodes[n-1] = g.Nodes[n-1], g.Nodes[0]
	if err := g.Sort(); err != nil || g.Nodes[0].In[0] != g.Inputs[0] {
		t.Fatal("not in order", err)
	}
	g.Nodes[0].SetInput(0, g.Nodes[n-1].Out[0])
	must.Fail(t, g.Sort(), "depends on itself")
	g.KeepOutputs()
	if g.Prune(); len(g.Nodes) != n { // they read each other
		t.Errorf("%d of %d nodes are left", len(g.Nodes), n)
	}
}

// TestManyReaders: a value that many nodes read is replaced, and its readers go, as fast as others.
func TestManyReaders(t *testing.T) {
	const n = 50_000
	p := &onnx.Graph{Input: []*onnx.ValueInfo{{Name: proto.String("x")}, {Name: proto.String("y")}}}
	for i := range n {
		p.Node = append(p.Node, &onnx.Node{OpType: proto.String("Relu"), Input: []string{"x"},
			Output: []string{fmt.Sprint(i)}})
	}
	g := must.Value(New(&onnx.Model{Graph: p}, stored{}))(t)
	x, y := g.Inputs[0], g.Inputs[1]
	g.Replace(x, y)
	if len(x.Uses) != 0 || len(y.Uses) != n {
		t.Fatalf("%d and %d uses", len(x.Uses), len(y.Uses))
	}
	var uses []Use
	var to []*Value
	for i := 0; i < n; i += 2 {
		uses, to = append(uses, y.Uses[i]), append(to, x)
	}
	g.SetInputs(uses, to)
	if len(x.Uses) != n/2 || len(y.Uses) != n/2 || x.Uses[1] != uses[1] {
		t.Fatalf("%d and %d uses", len(x.Uses), len(y.Uses))
	}
	if g.Prune(); len(g.Nodes)+len(x.Uses)+len(y.Uses) != 0 {
		t.Errorf("%d nodes are left, %d and %d uses", len(g.Nodes), len(x.Uses), len(y.Uses))
	}
}

// TestEquatedBackwards: lengths that are found to be one from the youngest on are a row as long
// as the graph, and each comes to the oldest.
func TestEquatedBackwards(t *testing.T) {
	s := &Shapes{main: chain(t, 1), order: map[string]int{}}
	s.enter()
	const n = 50_000
	for i := range n {
		s.order[fmt.Sprint("s", i)] = i
	}
	for i := n - 1; i > 0; i-- {
		s.equate(DimSym(fmt.Sprint("s", i)), DimSym(fmt.Sprint("s", i-1)))
	}
	if d := s.now(DimSym(fmt.Sprint("s", n-1))); !d.Equal(DimSym("s0")) {
		t.Errorf("the last is %s", d)
	}
}

// TestBoundedPanic: a part that panics is an error that says where, and the program goes on.
func TestBoundedPanic(t *testing.T) {
	g := chain(t, 1)
	err := g.Bounded(t.Context(), func() error { return fmt.Errorf("%s", g.Nodes[0].Out[3].Name) })
	const want = "shows a fault in its analysis (runtime error: index out of range [3] with length 1 at bounds_test.go:"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
}
