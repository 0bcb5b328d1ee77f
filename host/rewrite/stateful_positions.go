package rewrite

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model/onnx"
)

// tabled is an input of a node that is to be looked up by each row's own position.
type tabled struct {
	node  *graph.Node
	index int
}

func (t tabled) value() *graph.Value { return t.node.In[t.index] }

// tables finds what each row has to look up by its own position. A model that takes
// positions as an input is fed them; one that derives them from the length of its past,
// or of a mask, is cut where a value that depends on lengths alone meets one that
// depends on tokens. A learned table, sinusoids and rotary angles are all the same to
// that.
func (s *stateful) tables() (list []tabled, err error) {
	s.main.Prune()
	for _, v := range s.main.Inputs {
		if v.Name != "position_ids" {
			continue
		}
		positions, err := s.positions()
		if err != nil {
			return nil, err
		}
		for _, u := range slices.Clone(v.Uses) {
			u.Node.SetInput(u.Index, positions)
		}
		break
	}
	if err := s.main.Sort(); err != nil {
		return nil, err
	}
	kinds := s.dependencies()
	for _, n := range s.main.Nodes {
		if kinds.of(n) != onTokens || n.Is("Shape", "Size") {
			continue
		}
		for i, v := range n.In {
			if v != nil && kinds[v] == onLengths && !s.isLength(n, i) {
				list = append(list, tabled{n, i})
			}
		}
	}
	return list, nil
}

// lengthsOf are the lengths that a value is evaluated at to be tabulated: of a whole
// sequence, of a few tokens, and of one token after others.
func (s *stateful) lengthsOf() (whole, few, later Lengths) {
	longest := s.Positions
	return Lengths{Past: 0, New: longest, Encoder: 1}, Lengths{Past: 0, New: min(7, longest), Encoder: 1}, Lengths{Past: longest / 2, New: 1, Encoder: 1}
}

// Questions are what Finish needs answers to, of the model as exported.
func (a *Attended) Questions() []Question {
	var list questions
	for _, t := range a.needed {
		if v := t.value(); a.s.float(v) == nil {
			whole, few, later := a.s.lengthsOf()
			for _, at := range []Lengths{whole, few, later} {
				list.add(Question{[]string{v.Name}, at})
			}
		}
	}
	return list
}

// rowPositions gives each row its own position: where one is needed stands a table over
// positions, evaluated once from the model as exported, in which every row looks up its
// own line.
func (s *stateful) rowPositions(needed []tabled) error {
	tables := map[*graph.Value]*graph.Value{}
	for _, t := range needed {
		n, v := t.node, t.value()
		rank := s.shapes.Of(n.Out[0]).Rank
		if tables[v] == nil {
			table, err := s.tabulate(v, rank)
			if err != nil {
				return fmt.Errorf("%s reads %s, which depends on lengths: %w", describe(n), v.Name, err)
			}
			tables[v] = table
		}
		n.SetInput(t.index, tables[v])
	}
	s.main.Prune()
	return nil
}

func (s *stateful) positions() (*graph.Value, error) {
	s.engine.Positions = true
	return s.input(PositionsInput, onnx.Tensor_INT64, rowsSymbol, 1)
}

// dependency says what a value's content depends on.
type dependency int

const (
	onNothing dependency = iota // constants
	onLengths                   // shapes, masks and other inputs that are the same whatever the tokens are
	onTokens
)

type dependencies map[*graph.Value]dependency

// of is what a node's outputs depend on.
func (d dependencies) of(n *graph.Node) dependency {
	kind := onNothing
	for _, v := range n.In {
		kind = max(kind, d[v])
	}
	for _, g := range n.Subgraphs {
		for _, inner := range g.Nodes {
			kind = max(kind, d.of(inner))
		}
	}
	return kind
}

// dependencies sorts the values of the graph, which must be in order.
func (s *stateful) dependencies() dependencies {
	d := dependencies{}
	for _, v := range s.main.Inputs {
		switch {
		case v == s.tokens, s.inputs[v.Name] != nil:
			d[v] = onTokens
		case v.Tensor == nil:
			d[v] = onLengths
		}
	}
	for _, n := range s.main.Nodes {
		kind := d.of(n)
		if n.Is("Shape", "Size") && kind == onTokens {
			kind = onLengths
		}
		for _, v := range n.Out {
			if v != nil {
				d[v] = kind
			}
		}
	}
	return d
}

// isLength reports an input of a node that says how to arrange elements, not
// what they are.
func (s *stateful) isLength(n *graph.Node, i int) bool {
	switch n.Op() {
	case "Reshape", "Expand", "Tile", "Unsqueeze", "Squeeze", "Split", "Slice":
		return i > 0
	}
	return false
}

// tabulate puts a look-up by position in place of a value that depends on
// lengths alone, or a constant where it is the same at all of them. rank is that
// of the values it meets.
func (s *stateful) tabulate(v *graph.Value, rank int) (*graph.Value, error) {
	atWhole, atFew, atLater := s.lengthsOf()
	longest, later := atWhole.New, atLater.Past
	if err := s.float(v); err != nil {
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
	axis, err := grown(whole.Shape, part.Shape, longest, atFew.New)
	if err != nil {
		return nil, err
	}
	if axis < 0 {
		if !slices.Equal(whole.Data, part.Data) || !slices.Equal(whole.Data, one.Data) {
			return nil, fmt.Errorf("it changes with the length of the whole sequence, which a row of its own cannot follow")
		}
		return s.main.AddInitializer(graph.FloatTensor("graft_constant", whole.Shape, whole.Data...)), nil
	}
	dims := slices.Clone(whole.Shape)
	for len(dims) < rank {
		dims, axis = slices.Insert(dims, 0, 1), axis+1
	}
	if axis == 0 || dims[0] != 1 {
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
	for i := range line {
		if whole.Data[later*line+i] != one.Data[i] {
			return nil, fmt.Errorf("position %d after a past is not position %d of a sequence without one", later, later)
		}
	}
	dims[0], dims[axis] = longest, 1
	table := s.main.AddInitializer(graph.FloatTensor("graft_positions", dims, whole.Data...))
	rows, err := s.positionRows()
	if err != nil {
		return nil, err
	}
	n, err := s.node(s.main, "", "Gather", []*graph.Value{table, rows}, []string{s.main.FreshName("graft_position")}, "axis", 0)
	if err != nil {
		return nil, err
	}
	return n.Out[0], nil
}

// float reports a value that is not tabulated for its type.
func (s *stateful) float(v *graph.Value) error {
	if dtype := s.shapes.Of(v).DType; dtype != onnx.Tensor_FLOAT {
		return fmt.Errorf("it is of type %v; only float32 values are tabulated", dtype)
	}
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

// positionRows is the input of positions as a list.
func (s *stateful) positionRows() (*graph.Value, error) {
	const name = "graft_position_rows"
	if v := s.main.Lookup(name); v != nil {
		return v, nil
	}
	positions, err := s.positions()
	if err != nil {
		return nil, err
	}
	flat := s.main.AddInitializer(graph.Int64Tensor("", []int64{1}, -1))
	n, err := s.node(s.main, "", "Reshape", []*graph.Value{positions, flat}, []string{name})
	if err != nil {
		return nil, err
	}
	return n.Out[0], nil
}
