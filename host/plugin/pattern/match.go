package pattern

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
)

// Match is one place where a form of a pattern was found.
type Match struct {
	Form     *Form
	Values   map[string]*graph.Value // by the form's names, inner ones included
	Captured map[string]any          // by the names of captures
	Nodes    []*graph.Node           // in the order of the form's
	// Stay are those of Nodes that make inner values which something outside reads.
	Stay []*graph.Node
	// Unread are the form's outputs that nothing outside reads.
	Unread []string

	finder *Finder
}

// Finder looks for patterns in one model.
type Finder struct {
	main    *graph.Graph
	shapes  *graph.Shapes
	copies  *blocks.Copies
	byOp    map[string][]*graph.Node
	numbers map[*graph.Value]*elements
	// Which node of the form that is looked for makes which value.
	makersOf *Form
	makers   map[string]int
	ordersOf map[*Node][][]string
	left     map[*Pattern]int64 // steps
	// Nearest is the place at which a search that found nothing got furthest; nil before any began.
	Nearest *Nearest
	// Explain begins a search wherever a node is like the last of a form, so that Nearest says how far it gets.
	Explain bool
}

// Nearest is how far a search got that found nothing.
type Nearest struct {
	Form  *Form
	Found int    // nodes of the form that were there
	Why   string // what was missing, or what else was wrong
}

// String is "3 of 9 nodes were found: no Sqrt (line 20) was after them".
func (n *Nearest) String() string {
	form := ""
	if n.Form.Choices != "" {
		form = " of the form " + n.Form.Choices
	}
	return fmt.Sprintf("%d of %d nodes%s were found: %s", n.Found, len(n.Form.Nodes), form, n.Why)
}

// note remembers how far a search got, if none got further.
func (s *search) note(why func() string) {
	found := 0
	for _, n := range s.nodes {
		if n != nil {
			found++
		}
	}
	if best := s.finder.Nearest; best == nil || found > best.Found {
		s.finder.Nearest = &Nearest{Form: s.form, Found: found, Why: why()}
	}
}

// NewFinder looks at a main graph and its subgraphs.
func NewFinder(g *graph.Graph, shapes *graph.Shapes) *Finder {
	f := &Finder{main: g, shapes: shapes, byOp: map[string][]*graph.Node{}, numbers: map[*graph.Value]*elements{},
		ordersOf: map[*Node][][]string{}, left: map[*Pattern]int64{}}
	g.Walk(func(n *graph.Node) {
		g.Spend(1)
		f.byOp[n.Op()] = append(f.byOp[n.Op()], n)
	})
	return f
}

// What a search may take: a node that could be the last of a form is given up after stepsOfNode steps for each node
// of the form, and the pattern, with all of its forms, after stepsOfPart for each node, input and output of the
// graph. Nodes that match take a few steps each; only graphs that are made to be searched long, of equal parts that
// are joined in many ways, take more.
const (
	stepsOfNode = 64
	stepsOfPart = 16
	stepsOfAny  = 1 << 18 // of a pattern, for a graph of any size
)

// Each calls see for each place where a form is, away from nodes that are taken, in the order of the graph. It
// reports a search that was given up before all places were seen.
func (f *Finder) Each(form *Form, taken func(*graph.Node) bool, see func(*Match)) (givenUp bool) {
	last := form.Nodes[len(form.Nodes)-1]
	left, begun := f.left[form.Pattern]
	if !begun {
		_, parts := f.main.Steps()
		left = stepsOfAny + stepsOfPart*parts
	}
	defer func() { f.left[form.Pattern] = left }()
	if left <= 0 {
		return true
	}
	for _, op := range last.ops() {
		for _, n := range f.byOp[op] {
			f.main.Spend(1)
			if taken(n) {
				continue
			}
			if f.copies == nil {
				f.copies = blocks.FindCopies(f.main, f.shapes)
			}
			s := &search{finder: f, form: form, taken: taken, version: n.Graph.Opset(""),
				nodes:  make([]*graph.Node, len(form.Nodes)),
				values: map[string]*graph.Value{}, captured: map[string]any{}, able: map[pair]bool{},
				left: min(left, int64(stepsOfNode*(len(form.Nodes)+1)))}
			before := s.left
			found := (f.Explain || s.isAble(len(form.Nodes)-1, n)) && s.try(len(form.Nodes)-1, n)
			if left -= before - max(s.left, 0); left <= 0 {
				return true
			}
			if found {
				m := &Match{Form: form, Values: s.values, Captured: s.captured, Nodes: s.nodes, finder: f}
				m.outside()
				see(m)
			}
		}
	}
	return false
}

// ops are the operators of a graph that a node of a form can be.
func (n *Node) ops() []string {
	if n.Domain == "" || n.Domain == "ai.onnx" {
		return []string{n.Op}
	}
	return []string{n.Domain + "." + n.Op}
}

func (n *Node) is(of *graph.Node) bool { return slices.Contains(n.ops(), of.Op()) }

// outside tells what of a match something outside reads.
func (m *Match) outside() {
	inside := func(n *graph.Node) bool { return slices.Contains(m.Nodes, n) }
	read := func(name string) bool { return m.finder.copies.ReadOutside(m.Values[name], inside) }
	for _, name := range m.Form.Outputs {
		if !read(name) {
			m.Unread = append(m.Unread, name)
		}
	}
	var stay func(v *graph.Value)
	stay = func(v *graph.Value) {
		if v = m.finder.copies.First(v); v == nil || v.Producer == nil || !inside(v.Producer) ||
			slices.Contains(m.Stay, v.Producer) {
			return
		}
		m.Stay = append(m.Stay, v.Producer)
		for _, in := range v.Producer.In {
			stay(in)
		}
	}
	for _, name := range m.Form.Recompute {
		if read(name) && !slices.Contains(m.Form.Outputs, name) {
			stay(m.Values[name])
		}
	}
}

// Gone are the nodes that a replacement takes away.
func (m *Match) Gone() (list []*graph.Node) {
	for _, n := range m.Nodes {
		if !slices.Contains(m.Stay, n) {
			list = append(list, n)
		}
	}
	return list
}

// First is the value that another is a copy of: see [blocks.Copies].
func (m *Match) First(v *graph.Value) *graph.Value { return m.finder.copies.First(v) }
