package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// table is what stands for a value that depends on lengths alone.
type table struct {
	value *graph.Value
	kind  tableKind
}

type tableKind int

const (
	constantTable tableKind = iota // the same at all lengths
	rowsTable                      // a line for each row
	numberTable                    // a number for each row, which other ranks than its own are to be broadcast to
)

// tabulable reports a value that is not tabulated for its type.
func (s *builder) tabulable(v *graph.Value) error {
	switch dtype := s.Shapes.Of(v).DType; dtype {
	case onnx.Tensor_FLOAT, onnx.Tensor_INT64, onnx.Tensor_INT32, onnx.Tensor_BOOL:
		return nil
	default:
		return fmt.Errorf("it is of type %v; only float32, int64, int32 and bool values are tabulated", dtype)
	}
}

// isNumber reports a value of one element.
func (s *builder) isNumber(v *graph.Value) bool { return s.Shapes.Of(v).Count().Is(1) }

// isLine reports a value of several numbers, as many after each past, in a decoder of one token at a time.
func (s *builder) isLine(v *graph.Value) bool {
	return s.Single() && !s.isNumber(v) && !slices.ContainsFunc(s.Shapes.Of(v).Dims, func(d graph.Dim) bool {
		_, constant := d.Const()
		return !constant && !d.Equal(s.Shapes.Of(s.tokens).Dim(0))
	})
}

// pasts are the lengths at which a number that the past's length decides is looked at.
func (s *builder) pasts() (list []Lengths) {
	longest := s.Positions
	for _, p := range []int64{0, 1, 2, longest / 3, longest / 2, longest - 1} {
		list = append(list, Lengths{Past: p, New: 1, Encoder: 1})
	}
	return list
}

// tabulate makes what a value that depends on lengths alone is for each row: a look-up by
// position, a constant where it is the same at all of them, or a number that grows with the
// past. rank is that of the values it meets.
func (s *builder) tabulate(v *graph.Value, rank int) (*table, error) {
	atWhole, atFew, atLater := s.lengthsOf()
	longest, later := atWhole.New, atLater.Past
	if err := s.tabulable(v); err != nil {
		return nil, err
	}
	var answers [3]*Evaluated
	for i, at := range []Lengths{atWhole, atFew, atLater} {
		values, err := s.Answers.of(Question{[]string{v.Name}, at})
		if err != nil {
			return nil, err
		}
		answers[i] = &values[0]
	}
	whole, part, one := answers[0], answers[1], answers[2]
	if s.isLine(v) {
		return s.ofPasts(v, rank)
	}
	axis, err := grown(whole.Shape, part.Shape, longest, atFew.New)
	if err != nil {
		return nil, err
	}
	if axis < 0 {
		switch {
		case !slices.Equal(whole.Data, part.Data):
			return nil, errors.New("it changes with the length of the whole sequence, which a row of its own cannot follow")
		case slices.Equal(whole.Data, one.Data):
			c, err := s.constant(v, "graft_constant", whole.Shape, whole.Data)
			return &table{c, constantTable}, err
		case s.isNumber(v):
			n, err := s.grows(v, rank)
			return &table{n, numberTable}, err
		}
		return nil, errors.New("it changes with the length of the past, which a row of its own cannot follow")
	}
	dims := slices.Clone(whole.Shape)
	joined := axis == 0 && len(dims) == rank // batch and positions in one axis
	for len(dims) < rank {
		dims, axis = slices.Insert(dims, 0, 1), axis+1
	}
	if !joined && (axis == 0 || dims[0] != 1) {
		return nil, fmt.Errorf("its shape %v has no axis for a batch before that of positions", whole.Shape)
	}
	// Everything before the axis of positions must be 1 for its lines to be rows.
	line := int64(1)
	for i, d := range dims {
		if i < axis && d != 1 {
			return nil, fmt.Errorf("its shape %v has other axes before that of positions", whole.Shape)
		}
		if i > axis {
			line *= d
		}
	}
	data, after, number := whole.Data, whole.Data, s.positionRows
	if s.engine.Prefix {
		if after, err = s.afterPrompt(v, whole, line); err != nil {
			return nil, err
		}
		if !slices.Equal(whole.Data[line:(longest-1)*line], after[line:(longest-1)*line]) {
			data, number = slices.Concat(whole.Data, after), s.lineRows
		}
	}
	same := line
	if !s.takesPast() { // nothing comes after a past: a longer sequence begins as a shorter one
		one, later, same = part, 0, int64(len(part.Data))
	}
	if !slices.Equal(after[later*line:later*line+same], one.Data[:same]) {
		return nil, fmt.Errorf("position %d after a past is not position %d of a sequence without one", later, later)
	}
	if !joined {
		dims[axis] = 1
	}
	dims[0] = int64(len(data)) / line
	return s.lines(v, dims, data, number)
}

// ofPasts is a table of what a value is after each past, in a decoder of one token at a time.
func (s *builder) ofPasts(v *graph.Value, rank int) (*table, error) {
	var first *Evaluated
	var data []float32
	same := true
	for past := range s.Positions {
		values, err := s.Answers.of(Question{[]string{v.Name}, Lengths{Past: past, New: 1, Encoder: 1}})
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = &values[0]
		}
		if !slices.Equal(values[0].Shape, first.Shape) {
			return nil, fmt.Errorf("its shape is %v after a past of %d tokens and %v after none", values[0].Shape, past,
				first.Shape)
		}
		same = same && slices.Equal(values[0].Data, first.Data)
		data = append(data, values[0].Data...)
	}
	if same {
		c, err := s.constant(v, "graft_constant", first.Shape, first.Data)
		return &table{c, constantTable}, err
	}
	dims := slices.Clone(first.Shape)
	for len(dims) < rank {
		dims = slices.Insert(dims, 0, 1)
	}
	if dims[0] != 1 {
		return nil, fmt.Errorf("its shape %v has no axis for a batch before that of positions", first.Shape)
	}
	dims[0] = s.Positions
	return s.lines(v, dims, data, s.positionRows)
}

// lines is a table of data with a line for each index of its first axis, which number gives for each row.
func (s *builder) lines(v *graph.Value, dims []int64, data []float32, number func() (*graph.Value, error)) (*table,
	error) {
	lines, err := s.constant(v, "graft_positions", dims, data)
	if err != nil {
		return nil, err
	}
	rows, err := number()
	if err != nil {
		return nil, err
	}
	n, err := s.AddNode(s.Graph, "", "Gather", []*graph.Value{lines, rows}, []string{s.Graph.FreshName("graft_position")},
		"axis", 0)
	if err != nil {
		return nil, err
	}
	return &table{n.Out[0], rowsTable}, nil
}

// exact bounds the integers that Evaluated holds exactly.
const exact = 1 << 24

// constant holds data in the type of v.
func (s *builder) constant(v *graph.Value, name string, dims []int64, data []float32) (*graph.Value, error) {
	dtype := s.Shapes.Of(v).DType
	if dtype == onnx.Tensor_FLOAT {
		return s.Graph.AddInitializer(graph.FloatTensor(name, dims, data...)), nil
	}
	list := make([]int64, len(data))
	for i, x := range data {
		if x >= exact || x <= -exact {
			return nil, fmt.Errorf("it holds %g; integers are tabulated below %d", x, exact)
		}
		list[i] = int64(x)
	}
	return s.cast(s.Graph.AddInitializer(graph.Int64Tensor(name, dims, list...)), dtype)
}

// cast turns int64 values into another type.
func (s *builder) cast(v *graph.Value, dtype onnx.Tensor_DataType) (*graph.Value, error) {
	if dtype == onnx.Tensor_INT64 {
		return v, nil
	}
	n, err := s.AddNode(s.Graph, "", "Cast", []*graph.Value{v}, []string{s.Graph.FreshName("graft_cast")}, "to",
		int64(dtype))
	if err != nil {
		return nil, err
	}
	return n.Out[0], nil
}

// grows makes a number that is first + step * position for each row: what it is after a
// past of that many tokens.
func (s *builder) grows(v *graph.Value, rank int) (*graph.Value, error) {
	var first, step float32
	for i, at := range s.pasts() {
		values, err := s.Answers.of(Question{[]string{v.Name}, at})
		if err != nil {
			return nil, err
		}
		x := values[0].Data[0]
		switch i {
		case 0:
			first = x
		case 1:
			step = x - first
		}
		if y := first + step*float32(at.Past); x != y || x >= exact || x <= -exact || x != float32(int64(x)) {
			return nil, fmt.Errorf("it is %g after a past of %d tokens, which does not follow from %g after none and %g "+
				"after one", x, at.Past, first, first+step)
		}
	}
	rows, err := s.positionRows()
	if err != nil {
		return nil, err
	}
	shape := slices.Repeat([]int64{1}, max(rank, 1))
	shape[0] = -1
	to := s.Graph.AddInitializer(graph.Int64Tensor("", []int64{int64(len(shape))}, shape...))
	for _, by := range []struct {
		op string
		in *graph.Value
	}{{"Mul", s.Graph.AddInitializer(graph.Int64Tensor("", nil, int64(step)))},
		{"Add", s.Graph.AddInitializer(graph.Int64Tensor("", nil, int64(first)))}, {"Reshape", to}} {
		n, err := s.AddNode(s.Graph, "", by.op, []*graph.Value{rows, by.in}, []string{s.Graph.FreshName("graft_number")})
		if err != nil {
			return nil, err
		}
		rows = n.Out[0]
	}
	return s.cast(rows, s.Shapes.Of(v).DType)
}

// broadcasts reports a node that repeats an axis of one of its inputs as those of others need it.
func broadcasts(n *graph.Node) bool {
	return n.Is("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Min", "Max", "Where", "And", "Or", "Xor", "BitwiseAnd",
		"BitwiseOr",
		"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "MatMul", "PRelu")
}

// lookUp puts a table in place. What was made for one batch must be so for all rows: it is
// broadcast, or, where elements are gathered from it, all rows gather from the one.
func (s *builder) lookUp(t tabled, with *table) error {
	n, v := t.node, t.value()
	switch {
	case with.kind == numberTable && !broadcasts(n):
		return errors.New("it changes with the length of the past, and is not added to rows or the like")
	case with.kind == constantTable && !broadcasts(n) && s.ofBatch(v):
		if n.Is("GatherElements") && t.index == 0 {
			return s.gatherFromOne(n, with.value)
		}
		return errors.New("it is made for each row of a batch, and is not added to rows or the like")
	}
	n.SetInput(t.index, with.value)
	return nil
}

// ofBatch reports a value whose first axis is as long as a batch.
func (s *builder) ofBatch(v *graph.Value) bool {
	batch, dims := s.Shapes.Of(s.tokens).Dim(0), s.Shapes.Of(v).Dims
	return len(dims) > 0 && slices.ContainsFunc(dims[0].Symbols(),
		func(name string) bool { return slices.Contains(batch.Symbols(), name) })
}

// gatherFromOne lets GatherElements along axis 1 read (1, N, ...) with the indices of all rows,
// (T, S, ...), as one of (1, T*S, ...).
func (s *builder) gatherFromOne(n *graph.Node, data *graph.Value) error {
	indices, out := n.In[1], n.Out[0]
	rest := s.Shapes.Of(indices).Dims
	if axis := n.Int("axis", 0); axis != 1 || len(rest) < 2 {
		return fmt.Errorf("elements are gathered from it along axis %d of %d", axis, len(rest))
	}
	flat := []int64{1, -1}
	for _, d := range rest[2:] {
		size, ok := d.Const()
		if !ok {
			return errors.New("elements are gathered from it by indices of unknown size")
		}
		flat = append(flat, size)
	}
	of := func(op string, in []*graph.Value, attributes ...any) (*graph.Value, error) {
		made, err := s.AddNode(s.Graph, "", op, in, []string{s.Graph.FreshName("graft_gathered")}, attributes...)
		if err != nil {
			return nil, err
		}
		return made.Out[0], nil
	}
	to := s.Graph.AddInitializer(graph.Int64Tensor("", []int64{int64(len(flat))}, flat...))
	all, err := of("Reshape", []*graph.Value{indices, to})
	if err != nil {
		return err
	}
	gathered, err := of("GatherElements", []*graph.Value{data, all}, "axis", int64(1))
	if err != nil {
		return err
	}
	back := slices.Clone(flat)
	back[0], back[1] = -1, 1 // rows have one token each
	to = s.Graph.AddInitializer(graph.Int64Tensor("", []int64{int64(len(back))}, back...))
	if gathered, err = of("Reshape", []*graph.Value{gathered, to}); err != nil {
		return err
	}
	s.Graph.Replace(out, gathered)
	return nil
}

// grown is the axis that grew with the number of tokens, -1 when none did.
func grown(whole, part []int64, longest, few int64) (int, error) {
	if len(whole) != len(part) {
		return 0, fmt.Errorf("its rank changes with lengths")
	}
	axis := -1
	for i := range whole {
		if whole[i] == part[i] {
			continue
		}
		if axis >= 0 || whole[i] != longest || part[i] != few {
			return 0, fmt.Errorf("its shape is %v for %d tokens and %v for %d", whole, longest, part, few)
		}
		axis = i
	}
	return axis, nil
}
