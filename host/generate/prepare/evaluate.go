package prepare

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/rewrite/engine"
	"github.com/opgraft/graft/host/session/patch"
)

// evaluator computes values of a model as exported, at lengths that are asked for: what
// its masks hide and what it makes of positions. Sessions are of the parts that make
// the values, never of the whole model.
type evaluator struct {
	library *ort.Library
	model   *model.Model
	proto   *onnx.Model // as exported: a copy, but for the weights
	values  map[string]*graph.Value
	shapes  *graph.Shapes
	roles   *roles.Roles
	// symbols are the lengths that the model's inputs name, each with an axis that has
	// it.
	symbols map[string]inputAxis
	// lists are shapes that parts take as inputs instead of computing what has them.
	lists map[string][]graph.Dim
	// The last part that was evaluated, and the names of its values.
	names string
	last  *session.Session
}

type inputAxis struct {
	input string
	axis  int
	dim   graph.Dim
}

// newEvaluator takes a graph before it is rewritten.
func newEvaluator(l *ort.Library, x *patch.Analysis) *evaluator {
	e := &evaluator{library: l, model: x.Model, proto: proto.Clone(x.Graph.Model()).(*onnx.Model),
		values: map[string]*graph.Value{}, shapes: x.Shapes,
		roles: roles.Find(x.Graph, x.Shapes, x.Report), symbols: map[string]inputAxis{}, lists: map[string][]graph.Dim{}}
	note := func(list []*graph.Value) {
		for _, v := range list {
			if v != nil && v.Graph == x.Graph {
				e.values[v.Name] = v
			}
		}
	}
	note(x.Graph.Inputs)
	for _, n := range x.Graph.Nodes {
		note(n.In)
		note(n.Out)
	}
	for _, v := range x.Graph.Inputs {
		for i, d := range e.shapes.Of(v).Dims {
			if list := d.Symbols(); len(list) == 1 {
				if n, ok := d.Eval(map[string]int64{list[0]: 7}); ok && n == 7 {
					e.symbols[list[0]] = inputAxis{v.Name, i, d}
				}
			}
		}
	}
	return e
}

// answer evaluates what was asked and is not answered yet: all that is asked at the same
// lengths in one run, and one by one where that fails.
func (e *evaluator) answer(asked []engine.Question, to engine.Answers) {
	for i, q := range asked {
		if to.Has(q) {
			continue
		}
		together := engine.Question{At: q.At}
		var parts []engine.Question
		for _, other := range asked[i:] {
			if other.At == q.At && !to.Has(other) {
				parts = append(parts, other)
				for _, name := range other.Names {
					if !slices.Contains(together.Names, name) {
						together.Names = append(together.Names, name)
					}
				}
			}
		}
		all, err := e.evaluate(together.Names, q.At)
		for _, part := range parts {
			if err != nil {
				values, err := e.evaluate(part.Names, part.At)
				to.Add(part, values, err)
				continue
			}
			var values []engine.Evaluated
			for _, name := range part.Names {
				values = append(values, all[slices.Index(together.Names, name)])
			}
			to.Add(part, values, nil)
		}
	}
}

// shape is the input that stands for a node Shape. A mask takes the length of keys
// from the keys themselves, which every layer before them computes.
func (e *evaluator) shape(n *onnx.Node) *onnx.ValueInfo {
	if n.GetOpType() != "Shape" || len(n.Attribute) > 0 {
		return nil
	}
	x := e.values[n.Input[0]]
	if x == nil || e.shapes.Of(x).Rank < 1 {
		return nil
	}
	dims := e.shapes.Of(x).Dims
	for _, d := range dims {
		if !d.Known() || slices.ContainsFunc(d.Symbols(), func(s string) bool { return e.symbols[s].input == "" }) {
			return nil
		}
	}
	e.lists[n.Output[0]] = dims
	return &onnx.ValueInfo{Name: proto.String(n.Output[0]), Type: graph.TensorType(onnx.Tensor_INT64, len(dims))}
}

// list is what an input that shape made holds at some lengths.
func (e *evaluator) list(dims []graph.Dim, at engine.Lengths) (list []int64, err error) {
	values := map[string]int64{}
	for _, d := range dims {
		for _, s := range d.Symbols() {
			a := e.symbols[s]
			if values[s], err = e.length(a.input, a.axis, a.dim, at); err != nil {
				return nil, err
			}
		}
		n, ok := d.Eval(values)
		if !ok {
			return nil, fmt.Errorf("the length %s is not understood", d)
		}
		list = append(list, n)
	}
	return list, nil
}

// close frees the session of the last part.
func (e *evaluator) close() {
	if e != nil && e.last != nil {
		e.last.Close()
		e.last = nil
	}
}

// evaluate computes values at some lengths.
func (e *evaluator) evaluate(names []string, at engine.Lengths) ([]engine.Evaluated, error) {
	s, err := e.part(names)
	if err != nil {
		return nil, err
	}
	inputs, err := e.inputs(s, at)
	defer func() {
		for _, v := range inputs {
			v.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	results, err := s.Run(context.Background(), inputs, names...)
	if err != nil {
		return nil, err
	}
	list := make([]engine.Evaluated, len(results))
	for i, v := range results {
		defer v.Close()
		if list[i], err = numbers(v); err != nil {
			return nil, fmt.Errorf("%s: %w", names[i], err)
		}
	}
	return list, nil
}

// part is a session of what makes the values.
func (e *evaluator) part(names []string) (*session.Session, error) {
	key := strings.Join(names, "\x00")
	if e.last != nil && e.names == key {
		return e.last, nil
	}
	e.close()
	var outputs []*onnx.ValueInfo
	for _, name := range names {
		v := e.values[name]
		if v == nil {
			return nil, fmt.Errorf("the model makes no value %s", name)
		}
		kind := e.shapes.Of(v).DType
		outputs = append(outputs, &onnx.ValueInfo{Name: proto.String(name), Type: &onnx.Type{Value: &onnx.Type_TensorType_{
			TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(int32(kind))}}}})
	}
	p, err := extract(e.proto, outputs, e.shape)
	if err != nil {
		return nil, err
	}
	// Weights are read where they lie: what is computed from them is not asked for often.
	o := session.Options{Unpatched: true, IntraOpThreads: 1,
		Config: map[string]string{"session.disable_prepacking": "1"}}
	if e.last, err = newSession(context.Background(), e.library, e.model, p, o, false, shared.Never); err != nil {
		return nil, err
	}
	e.names = key
	return e.last, nil
}

// inputs are one row of zeros for tokens and pasts, ones for masks, positions
// that follow the past.
func (e *evaluator) inputs(s *session.Session, at engine.Lengths) (map[string]*ort.Value, error) {
	values := map[string]*ort.Value{}
	for _, in := range s.Inputs() {
		if dims := e.lists[in.Name]; dims != nil {
			list, err := e.list(dims, at)
			if err != nil {
				return values, err
			}
			if values[in.Name], err = ort.NewTensor(e.library, []int64{int64(len(list))}, list); err != nil {
				return values, err
			}
			continue
		}
		v := e.values[in.Name]
		shape := make([]int64, 0, len(in.Shape))
		for i, d := range e.shapes.Of(v).Dims {
			n, err := e.length(in.Name, i, d, at)
			if err != nil {
				return values, err
			}
			shape = append(shape, n)
		}
		count := int64(1)
		for _, n := range shape {
			count *= n
		}
		data := make([]byte, in.Element.Bytes(count))
		if in.Element == ort.Int64 {
			list := make([]int64, count)
			for i := range list {
				switch {
				case e.roles.Of(v) == roles.Mask:
					list[i] = 1
				case e.roles.Of(v) == roles.Positions:
					list[i] = at.Past + int64(i)
				}
			}
			x, err := ort.NewTensor(e.library, shape, list)
			if err != nil {
				return values, err
			}
			values[in.Name] = x
			continue
		}
		if in.Element == ort.Bool || in.Element == ort.Int32 && e.roles.Of(v) == roles.Mask {
			for i := range data {
				if i%int(in.Element.Bits()/8) == 0 {
					data[i] = 1
				}
			}
		}
		x, err := e.library.NewTensorBytes(in.Element, shape, data)
		if err != nil {
			return values, err
		}
		values[in.Name] = x
	}
	return values, nil
}

// lengthOf is the number of what an axis counts; ok is false where that is not known.
func lengthOf(l roles.Length, at engine.Lengths) (n int64, ok bool) {
	switch l {
	case roles.Batch:
		return 1, true
	case roles.New:
		return at.New, true
	case roles.Cached:
		return at.Past, true
	case roles.All:
		return at.Past + at.New, true
	case roles.Encoder:
		return at.Encoder, true
	}
	return at.New, false
}

// usual is what lengths of an input count where nothing else says so; of others it is new tokens.
var usual = map[roles.Input]roles.Length{roles.Past: roles.Cached, roles.EncoderPast: roles.Encoder,
	roles.EncoderOutput: roles.Encoder, roles.Mask: roles.All}

// length is the number that an axis of an input has at some lengths.
func (e *evaluator) length(input string, axis int, d graph.Dim, at engine.Lengths) (int64, error) {
	if n, ok := d.Const(); ok {
		return n, nil
	}
	v := e.values[input]
	if n, ok := lengthOf(e.roles.Axis(v, axis).Length, at); ok {
		return n, nil
	}
	if axis == 0 {
		return 1, nil
	}
	symbols := map[string]int64{}
	for _, s := range d.Symbols() {
		var ok bool
		if symbols[s], ok = lengthOf(e.roles.Symbol(s), at); !ok {
			symbols[s], _ = lengthOf(usual[e.roles.Of(v)], at)
		}
	}
	n, ok := d.Eval(symbols)
	if !ok {
		return 0, fmt.Errorf("axis %d of input %s, %s, is not understood", axis, input, d)
	}
	return n, nil
}

// numbers reads a tensor of floats, integers or booleans.
func numbers(v *ort.Value) (engine.Evaluated, error) {
	e := engine.Evaluated{Shape: v.Shape()}
	switch v.Element() {
	case ort.Float32:
		data, err := ort.Data[float32](v)
		e.Data = slices.Clone(data)
		return e, err
	case ort.Int64:
		data, err := ort.Data[int64](v)
		for _, x := range data {
			e.Data = append(e.Data, float32(x))
		}
		return e, err
	case ort.Int32:
		data, err := ort.Data[int32](v)
		for _, x := range data {
			e.Data = append(e.Data, float32(x))
		}
		return e, err
	case ort.Bool:
		data, err := ort.Data[bool](v)
		for _, x := range data {
			y := float32(0)
			if x {
				y = 1
			}
			e.Data = append(e.Data, y)
		}
		return e, err
	}
	return e, fmt.Errorf("it is of type %s, needed is float32, int64, int32 or bool", v.Element())
}
