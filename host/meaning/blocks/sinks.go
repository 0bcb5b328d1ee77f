package blocks

import (
	"errors"
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
)

// joinsSinks reads a Concat that adds to the scores of a query one more, of its head: an attention sink, which takes
// its part of the softmax and has no value.
func (f *finder) joinsSinks(sc *scores, n *graph.Node, at *view) error {
	plain := sc.scale == 1 && sc.softcap == 0 && sc.floor == 0 && sc.headScale == nil && sc.sinks == nil &&
		len(sc.biases) == 0 && sc.boolMask == nil
	rank := len(at.dims)
	if axis := n.Int("axis", 0); !plain || len(n.In) != 2 || at.text() != "b h s t" ||
		axis != -1 && axis != int64(rank-1) {
		return fmt.Errorf("its scores are joined with others (%s) that are no sink of each head", n)
	}
	heads := f.shapes.Of(n.Input(0)).Dim(1)
	if sc.sinks = f.sinks(n.Input(1), heads); sc.sinks == nil {
		return fmt.Errorf("its scores are joined with %s, which is no constant of a number for each head",
			describe(n.Input(1)))
	}
	at.value = n.Input(0)
	at.dims = slices.Clone(at.dims)
	at.dims[rank-1] = []axis{{role: "t", size: f.shapes.Of(at.value).Dim(-1)}}
	return nil
}

// sinks is the constant of one number for each head that a value (B, H, S, 1) repeats, or nil.
func (f *finder) sinks(v *graph.Value, heads graph.Dim) *graph.Value {
	count, ok := heads.Const()
	if dims := f.shapes.Of(v).Dims; !ok || len(dims) != 4 || !isOne(dims[3]) || !dims[1].Is(count) {
		return nil
	}
	for range maxDetour {
		v = f.first(v)
		if n := v.Producer; n.Is("Expand") {
			v = n.Input(0)
			continue
		}
		break
	}
	dims := f.shapes.Of(v).Dims
	for i := range dims { // right-aligned with (B, H, S, 1)
		if ones := len(dims)-i != 3; ones && !isOne(dims[i]) || !ones && !dims[i].Is(count) {
			return nil
		}
	}
	if made := f.source(v); len(dims) < 3 || made == nil || made.Tensor == nil {
		return nil
	}
	return v
}

// withoutSinks follows probabilities to where the sinks' are cut off, which nothing may read.
func (f *finder) withoutSinks(at view) (view, error) {
	for range maxDetour {
		list := f.readers(at.value)
		if len(list) != 1 || list[0].Index != 0 || f.output(at.value) != nil {
			return at, errors.New("the probabilities of its sinks are read")
		}
		n := list[0].Node
		if n.Is("Slice") && f.cutsLast(n) {
			at.value, at.dims = n.Output(0), slices.Clone(at.dims)
			at.dims[len(at.dims)-1] = []axis{{role: "t", size: f.shapes.Of(n.Output(0)).Dim(-1)}}
			return at, nil
		}
		if !n.Is("Cast", "Dropout", "Identity") {
			return at, fmt.Errorf("the probabilities of its sinks are not cut off by %s %s", n.Op(), n)
		}
		at.value = n.Output(0)
	}
	return at, errors.New("the probabilities of its sinks are not cut off")
}

// cutsLast reports a Slice of all but the last of the last axis.
func (f *finder) cutsLast(n *graph.Node) bool {
	rank := int64(f.shapes.Of(n.Input(0)).Rank)
	axes, steps := f.numbers(n, 3, "axes"), f.numbers(n, 4, "steps")
	starts, ends := f.numbers(n, 1, "starts"), f.numbers(n, 2, "ends")
	one := func(list []int64) bool { return len(list) == 1 }
	return one(starts) && starts[0] == 0 && one(ends) && ends[0] == -1 && one(axes) &&
		(axes[0] == -1 || axes[0] == rank-1) && (n.Input(4) == nil || one(steps) && steps[0] == 1)
}
