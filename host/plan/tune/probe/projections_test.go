package probe

import (
	"math"
	"testing"

	"github.com/opgraft/graft/host/base/threads"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/internal/must"
)

// Rows and weights are known, and so what comes out.
func TestProjections(t *testing.T) {
	crew := threads.NewPool(2)
	defer crew.Close()
	l := plan.Layers{Type: "self", Layers: 5, Heads: 4, KVHeads: 2, HeadSize: 12, ValueSize: 8, Width: 48}
	x := must.Value(NewProjections(open(t, "packed-linear"), "PackedLinear", l, 3, crew))(t)
	defer x.Close()
	for _, rows := range []int64{1, 7, 64} {
		p := must.Value(x.Rows(rows))(t)
		in, out := tensor.Elems[float32](p.inputs[0][0]), tensor.Elems[float32](p.outputs[0])
		if p.Layers() != 3 || int64(len(in)) != rows*48 || int64(len(out)) != rows*40 {
			t.Fatalf("%d rows: %d layers, %d in, %d out", rows, p.Layers(), len(in), len(out))
		}
		for i := range in {
			in[i] = 2
		}
		for layer := range p.Layers() {
			clear(out)
			must.Value(p.Run(layer))(t)
			for i, got := range out {
				if want := 48 * 2 * float64(filling); math.Abs(float64(got)/want-1) > 1e-5 {
					t.Fatalf("%d rows, layer %d: element %d is %g, want %g", rows, layer, i, got, want)
				}
			}
		}
	}
}
