package blocks

import (
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
)

// unpadded undoes a Pad that appends zeros to heads: v is its output, the result its input. Products of queries and
// keys that are both filled up do not see them, and what values make of them is to be cut off (cutOff).
func (f *finder) unpadded(v view, n *graph.Node) (view, bool) {
	pads := f.numbers(n, 1, "pads")
	if mode := n.Attr("mode"); mode != nil && string(mode.GetS()) != "constant" || n.Float("value", 0) != 0 ||
		n.Input(3) != nil || len(pads) != 2*len(v.dims) {
		return view{}, false
	}
	if fill := n.Input(2); fill != nil {
		if x, ok := f.scalar(fill); !ok || x != 0 {
			return view{}, false
		}
	}
	out := view{n.Input(0), slices.Clone(v.dims), v.scale}
	for i, d := range v.dims {
		before, after := pads[i], pads[len(v.dims)+i]
		if before == 0 && after == 0 {
			continue
		}
		size, ok := wholeHead(d)
		if before != 0 || after < 0 || !ok || size <= after {
			return view{}, false
		}
		out.dims[i] = []axis{{role: "d", size: graph.DimInt(size - after)}}
	}
	return out, true
}

// cutOff applies a Slice that leaves the first elements of heads, so many of them: v is its input.
func (f *finder) cutOff(v view, n *graph.Node, size graph.Dim) (view, bool) {
	starts, axes, steps := f.numbers(n, 1, "starts"), f.numbers(n, 3, "axes"), f.numbers(n, 4, "steps")
	if !n.Is("Slice") || len(starts) != 1 || starts[0] != 0 || len(axes) != 1 || len(steps) > 0 && steps[0] != 1 {
		return view{}, false
	}
	at := axes[0]
	if at < 0 {
		at += int64(len(v.dims))
	}
	if at < 0 || at >= int64(len(v.dims)) || !f.shapes.Of(n.Output(0)).Dim(int(at)).Equal(size) {
		return view{}, false
	}
	if _, ok := wholeHead(v.dims[at]); !ok {
		return view{}, false
	}
	out := view{n.Output(0), slices.Clone(v.dims), v.scale}
	out.dims[at] = []axis{{role: "d", size: size}}
	return out, true
}

// filled is how many zeros follow the features of values in each head of a result that nothing cuts them off:
// there is something between, say, that makes zeros of rows.
func (f *finder) filled(out view, size graph.Dim, as operand) (int64, bool) {
	d, _ := out.size("d")
	all, known := d.Const()
	of, constant := size.Const()
	return all - of, known && constant && all > of && out.reads(as) && out.value.Graph.Opset("") >= 11
}

// wholeHead is the size of heads where a dimension holds that and nothing else.
func wholeHead(d []axis) (int64, bool) {
	if len(d) != 1 || d[0].role != "d" || d[0].part != "" {
		return 0, false
	}
	return d[0].size.Const()
}
