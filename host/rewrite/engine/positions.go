package engine

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/padding"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
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
func (s *builder) tables() (list []tabled, err error) {
	s.Graph.Prune()
	for _, v := range s.numbers {
		positions, err := s.positions()
		if err != nil {
			return nil, err
		}
		for _, u := range slices.Clone(v.Uses) {
			u.Node.SetInput(u.Index, positions)
		}
	}
	if err := s.Graph.Sort(); err != nil {
		return nil, err
	}
	kinds, counted := s.dependencies(), s.counted()
	for _, n := range slices.Clone(s.Graph.Nodes) {
		if kinds.of(n) != onTokens || n.Is("Shape", "Size") {
			continue
		}
		if why := s.mixes(n); why != "" {
			return nil, fmt.Errorf("%s %s, where an engine runs each token as a row of its own", describe(n), why)
		}
		for i, v := range n.In {
			if i == 1 && s.numbersRows(n) {
				rows, err := rowNumbers(s.Editor, s.Graph, n.In[2])
				if err != nil {
					return nil, err
				}
				n.SetInput(i, rows)
			} else if v != nil && kinds[v] == onLengths && (!s.isLength(n, i) || counted[v] && n.Is("Slice")) &&
				s.ofRows(v, map[*graph.Value]lengthsIn{}) != rowsIn {
				list = append(list, tabled{n, i})
			}
		}
	}
	return list, nil
}

// lengthsIn says which lengths a value depends on.
type lengthsIn int

const (
	noneIn   lengthsIn = iota
	rowsIn             // how many tokens there are, which are the rows of a step: as many as experts are to take, say
	othersIn           // of the past, or of a sequence
)

// ofRows says which lengths a value depends on, as far as shapes tell.
func (s *builder) ofRows(v *graph.Value, seen map[*graph.Value]lengthsIn) (in lengthsIn) {
	tokens := s.Shapes.Of(s.tokens)
	_, one := tokens.Dim(0).Const()
	switch before, ok := seen[v]; {
	case v == nil || v.Tensor != nil:
		return noneIn
	case one || v.IsInput: // of a batch of one, the number of tokens is the length of a sequence
		return othersIn
	case ok:
		return before
	}
	s.Graph.Spend(1)
	defer func() { seen[v] = in }()
	of := func(d graph.Dim) lengthsIn {
		if _, constant := d.Const(); constant {
			return noneIn
		}
		for _, rows := range []graph.Dim{tokens.Dim(0), tokens.Count()} {
			if q, ok := d.Div(rows); ok {
				if _, constant := q.Const(); constant {
					return rowsIn
				}
			}
		}
		return othersIn
	}
	if elements := s.Shapes.Of(v).Elems; len(elements) > 0 {
		for _, d := range elements {
			in = max(in, of(d))
		}
		if in != othersIn {
			return in
		}
	}
	n := v.Producer
	if n.Is("Shape", "Size") || len(n.Subgraphs) > 0 {
		return othersIn
	}
	in = noneIn
	for _, from := range n.In {
		in = max(in, s.ofRows(from, seen))
	}
	return in
}

// mixes says how a node computes with several tokens of a sequence, "" where it does not or
// the model's own past says what a single token is to see.
func (s *builder) mixes(n *graph.Node) string {
	if why := padding.Neighbours(n); why != "" && !s.afterState(n) {
		return why
	}
	if n.Is("CumSum") && !s.takesPast() {
		if _, constant := s.Shapes.Of(n.In[0]).Count().Const(); !constant { // or as long for any tokens: of experts, say
			return "counts over tokens, in a model that takes no past"
		}
	}
	return ""
}

// takesPast reports a decoder whose self attention reads a past.
func (s *builder) takesPast() bool {
	return slices.ContainsFunc(s.Report.Blocks,
		func(b *blocks.Block) bool { return b.Wiring.PastKey != nil && b.Attention.Type != "cross" })
}

// lengthsOf are the lengths that a value is evaluated at to be tabulated: of a whole
// sequence, of a few tokens, and of one token after others.
func (s *builder) lengthsOf() (whole, few, later Lengths) {
	longest := s.Positions
	if s.Single() {
		one := Lengths{Past: 0, New: 1, Encoder: 1}
		return one, one, Lengths{Past: longest / 2, New: 1, Encoder: 1}
	}
	return Lengths{Past: 0, New: longest, Encoder: 1}, Lengths{Past: 0, New: min(7, longest), Encoder: 1},
		Lengths{Past: longest / 2, New: 1, Encoder: 1}
}

// Questions are what Finish needs answers to, of the model as exported.
func (a *Attended) Questions() []Question {
	var list questions
	for _, t := range a.needed {
		v := t.value()
		if a.s.tabulable(v) != nil {
			continue
		}
		whole, few, later := a.s.lengthsOf()
		ats := []Lengths{whole, few, later}
		if a.s.engine.Prefix {
			ats = append(ats, a.s.afterPromptLengths())
		}
		switch {
		case a.s.isNumber(v):
			ats = append(ats, a.s.pasts()...)
		case a.s.isLine(v): // which follows from no whole sequence
			for past := range a.s.Positions {
				ats = append(ats, Lengths{Past: past, New: 1, Encoder: 1})
			}
		}
		for _, at := range ats {
			list.add(Question{[]string{v.Name}, at})
		}
	}
	return list
}

// rowPositions gives each row its own position: where one is needed stands a table over
// positions, evaluated once from the model as exported, in which every row looks up its
// own line.
func (s *builder) rowPositions(needed []tabled) error {
	type key struct {
		v    *graph.Value
		rank int
	}
	tables := map[key]*table{}
	for _, t := range needed {
		n, v := t.node, t.value()
		k := key{v, s.Shapes.Of(n.Out[0]).Rank}
		var err error
		if tables[k] == nil {
			tables[k], err = s.tabulate(v, k.rank)
		}
		if s.isLength(n, t.index) && (err != nil || tables[k].kind != constantTable) {
			continue // freeRest may have it from the tokens
		}
		if err == nil {
			err = s.lookUp(t, tables[k])
		}
		if err != nil {
			return fmt.Errorf("%s reads %s, which depends on lengths: %w", describe(n), v.Name, err)
		}
	}
	s.Graph.Prune()
	return nil
}

func (s *builder) positions() (*graph.Value, error) {
	s.engine.Positions = true
	return s.input(PositionsInput, onnx.Tensor_INT64, rowsSymbol, 1)
}

// dependency says what a value's content depends on.
type dependency int

const (
	onNothing dependency = iota // constants
	onLengths                   // shapes, masks and other inputs that are the same whatever the tokens are
	onTokens                    // and on whatever else a caller gives
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

// data are the inputs whose content lengths do not tell: an encoder's output, a past, and those of no known role.
func (d *Decoder) data() map[*graph.Value]bool {
	r, data := roles.Find(d.Graph, d.Shapes, d.Report), map[*graph.Value]bool{}
	for _, v := range d.Graph.Inputs {
		switch r.Of(v) {
		case roles.Past, roles.EncoderPast, roles.EncoderOutput, roles.Image, roles.State, roles.Other:
			data[v] = v.Tensor == nil
		}
	}
	return data
}

// made is an input of data that a value's content is made of, or nil.
func (d *Decoder) made(v *graph.Value, data, seen map[*graph.Value]bool) *graph.Value {
	if data[v] {
		return v
	}
	if v == nil || seen[v] {
		return nil
	}
	d.Graph.Spend(1)
	seen[v] = true
	if n := v.Producer; n != nil && !n.Is("Shape", "Size") {
		for _, from := range n.In {
			if in := d.made(from, data, seen); in != nil {
				return in
			}
		}
	}
	return nil
}

// dependencies sorts the values of the graph, which must be in order.
func (s *builder) dependencies() dependencies {
	d := dependencies{}
	for _, v := range s.Graph.Inputs {
		switch {
		case v == s.tokens, s.inputs[v.Name] != nil, s.data[v]:
			d[v] = onTokens
		case v.Tensor == nil:
			d[v] = onLengths
		}
	}
	for _, n := range s.Graph.Nodes {
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

// counted are the values that come of counting elements, as torch's repeat_interleave does: of lengths among them no
// analysis of shapes tells what they are, and a run does.
func (s *builder) counted() map[*graph.Value]bool {
	list := map[*graph.Value]bool{}
	for _, n := range s.Graph.Nodes {
		if n.Is("NonZero") || slices.ContainsFunc(n.In, func(v *graph.Value) bool { return list[v] }) {
			for _, v := range n.Out {
				list[v] = true
			}
		}
	}
	return list
}

// isLength reports an input of a node that says how to arrange elements, not
// what they are.
func (s *builder) isLength(n *graph.Node, i int) bool {
	switch n.Op() {
	case "Reshape", "Expand", "Tile", "Unsqueeze", "Squeeze", "Split", "Slice":
		return i > 0
	}
	return false
}

// positionRows is the input of positions as a list.
func (s *builder) positionRows() (*graph.Value, error) {
	const name = "graft_position_rows"
	if v := s.Graph.Lookup(name); v != nil {
		return v, nil
	}
	positions, err := s.positions()
	if err != nil {
		return nil, err
	}
	flat := s.Graph.AddInitializer(graph.Int64Tensor("", []int64{1}, -1))
	n, err := s.AddNode(s.Graph, "", "Reshape", []*graph.Value{positions, flat}, []string{name})
	if err != nil {
		return nil, err
	}
	return n.Out[0], nil
}
