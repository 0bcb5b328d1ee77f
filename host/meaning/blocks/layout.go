package blocks

import (
	"slices"
	"strings"

	"github.com/opgraft/graft/host/onnx/graph"
)

// axis is one logical axis of a tensor in attention, or a piece of one.
type axis struct {
	role string // "b" batch, "h" head, "s" position, "d" size, "t" key position; "bh" batch and head not told apart
	part string // which piece of the axis: "" the whole; a digit for each cut, "0" for the outer piece, "1" for the inner
	size graph.Dim
}

// view is a value together with which logical axes each of its dimensions
// holds, in row-major order.
type view struct {
	value *graph.Value
	dims  [][]axis
	scale float64 // what a chain of scalar products between here and the block multiplies by
}

// text names what each dimension holds: "b s hd". A piece of an axis is followed
// by which it is.
func (v view) text() string {
	var b strings.Builder
	for i, d := range v.dims {
		if i > 0 {
			b.WriteByte(' ')
		}
		for _, a := range d {
			b.WriteString(a.role)
			b.WriteString(a.part)
		}
	}
	return b.String()
}

// layout names the arrangement: "bhsd", "bshd", "bhds" at rank 4, "bshd" at
// rank 3 with heads and size in one dimension, "bs1d" and "bd1s" for one head that was never
// told apart from the batch; "" for any other.
func (v view) layout() string {
	switch s := v.text(); s {
	case "b h s d", "b s h d", "b h d s":
		return strings.ReplaceAll(s, " ", "")
	case "b s hd":
		return "bshd"
	case "bh s d", "bh d s":
		if len(v.dims[0]) == 1 {
			return "b" + s[3:4] + "1" + s[5:]
		}
	}
	return ""
}

// operand is which arrangements of a side of a block are looked for.
type operand struct {
	key    bool // also the one that a product with queries needs, heads of columns
	turned bool // of values and results, heads of columns, too
	joined bool // only those with batch and heads in one axis
	whole  bool // what is joined along positions is read as one, and not as past and new
	// heads are those that there have to be: values of one head may be repeated for all heads of keys
	heads graph.Dim
}

// reads reports an arrangement that operators read.
func (v view) reads(as operand) bool {
	if h, ok := v.size("h"); as.heads.Known() && ok && !h.Equal(as.heads) {
		return false
	}
	switch v.layout() {
	case "bhsd", "bshd":
		return !as.joined
	case "bhds":
		return (as.key || as.turned) && !as.joined
	case "bs1d":
		return true
	case "bd1s":
		return as.key || as.turned
	}
	return false
}

// isScores reports the arrangement in which a softmax over the last axis and the
// matmuls on both sides of it see scores.
func (v view) isScores() bool {
	s := v.text()
	return s == "b h s t" || s == "bh s t"
}

// weighsRight reports probabilities whose columns are a query's where a matmul takes them as its right side.
func (v view) weighsRight(matmul *graph.Node) bool {
	if matmul.Int("transB", 0) != 0 {
		return v.isScores()
	}
	s := v.text()
	return s == "b h t s" || s == "bh t s"
}

// turn takes the last two dimensions, of positions and size, for those of size and positions.
func (v view) turn() {
	last := len(v.dims) - 1
	v.dims[last-1][0].role, v.dims[last][0].role = v.dims[last][0].role, v.dims[last-1][0].role
}

func (v view) flat() []axis { return slices.Concat(v.dims...) }

// size is the length of the axis with this role.
func (v view) size(role string) (graph.Dim, bool) {
	for _, a := range v.flat() {
		if a.role == role {
			return a.size, true
		}
	}
	return graph.Dim{}, false
}

// transpose undoes a Transpose: v is its output, the result its input.
func (v view) transpose(perm []int64, in *graph.Value) (view, bool) {
	if len(perm) != len(v.dims) {
		return view{}, false
	}
	dims := make([][]axis, len(perm))
	for i, p := range perm {
		if p < 0 || p >= int64(len(perm)) || dims[p] != nil {
			return view{}, false
		}
		dims[p] = append([]axis{}, v.dims[i]...)
	}
	return view{in, dims, v.scale}, true
}

// permute applies a Transpose: v is its input, the result its output.
func (v view) permute(perm []int64, out *graph.Value) (view, bool) {
	if len(perm) != len(v.dims) {
		return view{}, false
	}
	dims := make([][]axis, len(perm))
	for i, p := range perm {
		if p < 0 || p >= int64(len(v.dims)) {
			return view{}, false
		}
		dims[i] = v.dims[p]
	}
	return view{out, dims, v.scale}, true
}

// regroup spreads the axes of v over the dimensions of another shape with the
// same elements in the same order, cutting axes where a dimension ends within. The length of
// one dimension need not be told as a product of theirs: it holds the axes that the others leave.
func (v view) regroup(to []graph.Dim, value *graph.Value) (view, bool) {
	dims, rest := spread(v.flat(), to, false)
	if at := len(dims); at < len(to) {
		behind, middle := spread(rest, to[at+1:], true)
		if at+1+len(behind) < len(to) || len(middle) == 0 {
			return view{}, false
		}
		dims, rest = slices.Concat(dims, [][]axis{middle}, behind), nil
	}
	for _, a := range rest { // axes of length one may have no dimension of their own
		if !isOne(a.size) || len(to) == 0 {
			return view{}, false
		}
		dims[len(to)-1] = append(dims[len(to)-1], a)
	}
	settle(dims)
	for i := range dims {
		dims[i] = join(dims[i])
	}
	return view{value, dims, v.scale}, true
}

// settle gives a dimension of length one that no axis stands in the axis of a single head, where a view of lower rank
// put that beside another.
func settle(dims [][]axis) {
	empty := -1
	for i, d := range dims {
		if len(d) == 0 && empty >= 0 {
			return
		} else if len(d) == 0 {
			empty = i
		}
	}
	for i, d := range dims {
		at := slices.IndexFunc(d, func(a axis) bool { return a.role == "h" && a.part == "" && isOne(a.size) })
		if empty >= 0 && at >= 0 && len(d) > 1 {
			dims[empty], dims[i] = []axis{d[at]}, slices.Delete(slices.Clone(d), at, at+1)
			return
		}
	}
}

// spread gives dimensions the axes whose product their lengths are, or pieces of axes: from the first dimension on, or
// backward from the last, up to one of another length. What no dimension got is the rest.
func spread(axes []axis, to []graph.Dim, backward bool) (dims [][]axis, rest []axis) {
	rest = slices.Clone(axes)
	if backward {
		to = slices.Clone(to)
		slices.Reverse(to)
		slices.Reverse(rest)
		defer func() {
			for _, d := range dims {
				slices.Reverse(d)
			}
			slices.Reverse(dims)
			slices.Reverse(rest)
		}()
	}
	for _, need := range to {
		left, dim := slices.Clone(rest), []axis{}
		if isOne(need) && len(left) > 0 && isOne(left[0].size) {
			dim, left = append(dim, left[0]), left[1:]
		}
		for !isOne(need) {
			if len(left) == 0 {
				return dims, rest
			}
			a := left[0]
			if more, ok := need.Div(a.size); ok {
				dim, left, need = append(dim, a), left[1:], more
			} else if other, ok := a.size.Div(need); ok && backward {
				outer, inner := a.cut(other, need)
				dim, left[0], need = append(dim, inner), outer, graph.DimInt(1)
			} else if ok {
				outer, inner := a.cut(need, other)
				dim, left[0], need = append(dim, outer), inner, graph.DimInt(1)
			} else {
				return dims, rest
			}
		}
		dims, rest = append(dims, dim), left
	}
	return dims, rest
}

// length is that of a dimension which holds these axes.
func length(of []axis) graph.Dim {
	n := graph.DimInt(1)
	for _, a := range of {
		n = n.Mul(a.size)
	}
	return n
}

func isOne(d graph.Dim) bool { return d.Is(1) }

// cut parts an axis in two. Batch and heads that were one come apart by name.
func (a axis) cut(outer, inner graph.Dim) (axis, axis) {
	if a.role == "bh" {
		return axis{role: "b", size: outer}, axis{role: "h", size: inner}
	}
	return axis{a.role, a.part + "0", outer}, axis{a.role, a.part + "1", inner}
}

// join puts neighbouring pieces that were cut from one axis together again.
func join(d []axis) []axis {
	for i := 0; i+1 < len(d); i++ {
		a, b := d[i], d[i+1]
		stem, ok := strings.CutSuffix(a.part, "0")
		if ok && a.role == b.role && b.part == stem+"1" {
			d = slices.Concat(d[:i], []axis{{a.role, stem, a.size.Mul(b.size)}}, d[i+2:])
			i = -1 // what was joined may be a piece itself
		}
	}
	return d
}

// unrepeat undoes an Expand, Tile or Concat of copies: v is its output, in the
// shape of its input. Heads that are repeated one by one, each beside itself,
// are fewer heads before; any other repetition is refused.
func (v view) unrepeat(in []graph.Dim, value *graph.Value) (view, bool) {
	if len(in) != len(v.dims) {
		return view{}, false
	}
	out := view{value: value, dims: slices.Clone(v.dims), scale: v.scale}
	for i, d := range v.dims {
		if length(d).Equal(in[i]) {
			continue
		}
		if len(d) != 1 || d[0].role != "h" || !isOne(in[i]) {
			return view{}, false
		}
		stem, inner := strings.CutSuffix(d[0].part, "1")
		switch {
		case d[0].part == "":
			out.dims[i] = []axis{{"h", "", graph.DimInt(1)}}
		case inner:
			out.dims[i] = []axis{}
			out.shorten(stem)
		default:
			return view{}, false
		}
	}
	return out, true
}

// shorten makes the outer piece of the heads stand for all of them.
func (v view) shorten(stem string) {
	for i, d := range v.dims {
		for j, a := range d {
			if rest, ok := strings.CutPrefix(a.part, stem+"0"); ok && a.role == "h" {
				v.dims[i] = slices.Clone(v.dims[i])
				v.dims[i][j].part = stem + rest
			}
		}
	}
}
