package session

import (
	"encoding/binary"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/padding"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plugin/capability"
)

// leave puts rows back where something else reads them, zeros standing for those that are hidden.
func (p *unpadding) leave() error {
	for _, n := range p.f.Late {
		p.made[n] = true
	}
	for _, v := range p.f.Leaving {
		at := p.f.Places[v]
		var outside []graph.Use
		for _, u := range slices.Clone(v.Uses) {
			end, ends := p.f.Ends[u.Node]
			switch {
			case p.made[u.Node]:
			case ends && u.Index == 0:
				to, err := p.end(v, at, end)
				if err != nil {
					return err
				}
				p.main.Replace(u.Node.Out[0], to)
			default:
				outside = append(outside, u)
			}
		}
		if len(outside) == 0 && !v.IsOutput {
			continue
		}
		back, err := p.restored(v, at, v.IsOutput && !p.whole && slices.Contains(p.f.Outputs, v.Name))
		if err != nil {
			return err
		}
		if !v.IsOutput {
			p.main.SetInputs(outside, slices.Repeat([]*graph.Value{back}, len(outside)))
			continue
		}
		inside := slices.DeleteFunc(slices.Clone(v.Uses), func(u graph.Use) bool { return slices.Contains(outside, u) })
		p.main.Replace(v, back) // which takes all readers
		p.main.SetInputs(inside, slices.Repeat([]*graph.Value{v}, len(inside)))
	}
	return nil
}

// end is the first or last row of each sequence.
func (p *unpadding) end(v *graph.Value, at padding.Place, end padding.End) (*graph.Value, error) {
	from, to := int64(0), int64(-1)
	if end.Last {
		from, to = 1, math.MaxInt64
	}
	index, err := p.op("Slice", p.offsets, p.longs(from), p.longs(to))
	if err == nil && end.Last {
		index, err = p.op("Sub", index, p.main.AddInitializer(int32Scalar(1)))
	}
	if err != nil {
		return nil, err
	}
	n, err := p.AddNode(p.main, "", "Gather", []*graph.Value{v, index}, []string{p.main.FreshName("graft_rows")}, "axis",
		at.Position)
	if err != nil {
		return nil, err
	}
	if at.Position == at.Batch+1 && !end.Axis {
		return p.squeezed(n.Out[0], int64(at.Batch))
	}
	perm := identity(p.shapes.Of(v).Rank)
	perm[at.Batch], perm[at.Position] = perm[at.Position], perm[at.Batch]
	row, err := p.transposed(n.Out[0], perm, at.Batch)
	if err != nil || end.Axis {
		return row, err
	}
	return p.squeezed(row, int64(at.Position))
}

// squeezed is a value without axes of one.
func (p *unpadding) squeezed(v *graph.Value, axes ...int64) (*graph.Value, error) {
	return p.axes("Squeeze", v, axes...)
}

// axes takes axes of one out of a value, or puts them in.
func (p *unpadding) axes(op string, v *graph.Value, axes ...int64) (*graph.Value, error) {
	if p.main.Opset("") >= 13 {
		return p.op(op, v, p.longs(axes...))
	}
	n, err := p.AddNode(p.main, "", op, []*graph.Value{v}, []string{p.main.FreshName("graft_rows")}, "axes", axes)
	if err != nil {
		return nil, err
	}
	return n.Out[0], nil
}

func int32Scalar(x int32) *onnx.Tensor {
	return &onnx.Tensor{Name: proto.String(""), DataType: proto.Int32(int32(onnx.Tensor_INT32)),
		RawData: binary.LittleEndian.AppendUint32(nil, uint32(x))}
}

// restored is a value with all rows, zeros where they were not computed and, when it is to be cleared, where they are
// hidden.
func (p *unpadding) restored(v *graph.Value, at padding.Place, cleared bool) (back *graph.Value, err error) {
	s := p.shapes.Of(v)
	perm := []int64{int64(at.Position)}
	if !at.Flat() {
		perm = []int64{int64(at.Batch), int64(at.Position)}
	}
	for i := range s.Rank {
		if i != at.Batch && i != at.Position {
			perm = append(perm, int64(i))
		}
	}
	rows, err := p.transposed(v, perm, at.Batch)
	if err == nil && at.Flat() {
		target := []int64{1, -1}
		for _, i := range perm[1:] {
			n, _ := s.Dims[i].Const()
			target = append(target, n)
		}
		rows, err = p.op("Reshape", rows, p.longs(target...))
	}
	if err != nil {
		return nil, err
	}
	rest := perm[1:]
	if !at.Flat() {
		rest = perm[2:]
	}
	if back, err = p.padded(rows, s, rest, cleared); err != nil {
		return nil, err
	}
	dims := slices.Clone(p.shapes.Of(p.mask).Dims)
	for _, i := range rest {
		dims = append(dims, s.Dims[i])
	}
	p.state(back, s.DType, dims...)
	if at.Flat() {
		target := []int64{-1}
		for _, i := range perm[1:] {
			n, _ := s.Dims[i].Const()
			target = append(target, n)
		}
		if back, err = p.op("Reshape", back, p.longs(target...)); err != nil {
			return nil, err
		}
	}
	return p.transposed(back, inverse(perm), -1)
}

// padded is rows (1, N, ..) as (B, S, ..). rest are the axes of what they were that come after these.
func (p *unpadding) padded(rows *graph.Value, s graph.Fact, rest []int64, cleared bool) (*graph.Value, error) {
	var tail []int64
	for _, i := range rest {
		if n, ok := s.Dims[i].Const(); ok && n > 0 {
			tail = append(tail, n)
		}
	}
	if p.whole && len(tail) == len(rest) && p.main.Opset("") >= 14 { // from which on a length of 0 can be asked for
		target, err := p.op("Shape", p.mask)
		if err == nil && len(tail) > 0 {
			var n *graph.Node
			if n, err = p.AddNode(p.main, "", "Concat", []*graph.Value{target, p.longs(tail...)},
				[]string{p.main.FreshName("graft_rows")}, "axis", 0); err == nil {
				target = n.Out[0]
			}
		}
		if err != nil {
			return nil, err
		}
		n, err := p.AddNode(p.main, "", "Reshape", []*graph.Value{rows, target}, []string{p.main.FreshName("graft_rows")},
			"allowzero", 1)
		if err != nil {
			return nil, err
		}
		return n.Out[0], nil
	}
	if err := p.places(); err != nil {
		return nil, err
	}
	in := []*graph.Value{rows, p.rows, p.mask}
	if cleared {
		flags, err := p.clearings()
		if err != nil {
			return nil, err
		}
		in = append(in, flags)
	}
	n, err := p.AddOperator(p.main, capability.PaddedRows, in, []string{p.main.FreshName("graft_restored")})
	if err != nil {
		return nil, err
	}
	return n.Out[0], nil
}
