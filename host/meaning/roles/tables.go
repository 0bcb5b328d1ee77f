package roles

import (
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// maxTypes is the number of rows up to which a table tells kinds of tokens apart.
const maxTypes = 16

// maxDepth bounds how far a value is followed.
const maxDepth = 12

const embedNorm = "com.microsoft.EmbedLayerNormalization"

// tables finds the integers that index tables: tokens index the largest.
func (r *Roles) tables(g *graph.Graph) {
	rows := map[*graph.Value]int64{}
	var largest *graph.Value
	for _, v := range g.Inputs {
		if r.inputs[v] != Other {
			continue
		}
		if rows[v] = indexed(v, maxDepth, r.rows); rows[v] > 0 && named(v.Name) != Positions &&
			(largest == nil || rows[v] > rows[largest]) {
			largest = v
		}
	}
	for v, n := range rows {
		switch in := named(v.Name); {
		case n == 0:
		case r.embeds(v, 1), in == Types, v != largest && in != Positions && n <= maxTypes:
			r.inputs[v] = Types
		case v == largest, in == Tokens, n == rows[largest] && in != Positions: // a decoder has tokens of its own
			r.inputs[v] = Tokens
		default:
			r.inputs[v] = Positions
		}
	}
}

// embeds reports an input of the fused embedding at one place.
func (r *Roles) embeds(v *graph.Value, index int) bool {
	return slices.ContainsFunc(v.Uses, func(u graph.Use) bool { return u.Node.Op() == embedNorm && u.Index == index })
}

// Rows is the number of rows of the smallest table that a value indexes, 0 when it
// indexes none.
func Rows(v *graph.Value) int64 { return indexed(v, maxDepth, walk[int64]{}) }

func indexed(v *graph.Value, depth int, before walk[int64]) int64 {
	return before.once(v, depth, func() int64 {
		rows := int64(0)
		for _, u := range v.Uses {
			n, found := u.Node, int64(0)
			switch {
			case n.Is("Gather") && u.Index == 1 && n.Int("axis", 0) == 0 && isTable(n.Input(0)):
				found = n.Input(0).Tensor.Dims[0]
			case n.Is("GatherND") && u.Index == 1 && n.Int("batch_dims", 0) == 0 && isTable(n.Input(0)) && single(n.Input(1)):
				found = n.Input(0).Tensor.Dims[0]
			case n.Op() == "com.microsoft.GatherBlockQuantized" && u.Index == 1 && isTable(n.Input(0)):
				found = n.Input(0).Tensor.Dims[0]
			case n.Is("GatherElements") && u.Index == 1:
				found = rowsOf(n.Input(0), n.Int("axis", 0))
			case n.Op() == embedNorm && (u.Index < 2 || u.Index == 8):
				// Words are looked up in input 2, segments in input 4, positions in input 3.
				at := map[int]int{0: 2, 1: 4, 8: 3}[u.Index]
				if t := n.Input(at); t != nil && t.Tensor != nil && len(t.Tensor.Dims) > 0 {
					found = t.Tensor.Dims[0]
				}
			case depth > 0 && len(n.Out) > 0 && n.Out[0] != nil &&
				n.Is("Reshape", "Cast", "Unsqueeze", "Squeeze", "Identity", "Flatten", "If", "Expand", "Tile", "Pad"):
				if u.Index == 0 {
					found = indexed(n.Out[0], depth-1, before)
				}
			case depth > 0 && n.Is("Add") && len(n.Out) > 0 && n.Out[0] != nil:
				// Positions begin after a few rows of padding.
				if c, ok := n.Input(1 - u.Index).Ints(); ok && len(c) == 1 && c[0] >= 0 {
					found = max(indexed(n.Out[0], depth-1, before)-c[0], 0)
				}
			}
			if found > 0 && (rows == 0 || found < rows) {
				rows = found
			}
		}
		return rows
	})
}

// single reports numbers that each stand alone in a last axis: coordinates of one axis, to GatherND.
func single(v *graph.Value) bool {
	if !v.Producer.Is("Unsqueeze") {
		return false
	}
	axes, ok := v.Producer.Input(1).Ints()
	return ok && len(axes) == 1 && axes[0] == -1
}

// rowsOf is the length of an axis of a constant, repeated for each row of a batch or not; 0 of anything else.
func rowsOf(v *graph.Value, axis int64) int64 {
	for range maxDepth {
		switch {
		case v == nil:
			return 0
		case v.Tensor != nil:
			if axis < 0 {
				axis += int64(len(v.Tensor.Dims))
			}
			if axis < 0 || axis >= int64(len(v.Tensor.Dims)) {
				return 0
			}
			return v.Tensor.Dims[axis]
		case !v.Producer.Is("Expand", "Tile", "Cast", "Identity"):
			return 0
		}
		v = v.Producer.Input(0)
	}
	return 0
}

// leastTable is the number of rows from which on a constant that is cut to a length is one of positions.
const leastTable = 8

// cut is the length of the shortest axis of a constant that is cut where the model's inputs say; 0 where there is
// none. A table of positions and a triangle that hides what comes later are used so.
func cut(n *graph.Node) (rows int64) {
	if !n.Is("Slice") || !isTable(n.Input(0)) || len(n.Input(0).Tensor.Dims) < 2 || n.Input(2) == nil {
		return 0
	}
	if _, constant := n.Input(2).Ints(); constant {
		return 0
	}
	dims := n.Input(0).Tensor.Dims
	axes, ok := []int64{}, true
	if n.Input(3) != nil {
		axes, ok = n.Input(3).Ints()
	} else {
		for i := range dims {
			axes = append(axes, int64(i))
		}
	}
	for _, axis := range axes {
		if axis < 0 {
			axis += int64(len(dims))
		}
		if ok && axis >= 0 && axis < int64(len(dims)) && dims[axis] >= leastTable && (rows == 0 || dims[axis] < rows) {
			rows = dims[axis]
		}
	}
	return rows
}

// isTable reports a constant that has rows.
func isTable(v *graph.Value) bool {
	return v != nil && v.Tensor != nil && len(v.Tensor.Dims) > 0
}

// used is what an input is by the nodes that read it.
func (r *Roles) used(v *graph.Value) Input {
	f := r.shapes.Of(v)
	switch {
	case decides(v, 4, r.decides):
		return UseCacheBranch
	case f.Rank >= 3 && convolved(v, 4, r.convolved) != nil:
		return Image
	case (f.DType == onnx.Tensor_INT64 || f.DType == onnx.Tensor_INT32) && f.Rank > 0 && turns(v, maxDepth, r.turns):
		return Positions
	}
	return Other
}

// decides reports the condition of an If.
func decides(v *graph.Value, depth int, before walk[bool]) bool {
	return before.once(v, depth, func() bool {
		return slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
			n := u.Node
			return n.Is("If") && u.Index == 0 ||
				depth > 0 && n.Is("Squeeze", "Reshape", "Cast", "Identity", "Not") && u.Index == 0 && n.Output(0) != nil &&
					decides(n.Output(0), depth-1, before)
		})
	})
}

// turns reports positions that become the angles of a rotary embedding.
func turns(v *graph.Value, depth int, before walk[bool]) bool {
	return before.once(v, depth, func() bool {
		return slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
			n := u.Node
			switch {
			case n.Is("Cos", "Sin"), n.Op() == "com.microsoft.RotaryEmbedding" && u.Index == 1,
				n.Is("RotaryEmbedding") && u.Index == 3:
				return true
			case depth == 0 || n.Output(0) == nil:
				return false
			}
			return n.Is("Cast", "Unsqueeze", "Reshape", "Expand", "Mul", "MatMul", "Transpose", "Concat", "Identity",
				"Squeeze") && turns(n.Output(0), depth-1, before)
		})
	})
}

// convolved is the convolution that reads a value first, or nil.
func convolved(v *graph.Value, depth int, before walk[*graph.Node]) *graph.Node {
	return before.once(v, depth, func() *graph.Node {
		for _, u := range v.Uses {
			n := u.Node
			if n.Is("Conv") && u.Index == 0 {
				return n
			}
			if depth > 0 && n.Is("Cast", "Identity", "Sub", "Mul", "Div", "Add", "Pad") && n.Output(0) != nil {
				if c := convolved(n.Output(0), depth-1, before); c != nil {
					return c
				}
			}
		}
		return nil
	})
}

// rotaryCaches are the operators that look angles up in tables, with the input that
// is one.
var rotaryCaches = map[string]int{"com.microsoft.GroupQueryAttention": 7, "com.microsoft.RotaryEmbedding": 2,
	"RotaryEmbedding": 1}

// positions is the number of rows of the smallest table of positions: one that is
// indexed by counting or by an input of positions, one of angles, or one that is cut to
// a length. It is 0 where there is none.
func (r *Roles) positions(g *graph.Graph) int64 {
	rows := int64(0)
	table := func(found int64) {
		if found > 0 && (rows == 0 || found < rows) {
			rows = found
		}
	}
	for _, v := range g.Inputs {
		if r.inputs[v] == Positions {
			table(indexed(v, maxDepth, r.rows))
		}
	}
	before := walk[count]{}
	g.Walk(func(n *graph.Node) {
		g.Spend(1)
		if at, ok := rotaryCaches[n.Op()]; ok && isTable(n.Input(at)) && len(n.Input(at).Tensor.Dims) == 2 {
			table(n.Input(at).Tensor.Dims[0])
		}
		table(cut(n))
		if n.Op() == embedNorm && isTable(n.Input(3)) {
			table(n.Input(3).Tensor.Dims[0])
		}
		looks := n.Is("Gather") && n.Int("axis", 0) == 0 || n.Is("GatherND") && n.Int("batch_dims", 0) == 0
		if !looks || !isTable(n.Input(0)) || len(n.Input(0).Tensor.Dims) != 2 {
			return
		}
		if shift, ok := counted(n.Input(1), maxDepth, before); ok {
			table(n.Input(0).Tensor.Dims[0] - shift)
		}
	})
	return rows
}

// count is where counting begins; counts is false of a value that does not count.
type count struct {
	from   int64
	counts bool
}

// counted reports a value that counts positions, and from which number on.
func counted(v *graph.Value, depth int, before walk[count]) (from int64, ok bool) {
	if v == nil || depth == 0 || v.Producer == nil {
		return 0, false
	}
	c := before.once(v, depth, func() count {
		n := v.Producer
		switch {
		case n.Is("Range"), n.Is("Shape") && v.Graph.Parent == nil: // a step of one token counts by the length of its past
			return count{0, true}
		case n.Is("CumSum"): // of ones, which the first is among
			return count{1 - n.Int("exclusive", 0), true}
		case n.Is("Add", "Sub"):
			return countedOn(n, depth, before)
		case n.Is("Unsqueeze", "Squeeze", "Reshape", "Cast", "Expand", "Tile", "Slice", "Identity", "Mul"):
			from, ok := counted(n.Input(0), depth-1, before)
			return count{from, ok}
		}
		return count{}
	})
	return c.from, c.counts
}

// countedOn is where a sum or a difference begins to count.
func countedOn(n *graph.Node, depth int, before walk[count]) count {
	for i := range 2 {
		from, ok := counted(n.Input(i), depth-1, before)
		if !ok || n.Is("Sub") && i == 1 {
			continue
		}
		if c, constant := n.Input(1 - i).Ints(); constant && len(c) == 1 {
			if n.Is("Sub") {
				c[0] = -c[0]
			}
			from += c[0]
		} else if other, too := counted(n.Input(1-i), depth-1, before); too {
			return count{max(from, other), n.Is("Add")}
		}
		return count{from, true}
	}
	return count{}
}
