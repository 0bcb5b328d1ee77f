package random

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/half"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
)

// run is one run of a graph.
type run struct {
	*bench
	graph          *Graph
	feed           Feed
	options        session.Options
	plain, literal *session.Session // ONNX Runtime alone, with its optimisations and without
	patched        map[string]*session.Session
	hidden         map[string]*session.Hidden // of sessions that leave out rows of outputs

	names  []string
	opened []*ort.Value
	moved  []float64 // how far rounding moves each output; nil where nobody asked
}

// noise is how many times the distance that rounding alone moves an answer it may be away, where that is beyond the
// tolerance.
const noise = 4

// compare is an error where an answer with plugins is another. refused says that ONNX Runtime alone gives none.
func (r *run) compare(ctx context.Context) (refused bool, err error) {
	defer r.close()
	for _, o := range r.plain.Outputs() {
		r.names = append(r.names, o.Name)
	}
	want, err := r.answers(ctx, r.plain, r.feed)
	if err != nil {
		return true, nil
	}
	bare, err := r.answers(ctx, r.literal, r.feed)
	if err != nil {
		return true, nil
	}
	var failed []error
	for _, how := range slices.Sorted(maps.Keys(r.patched)) {
		got, err := r.answers(ctx, r.patched[how], r.feed)
		if err != nil {
			return false, fmt.Errorf("%s: %w", how, err)
		}
		for i, name := range r.names {
			self := comparison.CompareValues(name, want[i], bare[i], 0, 0)
			if self.Problem != "" {
				continue // optimisations change what is a number, and so does whoever follows either
			}
			others := map[string]*ort.Value{"with": want[i], "without": bare[i]}
			for from, other := range others {
				if others[from], err = r.cleared(how, name, other, got[i]); err != nil {
					return false, err
				}
			}
			for from, other := range others {
				out := comparison.CompareValues(name, other, got[i], 0, 0)
				// a product with a mask's zeros does so too
				if out.Problem != "" && (r.graph.Rows != nil || softmaxes(r.graph.Model.Graph) > 1) {
					if err := spread(other, got[i]); err != nil {
						return false, err
					}
					out = comparison.CompareValues(name, other, got[i], 0, 0)
				}
				if out.Problem != "" {
					if err := overflown(other, got[i]); err != nil {
						return false, err
					}
					out = comparison.CompareValues(name, other, got[i], 0, 0)
				}
				if out.OK {
					continue
				}
				moved := 0.0
				if out.Problem == "" {
					if moved, err = r.rounding(ctx, i, want); err != nil {
						return false, err
					}
					moved = max(moved, self.MaxAbsolute)
				}
				if out.Problem == "" && out.MaxAbsolute <= noise*moved {
					continue
				}
				failed = append(failed, fmt.Errorf(
					"%s, output %s %v: %d elements differ from ONNX Runtime %s optimisations by %g at most (rounding moves it by "+
						"%g) %s",
					how, name, out.Shape, out.Disagree, from, out.MaxAbsolute, moved, out.Problem))
			}
		}
	}
	return false, errors.Join(failed...)
}

func (r *run) close() {
	for _, v := range r.opened {
		v.Close()
	}
}

func (r *run) answers(ctx context.Context, s *session.Session, feed Feed) ([]*ort.Value, error) {
	fed := map[string]*ort.Value{}
	for name, a := range feed {
		v, err := r.library.NewTensorBytes(ort.ElementType(a.Kind), a.Shape, a.Data)
		if err != nil {
			return nil, err
		}
		fed[name] = v
		r.opened = append(r.opened, v)
	}
	list, err := s.Run(ctx, fed, r.names...)
	r.opened = append(r.opened, list...)
	return list, err
}

// softmaxes counts what may make a NaN of a row without visible keys.
func softmaxes(g *onnx.Graph) (n int) {
	for _, node := range g.Node {
		switch node.GetOpType() {
		case "Softmax", "Attention", "MultiHeadAttention":
			n++
		}
		for _, a := range node.Attribute {
			if a.G != nil {
				n += softmaxes(a.G)
			}
		}
	}
	return n
}

// spread puts what is no number in one value into another: an earlier block's NaN under a hidden key goes on through
// ONNX Runtime's matmul of probabilities, which multiplies it by zero, and not through an operator that does not look
// there.
func spread(from, to *ort.Value) error {
	return adopt(from, to, func(x, _ float64) bool { return math.IsNaN(x) })
}

// overflown puts one value's elements into another where one is infinite or no number and the other is nearly so:
// sums at the end of a type depend on their order.
func overflown(from, to *ort.Value) error {
	most := 1e30 // what is made of numbers at the end of float32
	if from.Element() == ort.Float16 {
		most = 65504 / 16
	}
	large := func(v float64) bool { return math.Abs(v) > most } // infinity is
	return adopt(from, to, func(x, y float64) bool {
		return (large(x) || large(y)) && (large(x) || math.IsNaN(x)) && (large(y) || math.IsNaN(y))
	})
}

// adopt puts one value's elements into another of floats of its kind, at places that both tell.
func adopt(from, to *ort.Value, where func(x, y float64) bool) error {
	a, err := from.Bytes()
	if err != nil {
		return err
	}
	b, err := to.Bytes()
	if err != nil || from.Element() != to.Element() || len(a) != len(b) {
		return err
	}
	kind := onnx.Tensor_DataType(from.Element())
	x, y := floats(a, kind), floats(b, kind)
	for i := range x {
		if size := len(a) / len(x); where(x[i], y[i]) {
			copy(b[i*size:][:size], a[i*size:])
		}
	}
	return nil
}

// rounding is how far an output moves where every float of inputs, of constants and of what sums give is the one
// above or below it, in the worst of some tries, or how far ONNX Runtime alone is from itself in float32, for
// float16, and in float64: what any computation in this precision must be allowed.
func (r *run) rounding(ctx context.Context, output int, want []*ort.Value) (float64, error) {
	if r.moved != nil {
		return r.moved[output], nil
	}
	r.moved = make([]float64, len(r.names))
	for _, to := range []onnx.Tensor_DataType{f32, f64} {
		if r.near || to == f32 && !usesHalves(r.graph.Model) {
			continue
		}
		if err := r.widely(ctx, want, to); err != nil {
			return 0, err
		}
	}
	for try := range uint64(4) {
		random := rand.New(rand.NewPCG(try, 0x726f756e64))
		p := proto.Clone(r.graph.Model).(*onnx.Model)
		nudgeConstants(random, p.Graph)
		b, err := proto.Marshal(p)
		if err != nil {
			return 0, err
		}
		noisy, err := jittered(b, try)
		if err != nil {
			return 0, err
		}
		s, err := session.FromBytes(r.library, noisy, r.options)
		if err != nil { // types that the graph does not show
			if s, err = session.FromBytes(r.library, b, r.options); err != nil {
				return 0, err
			}
		}
		feed := Feed{}
		for _, name := range slices.Sorted(maps.Keys(r.feed)) {
			a := r.feed[name]
			feed[name] = Array{a.Kind, a.Shape, nudged(random, a.Kind, a.Data)}
		}
		got, err := r.answers(ctx, s, feed)
		s.Close()
		if err != nil {
			return 0, err
		}
		for i, name := range r.names {
			if out := comparison.CompareValues(name, want[i], got[i], 0, 0); out.Problem == "" {
				r.moved[i] = max(r.moved[i], out.MaxAbsolute)
			}
		}
	}
	return r.moved[output], nil
}

// widely compares ONNX Runtime alone with itself in a wider type, where it has the graph's operators in that.
func (r *run) widely(ctx context.Context, want []*ort.Value, to onnx.Tensor_DataType) error {
	g, feed := widened(r.graph, r.feed, to)
	b, err := proto.Marshal(g.Model)
	if err != nil {
		return err
	}
	s, err := session.FromBytes(r.library, b, r.options)
	if err != nil {
		return nil // an operator that has not this type
	}
	defer s.Close()
	exact, err := r.answers(ctx, s, feed)
	if err != nil {
		return nil
	}
	halves := to == f32 && usesHalves(r.graph.Model)
	for i, v := range exact {
		x, err := elements(want[i])
		if err != nil {
			return err
		}
		y, err := elements(v)
		if err != nil {
			return err
		}
		for at := range x {
			d := math.Abs(x[at] - y[at])
			if want[i].Element() == ort.Float32 && halves { // a number of float16, which was rounded or not
				d = math.Abs(x[at]) / 2048
			}
			if d > r.moved[i] && d < 1e3 {
				r.moved[i] = d
			}
		}
	}
	return nil
}

// elements of a value, where it is of floats.
func elements(v *ort.Value) ([]float64, error) {
	b, err := v.Bytes()
	if err != nil {
		return nil, err
	}
	return floats(b, onnx.Tensor_DataType(v.Element())), nil
}

// nudgeConstants moves the floats of a graph's constants of more than one element, those of its branches too.
func nudgeConstants(random *rand.Rand, g *onnx.Graph) {
	move := func(t *onnx.Tensor) {
		if len(t.RawData) > 4 {
			t.RawData = nudged(random, onnx.Tensor_DataType(t.GetDataType()), t.RawData)
		}
	}
	for _, t := range g.Initializer {
		move(t)
	}
	for _, n := range g.Node {
		for _, a := range n.Attribute {
			if a.T != nil {
				move(a.T)
			}
			if a.G != nil {
				nudgeConstants(random, a.G)
			}
		}
	}
}

// nudged is floats, each of them the next above or below, but for zeros, what lies at the end of the type, and
// numbers that masks hide by, of which the next is as far as scores are from each other.
func nudged(random *rand.Rand, kind onnx.Tensor_DataType, data []byte) []byte {
	out := slices.Clone(data)
	for i := 0; i < len(out); {
		up := uint32(random.IntN(2)) * 2 // the bits of a float are in the order of its size
		switch kind {
		case f32:
			if bits := read32(out[i:]); bits<<1 != 0 && math.Abs(float64(math.Float32frombits(bits))) < 1e6 {
				append32Bits(out[i:i], bits+up-1)
			}
			i += 4
		case f16:
			if bits := read16(out[i:]); bits<<1 != 0 && math.Abs(half.ToFloat(bits)) < 1e3 {
				append16(out[i:i], bits+uint16(up)-1)
			}
			i += 2
		default:
			return out
		}
	}
	return out
}
