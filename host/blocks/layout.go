package blocks

import (
	"slices"

	"github.com/opgraft/graft/host/graph"
)

// axis is one logical axis of a tensor in attention: batch, head, position,
// size; or, until a reshape tells them apart, several of them in one.
type axis struct {
	role string // "b", "h", "g" (key-value head), "r" (repeats of it), "s", "d", or joined such as "bh"
	size graph.Dim
}

// view is a value together with which logical axes each of its dimensions
// holds, in row-major order.
type view struct {
	value *graph.Value
	dims  [][]axis
	scale float64 // what a chain of scalar products between here and the block multiplies by
}

// layout names the arrangement: "bhsd", "bshd", "bhds" at rank 4, "bshd" at
// rank 3 with heads and size in one dimension; "" for any other.
func (v view) layout() string {
	s := ""
	for i, d := range v.dims {
		if i > 0 {
			s += " "
		}
		for _, a := range d {
			r := a.role
			if r == "g" {
				r = "h"
			}
			s += r
		}
	}
	switch s {
	case "b h s d", "b s h d", "b h d s":
		return string([]byte{s[0], s[2], s[4], s[6]})
	case "b s hd":
		return "bshd"
	case "bh s d": // one head, never told apart from the batch
		return "bs1d"
	}
	return ""
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
		dims[p] = slices.Clip(append([]axis{}, v.dims[i]...))
		if dims[p] == nil {
			dims[p] = []axis{}
		}
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
// same elements in the same order, splitting joined axes where it must.
func (v view) regroup(to []graph.Dim, value *graph.Value) (view, bool) {
	axes := v.flat()
	out := view{value: value, dims: make([][]axis, 0, len(to)), scale: v.scale}
	i, j := 0, 0
	for i < len(axes) || j < len(to) {
		if j < len(to) && isOne(to[j]) && (i >= len(axes) || !isOne(axes[i].size)) {
			out.dims = append(out.dims, []axis{})
			j++
			continue
		}
		if i < len(axes) && isOne(axes[i].size) && (j >= len(to) || !isOne(to[j])) {
			// An axis of length one that has no dimension of its own
			// joins the one before it, or the one to come.
			if len(out.dims) > 0 {
				out.dims[len(out.dims)-1] = append(slices.Clip(out.dims[len(out.dims)-1]), axes[i])
				i++
				continue
			}
		}
		if i >= len(axes) || j >= len(to) {
			return view{}, false
		}
		from, want := i, j
		have, need := axes[i].size, to[j]
		i, j = i+1, j+1
		for !have.Equal(need) {
			if _, ok := have.Div(need); ok && j < len(to) {
				need = need.Mul(to[j])
				j++
			} else if i < len(axes) {
				have = have.Mul(axes[i].size)
				i++
			} else {
				return view{}, false
			}
			if !have.Known() || !need.Known() {
				return view{}, false
			}
		}
		switch {
		case j-want == 1:
			out.dims = append(out.dims, slices.Clone(axes[from:i]))
		case i-from == 1:
			parts, ok := split(axes[from], to[want:j])
			if !ok {
				return view{}, false
			}
			out.dims = append(out.dims, parts...)
		default:
			return view{}, false
		}
	}
	return out, true
}

func isOne(d graph.Dim) bool {
	n, ok := d.Const()
	return ok && n == 1
}

// split tells the axes apart that were joined in one: batch and heads, or
// key-value heads and their repeats.
func split(a axis, sizes []graph.Dim) ([][]axis, bool) {
	var roles []string
	switch {
	case a.role == "bh" && len(sizes) == 2:
		roles = []string{"b", "h"}
	case a.role == "bh" && len(sizes) == 3:
		roles = []string{"b", "g", "r"}
	case a.role == "h" && len(sizes) == 2:
		roles = []string{"g", "r"}
	default:
		return nil, false
	}
	parts := make([][]axis, len(sizes))
	for i := range sizes {
		parts[i] = []axis{{roles[i], sizes[i]}}
	}
	return parts, true
}
