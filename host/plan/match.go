package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/model/onnx"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Match is one place where a plugin's pattern of nodes was found.
type Match struct {
	Graph    *graph.Graph
	Operator *manifest.Operator
	Values   map[string]*graph.Value // by the pattern's names, inner ones included
	Captured map[string]any          // attribute values by capture name
	Nodes    []*graph.Node
	Folded   map[string]tensor.Weight // what the plugin's fold made of the captured constants
}

// Folder computes weights from weights with a plugin's own fold. An error of kind
// refusal.ErrFold means that the constants do not qualify.
type Folder interface {
	Fold(plugin string, operator string, constants []tensor.Weight, attributes []manifest.Attribute) ([]tensor.Weight, error)
}

// patterns looks for the patterns of all operators, away from nodes that a
// chosen block or an earlier match takes.
func patterns(g *graph.Graph, e *estimator, p *Plan, manifests []*manifest.Manifest, o Options) []Choice {
	taken := map[*graph.Node]bool{}
	for _, c := range p.Choices {
		if c.Operator != nil && c.Block != nil {
			for _, n := range e.region(c.Block) {
				taken[n] = true
			}
		}
	}
	var choices []Choice
	for _, m := range manifests {
		for i := range m.Operators {
			op := &m.Operators[i]
			if op.Replaces.Pattern == nil || o.excludes(m.Name, op.Name, "") != "" && o.Fixed == nil {
				continue
			}
			last := op.Replaces.Pattern.Nodes[len(op.Replaces.Pattern.Nodes)-1]
			g.Walk(func(n *graph.Node) {
				g.Spend(1)
				if taken[n] || !sameOp(last, n) {
					return
				}
				match := find(op, n, taken, e.shapes)
				if match == nil || e.stretched(match) {
					return
				}
				c := decide(e, m, match, o)
				if c.Operator != nil {
					for _, used := range match.Nodes {
						taken[used] = true
					}
				}
				choices = append(choices, c)
			})
		}
	}
	return choices
}

// stretched reports a match in which a number is a tensor that broadcasts the
// other operand, to more dimensions or longer ones: what a pattern writes as a
// number is expected to leave shapes alone.
func (e *estimator) stretched(m *Match) bool {
	p := m.Operator.Replaces.Pattern
	apart := values(m, p.Inputs)
	for _, k := range p.Constants {
		if k.Any {
			apart = append(apart, m.Values[k.Name])
		}
	}
	for _, n := range m.Nodes {
		for _, number := range n.In {
			if number == nil || number.Tensor == nil || slices.Contains(apart, number) {
				continue
			}
			for _, v := range n.In {
				if v != nil && v != number && e.widens(number.Tensor.Dims, v) {
					return true
				}
			}
		}
	}
	return false
}

// widens reports that broadcasting to a constant's lengths may change a value's.
func (e *estimator) widens(by []int64, v *graph.Value) bool {
	f := e.shapes.Of(v)
	if f.Rank < len(by) && len(by) > 0 {
		return true
	}
	for i, n := range by {
		if n != 1 && !f.Dim(i-len(by)).Is(n) {
			return true
		}
	}
	return false
}

// ends are the values that a match reads, captured constants included, and makes.
func (m *Match) ends() (ins, outs []*graph.Value) {
	p := m.Operator.Replaces.Pattern
	ins, outs = values(m, p.Inputs), values(m, p.Outputs)
	for _, k := range p.Constants {
		ins = append(ins, m.Values[k.Name])
	}
	return ins, outs
}

// decide weighs one match: constraints, fold, expectation.
func decide(e *estimator, m *manifest.Manifest, match *Match, o Options) Choice {
	op := match.Operator
	c := Choice{Node: match.Nodes[len(match.Nodes)-1].Path(), Kind: "pattern", Match: match}
	if why := o.excludes(m.Name, op.Name, c.Node); why != "" {
		c.Reason = why
		return c
	}
	facts := e.facts(match)
	if ok, why := op.Where.Allows(facts); !ok {
		c.Reason = m.Name + ": " + why
		return c
	}
	if c.Reason = o.Device.lacks(m, op, facts["dtype"]); c.Reason != "" {
		return c
	}
	if why := e.cannotReplace(m.Name, match, o); why != "" {
		c.Reason = m.Name + ": " + why
		return c
	}
	if why := e.unequal(match); why != "" {
		c.Reason = m.Name + ": " + why
		return c
	}
	ins, outs := match.ends()
	x := e.compare(match.Nodes, ins, outs, e.work(match.Nodes), graph.Dim{}, e.cost(op))
	if work, some := e.integerWork(match.Nodes); some {
		x = e.compareIntegers(ins, outs, work, e.cost(op))
	}
	if len(op.With.Fold) > 0 {
		folded, err := fold(m.Name, match, o.Folder)
		if err != nil {
			c.Reason = m.Name + ": " + err.Error()
			return c
		}
		match.Folded = folded
		x = smaller(match)
		x.Bytes = e.bytesOnly
	}
	if !o.Force && o.Fixed == nil && !x.gains() {
		c.Reason = m.Name + ": " + x.String()
		return c
	}
	c.Plugin, c.Operator, c.Expected, c.Reason = m.Name, op, x, x.reason(o)
	return c
}

// smaller expects of a fold what its constants weigh less: matmuls with
// constants take the time of reading or multiplying them.
func smaller(match *Match) Expectation {
	before, after := 0.0, 0.0
	for _, k := range match.Operator.Replaces.Pattern.Constants {
		if n, err := graph.Elements(match.Values[k.Name].Tensor); k.Any && err == nil {
			before += float64(n)
		}
	}
	for _, k := range match.Folded {
		after += float64(len(k.Floats) + len(k.Ints))
	}
	if after == 0 {
		return Expectation{Speedup: 1, Worst: 1}
	}
	return Expectation{Speedup: before / after, Worst: before / after}
}

func fold(name string, match *Match, f Folder) (map[string]tensor.Weight, error) {
	if f == nil {
		return nil, errors.New("its constants cannot be folded without loading the plugin")
	}
	var constants []tensor.Weight
	for _, k := range match.Operator.Replaces.Pattern.Constants {
		if !k.Any {
			continue
		}
		c, err := widen(k.Name, match.Values[k.Name])
		if err != nil {
			return nil, err
		}
		constants = append(constants, c)
	}
	var attributes []manifest.Attribute
	for _, name := range slices.Sorted(maps.Keys(match.Captured)) {
		attributes = append(attributes, manifest.Attribute{Name: name, Value: match.Captured[name]})
	}
	list, err := f.Fold(name, match.Operator.Name, constants, attributes)
	if err != nil {
		return nil, err
	}
	folded := map[string]tensor.Weight{}
	for _, w := range list {
		folded[w.Name] = w
	}
	return folded, nil
}

// maxFoldElements bounds a constant that is widened to 64 bits for a fold.
const maxFoldElements = 1 << 27

// widen reads a constant as float64 or int64.
func widen(name string, v *graph.Value) (tensor.Weight, error) {
	t := v.Tensor
	w := tensor.Weight{Name: name, Shape: t.Dims}
	var err error
	switch onnx.Tensor_DataType(t.GetDataType()) {
	case onnx.Tensor_FLOAT, onnx.Tensor_DOUBLE, onnx.Tensor_FLOAT16, onnx.Tensor_BFLOAT16:
		w.Floats, err = v.Graph.Numbers(t, maxFoldElements)
	default:
		w.Ints, err = v.Graph.Integers(t, maxFoldElements)
	}
	return w, err
}

// facts of a match, for constraints: the type of the first input, ranks and
// constant lengths ("w_rank", "w_dim0"), what was captured, and whether the CPU
// has VNNI.
func (e *estimator) facts(m *Match) map[string]any {
	f := maps.Clone(m.Captured)
	f["cpu_vnni"] = vnni()
	for i, name := range m.Operator.Replaces.Pattern.Inputs {
		if i == 0 {
			f["dtype"] = model.TypeName(e.shapes.Of(m.Values[name]).DType)
		}
	}
	for name, v := range m.Values {
		s := e.shapes.Of(v)
		if s.Rank < 0 {
			continue
		}
		f[name+"_rank"] = s.Rank
		for i, d := range s.Dims {
			if n, ok := d.Const(); ok {
				f[fmt.Sprintf("%s_dim%d", name, i)] = n
			}
		}
	}
	return f
}

func values(m *Match, names []string) []*graph.Value {
	list := make([]*graph.Value, len(names))
	for i, n := range names {
		list[i] = m.Values[n]
	}
	return list
}

// find looks for an operator's pattern with its last node at n.
func find(op *manifest.Operator, n *graph.Node, taken map[*graph.Node]bool, shapes *graph.Shapes) *Match {
	p := op.Replaces.Pattern
	s := &search{pattern: p, taken: taken, shapes: shapes, version: n.Graph.Opset(""), nodes: make([]*graph.Node, len(p.Nodes)),
		values: map[string]*graph.Value{}, captured: map[string]any{}}
	if !s.try(len(p.Nodes)-1, n) {
		return nil
	}
	return &Match{Graph: n.Graph, Operator: op, Values: s.values, Captured: s.captured, Nodes: s.nodes}
}

// search is the state of a match in the making: which node and value stands for
// each of the pattern's.
type search struct {
	pattern  *manifest.Pattern
	taken    map[*graph.Node]bool
	shapes   *graph.Shapes
	version  int64 // of ONNX's own operators in the model
	nodes    []*graph.Node
	values   map[string]*graph.Value
	captured map[string]any
}

// solve finds nodes for the rest of the pattern, by what is bound already: first those that
// make a value, of which there is one, then those that read one, which may be many.
func (s *search) solve() bool {
	for _, candidates := range []func(manifest.PatternNode) ([]*graph.Node, bool){s.makers, s.readers} {
		for i, p := range s.pattern.Nodes {
			if s.nodes[i] != nil {
				continue
			}
			list, bound := candidates(p)
			if !bound {
				continue
			}
			for _, n := range list {
				if s.try(i, n) {
					return true
				}
			}
			return false
		}
	}
	return !slices.Contains(s.nodes, nil) && s.closed() && s.shaped()
}

// makers are the nodes that make a bound value.
func (s *search) makers(p manifest.PatternNode) (list []*graph.Node, bound bool) {
	for _, name := range p.Out {
		if v := s.values[name]; v != nil {
			if v.Producer == nil {
				return nil, true
			}
			return []*graph.Node{v.Producer}, true
		}
	}
	return nil, false
}

// readers are the nodes that read a bound value.
func (s *search) readers(p manifest.PatternNode) (list []*graph.Node, bound bool) {
	for _, name := range p.In {
		if v := s.values[name]; v != nil {
			v.Graph.Spend(len(v.Uses))
			seen := map[*graph.Node]bool{}
			for _, u := range v.Uses {
				if sameOp(p, u.Node) && !seen[u.Node] {
					seen[u.Node] = true
					list = append(list, u.Node)
				}
			}
			return list, true
		}
	}
	return nil, false
}

// try binds a node, in either order of its operands where the operator allows,
// and goes on; it leaves nothing bound when that fails.
func (s *search) try(i int, n *graph.Node) bool {
	n.Graph.Spend(1)
	p := s.pattern.Nodes[i]
	if s.taken[n] || slices.Contains(s.nodes, n) || !sameOp(p, n) {
		return false
	}
	if others := slices.DeleteFunc(slices.Clone(s.nodes), func(m *graph.Node) bool { return m == nil }); len(others) > 0 && others[0].Graph != n.Graph {
		return false
	}
	orders := [][]string{p.In}
	if n.Is("Add", "Mul") && len(p.In) == 2 && p.In[0] != p.In[1] {
		orders = append(orders, []string{p.In[1], p.In[0]})
	}
	for _, in := range orders {
		values, captured := maps.Clone(s.values), maps.Clone(s.captured)
		s.nodes[i] = n
		if s.bind(p, n, in) && s.solve() {
			return true
		}
		s.nodes[i], s.values, s.captured = nil, values, captured
	}
	return false
}

func (s *search) bind(p manifest.PatternNode, n *graph.Node, in []string) bool {
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
		if name != "" && (n.Output(i) == nil || !s.value(name, n.Output(i), 0)) {
			return false
		}
	}
	return true
}

// value binds a name, which must not stand for another value already. axes is that of fits.
func (s *search) value(name string, v *graph.Value, axes int64) bool {
	if old := s.values[name]; old != nil {
		return old == v || v.Tensor != nil && old.Tensor != nil && s.isNumber(name)
	}
	if k, ok := s.pattern.Constant(name); ok && !fits(k, v, axes) {
		return false
	}
	s.values[name] = v
	return true
}

// closed reports that nothing outside the match reads what is inside it.
func (s *search) closed() bool {
	for name, v := range s.values {
		if v.Producer == nil || !slices.Contains(s.nodes, v.Producer) || slices.Contains(s.pattern.Outputs, name) {
			continue
		}
		if v.IsOutput {
			return false
		}
		for _, u := range v.Uses {
			if !slices.Contains(s.nodes, u.Node) {
				return false
			}
		}
	}
	return true
}

func sameOp(p manifest.PatternNode, n *graph.Node) bool {
	if p.Domain == "" || p.Domain == "ai.onnx" {
		return n.Is(p.Op)
	}
	return n.Op() == p.Domain+"."+p.Op
}
