package roles

import (
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
)

// lengths decides what the axes of the inputs count, and by them what symbols do.
// Tokens say more than masks, which some exporters give the lengths of other inputs.
func (r *Roles) lengths(g *graph.Graph) {
	order := []Input{Tokens, Past, EncoderPast, EncoderOutput, Positions, Types, Mask, Image, State, KeyLengths,
		UseCacheBranch, Other}
	for _, is := range order {
		for _, v := range g.Inputs {
			g.Spend(1)
			if r.inputs[v] != is {
				continue
			}
			if r.axes[v] == nil {
				r.axes[v] = r.axesOf(v, is)
			}
			r.HasPast = r.HasPast || slices.ContainsFunc(r.axes[v], func(a Axis) bool { return a.Length == Cached })
			for i, d := range r.shapes.Of(v).Dims {
				if list := d.Symbols(); i < len(r.axes[v]) && len(list) == 1 && d.Equal(graph.DimSym(list[0])) &&
					r.symbols[list[0]] == Unknown {
					r.symbols[list[0]] = r.axes[v][i].Length
				}
			}
		}
	}
}

// axesOf are the axes of an input whose layout no block states.
func (r *Roles) axesOf(v *graph.Value, is Input) []Axis {
	f := r.shapes.Of(v)
	if f.Rank < 0 {
		return nil
	}
	axes := make([]Axis, f.Rank)
	var open []int // axes that may have any length
	for i, d := range f.Dims {
		if _, ok := d.Const(); !ok {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return axes
	}
	first, last := open[0], open[len(open)-1]
	at := func(axis int, l Length) { axes[axis].Length = l }
	switch is {
	case Tokens, Positions, Types:
		at(last, New)
		if first != last || f.Rank > 1 && first == 0 {
			at(first, Batch)
		}
	case EncoderOutput:
		at(last, Encoder)
		at(0, Batch)
	case Past, EncoderPast:
		at(last, Cached)
		if is == EncoderPast {
			at(last, Encoder)
		}
		at(first, Batch)
	case Mask:
		at(last, r.masked(v, last))
		if f.Rank > 2 && slices.Contains(open, f.Rank-2) {
			at(f.Rank-2, New)
		}
		at(first, Batch)
	case KeyLengths, State:
		at(first, Batch)
	case Image:
		at(0, Batch)
		c := convolved(v, 4, r.convolved)
		if c == nil || c.Input(1) == nil {
			break
		}
		// Weights may be made larger from fewer bits first: their shape says it.
		if w := r.shapes.Of(c.Input(1)); f.Rank > 1 && w.Rank == f.Rank {
			if n, ok := w.Dims[1].Const(); ok {
				axes[1].Fixed = n * c.Int("group", 1)
			}
			if f.Rank == 4 {
				axes[2].Fixed, axes[3].Fixed = imageSize, imageSize
			}
		}
	default:
		for i, d := range v.Claims() {
			at(i, Named(d.String()))
		}
		for i, d := range f.Dims {
			if symbols := d.Symbols(); axes[i].Length == Unknown && len(symbols) == 1 {
				at(i, r.symbols[symbols[0]])
			}
		}
	}
	return axes
}

// imageSize is the height and width of images that most vision models take.
const imageSize = 224

// masked is what the keys of a mask are that no recognised block reads: what its axis or
// the input is called decides.
func (r *Roles) masked(v *graph.Value, axis int) Length {
	if claims := v.Claims(); axis < len(claims) {
		if l := Named(claims[axis].String()); l == Encoder || l == All {
			return l
		}
	}
	switch {
	case Named(v.Name) == Encoder && (r.HasInput(EncoderOutput) || r.HasInput(EncoderPast)):
		return Encoder
	case r.HasPast:
		return All
	}
	return New
}
