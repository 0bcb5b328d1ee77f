package pattern

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/onnx/graph"
)

// search is the state of a match in the making: which node and value stands for
// each of the form's.
type search struct {
	finder   *Finder
	form     *Form
	taken    func(*graph.Node) bool
	version  int64 // of ONNX's own operators in the model
	nodes    []*graph.Node
	values   map[string]*graph.Value
	captured map[string]any
	bound    []binding // in their order, to be undone
	able     map[pair]bool
	left     int64 // steps
}

// binding is what a name stood for before: nil for nothing.
type binding struct {
	name    string
	value   *graph.Value
	capture bool
}

// undo takes bindings back until as many are left as there were.
func (s *search) undo(to int) {
	for ; len(s.bound) > to; s.bound = s.bound[:len(s.bound)-1] {
		switch b := s.bound[len(s.bound)-1]; {
		case b.capture:
			delete(s.captured, b.name)
		case b.value == nil:
			delete(s.values, b.name)
		default:
			s.values[b.name] = b.value
		}
	}
}

// is lets a name stand for a value.
func (s *search) is(name string, v *graph.Value) {
	s.bound = append(s.bound, binding{name: name, value: s.values[name]})
	s.values[name] = v
}

// pair is a node of a form and one of a graph.
type pair struct {
	at int
	n  *graph.Node
}

// isAble reports that a node of a graph can be one of the form by its operator, and the nodes that it reads, in some
// order, by theirs, whatever names stand for. It is asked once for each pair, so that a search that tries all orders
// of all operands begins only where nodes of the right kinds are.
func (s *search) isAble(at int, n *graph.Node) bool {
	p := &s.form.Nodes[at]
	if !s.spend(1) || !p.is(n) {
		return false
	}
	k := pair{at, n}
	if is, known := s.able[k]; known {
		return is
	}
	s.able[k] = false
	for _, in := range s.finder.orders(p) {
		if s.readsAble(n, in) {
			s.able[k] = true
			break
		}
	}
	return s.able[k]
}

func (s *search) readsAble(n *graph.Node, in []string) bool {
	for i, name := range in {
		maker := s.finder.maker(s.form, name)
		if maker < 0 {
			continue
		}
		v := n.Input(i)
		if v == nil || v.Tensor != nil && v.Producer == nil {
			return false
		}
		first := s.finder.copies.First(v)
		if !(v.Producer != nil && s.isAble(maker, v.Producer)) &&
			!(first != v && first.Producer != nil && s.isAble(maker, first.Producer)) {
			return false
		}
	}
	return true
}

// maker is the place of the form's node that makes a value; -1 for none.
func (f *Finder) maker(form *Form, name string) int {
	if f.makersOf != form {
		f.makersOf, f.makers = form, map[string]int{}
		for i, n := range form.Nodes {
			for _, out := range n.Out {
				if out != "" {
					f.makers[out] = i
				}
			}
		}
	}
	if i, ok := f.makers[name]; ok && name != "" {
		return i
	}
	return -1
}

// spend notes steps, and reports that there are more.
func (s *search) spend(steps int) bool {
	s.finder.main.Spend(steps)
	s.left -= int64(steps)
	return s.left > 0
}

// solve finds nodes for the rest of the form, by what is bound already: first those that
// make a value, of which there is one or, behind a detour, another, then those that read one, which may be many.
func (s *search) solve() bool {
	for _, candidates := range []func(*Node) ([]*graph.Node, bool){s.makers, s.readers} {
		for i := range s.form.Nodes {
			if s.nodes[i] != nil {
				continue
			}
			list, bound := candidates(&s.form.Nodes[i])
			if !bound {
				continue
			}
			for _, n := range list {
				if s.try(i, n) {
					return true
				}
			}
			s.note(func() string {
				p := s.form.Nodes[i]
				return fmt.Sprintf("%s (line %d) with %s is not there, or has other attributes or inputs", p.Op, p.Line,
					strings.Join(unique(slices.Concat(p.In, p.Out)), ", "))
			})
			return false
		}
	}
	if slices.Contains(s.nodes, nil) {
		return false
	}
	why := s.open()
	if why == "" {
		why = s.misshaped()
	}
	if why != "" {
		s.note(func() string { return why })
	}
	return why == ""
}

// makers are the nodes that make a bound value, or what it is a copy of.
func (s *search) makers(p *Node) (list []*graph.Node, bound bool) {
	for _, name := range p.Out {
		v := s.values[name]
		if v == nil {
			continue
		}
		if v.Producer != nil {
			list = append(list, v.Producer)
		}
		if first := s.finder.copies.First(v); first != v && first.Producer != nil {
			list = append(list, first.Producer)
		}
		return list, true
	}
	return nil, false
}

// readers are the nodes that read a bound value: the one that the fewest read.
func (s *search) readers(p *Node) (list []*graph.Node, bound bool) {
	var from *graph.Value
	for _, name := range p.In {
		v := s.values[name]
		if k, is := s.form.Constant(name); v == nil || is && k.IsNumber() {
			continue // a number stands in the model as often as it likes
		}
		if from == nil || len(s.finder.copies.Readers(v)) < len(s.finder.copies.Readers(from)) {
			from = v
		}
	}
	if from == nil {
		return nil, false
	}
	seen := map[*graph.Node]bool{}
	for _, uses := range [][]graph.Use{from.Uses, s.finder.copies.Readers(from)} {
		for _, u := range uses {
			if !s.spend(1) {
				return nil, true
			}
			if p.is(u.Node) && !seen[u.Node] {
				seen[u.Node] = true
				list = append(list, u.Node)
			}
		}
	}
	return list, true
}

// try binds a node, in any order of its operands that the operator allows,
// and goes on; it leaves nothing bound when that fails.
func (s *search) try(i int, n *graph.Node) bool {
	p := &s.form.Nodes[i]
	if !s.spend(1) || s.taken(n) || slices.Contains(s.nodes, n) || !p.is(n) {
		return false
	}
	for _, other := range s.nodes {
		if other != nil && other.Graph != n.Graph {
			return false
		}
	}
	before := len(s.bound)
	for j, in := range s.finder.orders(p) {
		if j > 0 && len(n.In) == 2 && s.finder.copies.First(n.In[0]) == s.finder.copies.First(n.In[1]) {
			break // the other order is the same
		}
		s.nodes[i] = n
		if s.bind(p, n, in) && s.solve() {
			return true
		}
		s.nodes[i] = nil
		s.undo(before)
		if s.left <= 0 {
			return false
		}
	}
	return false
}

// orders are those in which a node may have its inputs, made once.
func (f *Finder) orders(n *Node) [][]string {
	list, ok := f.ordersOf[n]
	if !ok {
		list = n.orders()
		f.ordersOf[n] = list
	}
	return list
}

// maxOrders is how many inputs are tried in all orders.
const maxOrders = 4

// orders are those in which a node may have its inputs.
func (n *Node) orders() [][]string {
	commutes := (n.Domain == "" || n.Domain == "ai.onnx") && slices.Contains(Commutes, n.Op)
	switch {
	case n.Commute != nil && !*n.Commute, n.Commute == nil && !commutes, len(n.In) < 2:
		return [][]string{n.In}
	case !commutes: // of an operator that ONNX knows as another, the first two
		return [][]string{n.In, append([]string{n.In[1], n.In[0]}, n.In[2:]...)}
	case len(n.In) > maxOrders:
		return [][]string{n.In}
	}
	var list [][]string
	var permute func(left, done []string)
	permute = func(left, done []string) {
		if len(left) == 0 && !slices.ContainsFunc(list, func(l []string) bool { return slices.Equal(l, done) }) {
			list = append(list, slices.Clone(done))
		}
		for i, name := range left {
			permute(slices.Delete(slices.Clone(left), i, i+1), append(slices.Clip(done), name))
		}
	}
	permute(n.In, nil)
	return list
}

func (s *search) bind(p *Node, n *graph.Node, in []string) bool {
	if !s.attributes(p, n) {
		return false
	}
	for i, name := range in {
		v := n.Input(i)
		if name == "" {
			if v != nil {
				return false
			}
			continue
		}
		if v == nil || !s.value(name, v, s.axesOf(n, i)) {
			return false
		}
	}
	for i := len(in); i < len(n.In); i++ {
		if n.In[i] != nil {
			return false
		}
	}
	for i, name := range p.Out {
		if name == "" {
			continue
		}
		if n.Output(i) == nil || !s.value(name, n.Output(i), 0) {
			return false
		}
		s.is(name, n.Output(i)) // rather than a copy of it
	}
	return true
}

// value binds a name, which must not stand for another value already. axes is that of fits.
func (s *search) value(name string, v *graph.Value, axes int64) bool {
	k, constant := s.form.Constant(name)
	if constant && v.Tensor == nil {
		v = s.finder.copies.First(v)
	}
	if old := s.values[name]; old != nil {
		return old == v || s.finder.copies.First(old) == s.finder.copies.First(v) ||
			constant && k.IsNumber() && s.fits(k, v, axes) && s.captures(k, v)
	}
	if constant && !(s.fits(k, v, axes) && s.captures(k, v)) {
		return false
	}
	if slices.Contains(s.form.Inputs, name) {
		v = s.finder.copies.First(v)
	}
	s.is(name, v)
	return true
}

// capture notes what a capture stands for, which must not be another value already.
func (s *search) capture(name string, value any) bool {
	if old, ok := s.captured[name]; ok {
		a, isNumber := numbers(old)
		b, both := numbers(value)
		return isNumber && both && len(a) == 1 && len(b) == 1 && near(a[0], b[0], 1e-6) || equal(old, value)
	}
	s.bound = append(s.bound, binding{name: name, capture: true})
	s.captured[name] = value
	return true
}

// open says what outside reads an inner value of the match that is no output and may not stay, or "".
func (s *search) open() string {
	for _, name := range slices.Sorted(maps.Keys(s.values)) {
		v := s.values[name]
		if v.Producer == nil || !slices.Contains(s.nodes, v.Producer) || slices.Contains(s.form.Outputs, name) ||
			slices.Contains(s.form.Recompute, name) {
			continue
		}
		if s.finder.copies.ReadOutside(v, s.inside) {
			return fmt.Sprintf("the value %s is read outside of them, and is neither an output nor under recompute", name)
		}
	}
	return ""
}

func (s *search) inside(n *graph.Node) bool { return slices.Contains(s.nodes, n) }
