package inputs

import (
	"math"

	"github.com/opgraft/graft/host/onnx/graph"
)

// needs gives lengths the numbers without which an operator of the graph cannot run: channels that a convolution's
// weights have, widths that a matrix takes, rows of a table that is added. What is known already stays.
func (b *binder) needs() {
	for range 2 { // what one says may be what another lacks
		b.graph.Walk(func(n *graph.Node) {
			b.graph.Spend(1 + len(n.In))
			b.needsOf(n)
		})
	}
	b.patches()
}

// is says that an axis of a value has a length, where the length is a number and the axis is not, or the other way
// round.
func (b *binder) is(v *graph.Value, axis int, w *graph.Value, other int) {
	x, y := b.dim(v, axis), b.dim(w, other)
	if n, ok := y.Const(); ok {
		solve(x, n, b.at)
	} else if n, ok := x.Const(); ok {
		solve(y, n, b.at)
	}
}

// dim is the length of an axis, counted from the end where it is negative.
func (b *binder) dim(v *graph.Value, axis int) graph.Dim {
	if v == nil {
		return graph.Dim{}
	}
	f := b.shapes.Of(v)
	if axis < 0 {
		axis += f.Rank
	}
	if axis < 0 || axis >= len(f.Dims) {
		return graph.Dim{}
	}
	return f.Dims[axis]
}

func (b *binder) needsOf(n *graph.Node) {
	in := n.Input
	switch n.Op() {
	case "Conv", "ConvInteger", "com.microsoft.FusedConv":
		b.channels(in(0), in(1), n.Int("group", 1))
	case "QLinearConv":
		b.channels(in(0), in(3), n.Int("group", 1))
	case "ConvTranspose":
		b.is(in(0), 1, in(1), 0)
	case "BatchNormalization", "InstanceNormalization":
		b.is(in(0), 1, in(1), 0)
	case "LayerNormalization", "com.microsoft.SkipLayerNormalization":
		if scale := in(map[bool]int{false: 1, true: 2}[n.Op() != "LayerNormalization"]); n.Int("axis", -1) == -1 {
			b.is(in(0), -1, scale, -1)
		}
	case "MatMul", "MatMulInteger":
		if b.shapes.Of(in(1)).Rank > 1 {
			b.is(in(0), -1, in(1), -2)
		}
	case "QLinearMatMul":
		b.is(in(0), -1, in(3), -2)
	case "com.microsoft.MatMulNBits":
		if k := n.Int("K", 0); k > 0 {
			solve(b.dim(in(0), -1), k, b.at)
		}
	case "Gemm":
		b.is(in(0), 1-int(n.Int("transA", 0)), in(1), int(n.Int("transB", 0)))
	case "LSTM", "GRU", "RNN":
		b.is(in(0), 2, in(1), 2)
		for _, state := range []int{5, 6} {
			b.is(in(state), 0, in(1), 0)
			b.is(in(state), 2, in(2), 2)
		}
	case "Add", "Sub", "Mul", "Div":
		b.broadcast(in(0), in(1))
	case "Concat":
		b.joined(n)
	}
}

// channels are those that a convolution reads.
func (b *binder) channels(x, w *graph.Value, groups int64) {
	if n, ok := b.dim(w, 1).Const(); ok && groups > 0 {
		solve(b.dim(x, 1), n*groups, b.at)
	}
}

// broadcast: beside a constant, an axis is as long as the constant's, unless that is 1.
func (b *binder) broadcast(x, y *graph.Value) {
	if x == nil || y == nil {
		return
	}
	if x.Tensor != nil {
		x, y = y, x
	}
	if y.Tensor == nil || x.Tensor != nil {
		return
	}
	for i := 1; i <= len(y.Tensor.Dims); i++ {
		if n := y.Tensor.Dims[len(y.Tensor.Dims)-i]; n > 1 {
			solve(b.dim(x, -i), n, b.at)
		}
	}
}

// joined: beside a constant, the axes along which values are not joined are the constant's.
func (b *binder) joined(n *graph.Node) {
	rank := b.shapes.Of(n.Input(0)).Rank
	along := int(n.Int("axis", 0))
	if along < 0 {
		along += rank
	}
	for _, c := range n.In {
		if c == nil || c.Tensor == nil || len(c.Tensor.Dims) != rank {
			continue
		}
		for _, v := range n.In {
			for axis := range rank {
				if axis != along && v != nil && v.Tensor == nil {
					solve(b.dim(v, axis), c.Tensor.Dims[axis], b.at)
				}
			}
		}
	}
}

// patches gives images the size for which a model has positions: a convolution cuts them into squares, and a table of
// one row for each, with at most a few more, is added. Shapes cannot say that, since it is a root.
func (b *binder) patches() {
	b.graph.Walk(func(c *graph.Node) {
		x, w := b.shapes.Of(c.Input(0)), b.shapes.Of(c.Input(1))
		if !c.Is("Conv") || x.Rank != 4 || w.Rank != 4 {
			return
		}
		strides, ok := c.Ints("strides")
		width, known := w.Dims[0].Const()
		if !ok || len(strides) != 2 || strides[0] != strides[1] || !w.Dims[2].Is(strides[0]) || !known {
			return
		}
		for _, in := range b.graph.Inputs {
			f := b.shapes.Of(in)
			if f.Rank != 4 || !f.Dims[2].Equal(x.Dims[2]) || !f.Dims[3].Equal(x.Dims[3]) {
				continue
			}
			if side := b.side(width); side > 0 {
				solve(f.Dims[2], side*strides[0], b.at)
				solve(f.Dims[3], side*strides[1], b.at)
			}
		}
	})
}

// mostOthers is how many rows a table of positions of squares has beside theirs: for classes and distillation.
const mostOthers = 2

// side is the number of squares on a side of an image for which a table of that width is added; 0 where there is none.
func (b *binder) side(width int64) (side int64) {
	b.graph.Walk(func(n *graph.Node) {
		if !n.Is("Add") || side > 0 {
			return
		}
		for _, v := range n.In {
			if v == nil || v.Tensor == nil && !looked(v.Producer) {
				continue
			}
			rows, ok := b.dim(v, 1).Const()
			if !ok || b.shapes.Of(v).Rank != 3 || !b.dim(v, 0).Is(1) || !b.dim(v, 2).Is(width) {
				continue
			}
			for others := range int64(mostOthers + 1) {
				if root := int64(math.Sqrt(float64(rows - others))); root > 1 && root*root == rows-others {
					side = root
					return
				}
			}
		}
	})
	return side
}

// looked reports a constant that is put together of a constant table's rows.
func looked(n *graph.Node) bool {
	return n.Is("Gather") && n.Input(0) != nil && n.Input(0).Tensor != nil && n.Input(1) != nil && n.Input(1).Tensor != nil
}
