package session

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/meaning/padding"
	"github.com/opgraft/graft/host/onnx/graph"
)

// take is the rows of a value that is there of all of them.
func (p *unpadding) take(v *graph.Value, g padding.Given) (*graph.Value, error) {
	key := takenKey{v, g}
	if to := p.taken[key]; to != nil {
		return to, nil
	}
	to, err := p.gathered(v, g)
	if err == nil {
		p.taken[key] = to
	}
	return to, err
}

func (p *unpadding) gathered(v *graph.Value, g padding.Given) (*graph.Value, error) {
	gather := func(from, index *graph.Value, axis int) (*graph.Value, error) {
		n, err := p.AddNode(p.main, "", "Gather", []*graph.Value{from, index}, []string{p.main.FreshName("graft_rows")},
			"axis",
			axis)
		if err != nil {
			return nil, err
		}
		return n.Out[0], nil
	}
	s := p.shapes.Of(v)
	switch {
	case g.Flat:
		if err := p.places(); err != nil {
			return nil, err
		}
		return gather(v, p.list, g.Position)
	case g.Batch < 0:
		index, err := p.along(1)
		if err != nil {
			return nil, err
		}
		return gather(v, index, g.Position)
	case s.Dim(g.Position).Is(1): // one position for all of a sequence
		index, err := p.along(0)
		if err != nil {
			return nil, err
		}
		if v, err = gather(v, index, g.Batch); err != nil {
			return nil, err
		}
		perm := identity(s.Rank)
		perm[g.Batch], perm[g.Position] = perm[g.Position], perm[g.Batch]
		return p.transposed(v, perm, g.Position)
	}
	// Rows come first, and are told by one number.
	perm := []int64{int64(g.Batch), int64(g.Position)}
	for i := range s.Rank {
		if i != g.Batch && i != g.Position {
			perm = append(perm, int64(i))
		}
	}
	v, err := p.transposed(v, perm, -1)
	if err != nil {
		return nil, err
	}
	target := []int64{-1}
	if p.whole {
		target = []int64{1, -1}
	}
	for _, i := range perm[2:] {
		n, ok := s.Dims[i].Const()
		if !ok {
			return nil, fmt.Errorf("a length of %s is not known", v.Name)
		}
		target = append(target, n)
	}
	if v, err = p.op("Reshape", v, p.longs(target...)); err != nil {
		return nil, err
	}
	if !p.whole {
		if err := p.places(); err != nil {
			return nil, err
		}
		if v, err = gather(v, p.rows, 0); err != nil {
			return nil, err
		}
	}
	return p.transposed(v, inverse(perm), 0)
}

func identity(rank int) (perm []int64) {
	for i := range rank {
		perm = append(perm, int64(i))
	}
	return perm
}

func inverse(perm []int64) []int64 {
	out := make([]int64, len(perm))
	for i, at := range perm {
		out[at] = int64(i)
	}
	return out
}

// transposed is a value with other order of axes, itself where that is the one it has. one is an axis of length 1, or
// -1: where it alone moves, no element does. That is written without a Transpose as well because ONNX Runtime 1.31
// ends the process over a Transpose of float16 by (1, 0, 2) before a MatMul.
func (p *unpadding) transposed(v *graph.Value, perm []int64, one int) (*graph.Value, error) {
	if slices.IsSorted(perm) {
		return v, nil
	}
	if to := slices.Index(perm, int64(one)); to >= 0 && slices.IsSorted(slices.Delete(slices.Clone(perm), to, to+1)) {
		rest, err := p.squeezed(v, int64(one))
		if err != nil {
			return nil, err
		}
		return p.axes("Unsqueeze", rest, int64(to))
	}
	n, err := p.AddNode(p.main, "", "Transpose", []*graph.Value{v}, []string{p.main.FreshName("graft_rows")}, "perm", perm)
	if err != nil {
		return nil, err
	}
	return n.Out[0], nil
}
