package plugin

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// definedAs says what gives a value of a pattern or of a replacement its meaning.
type definedAs struct {
	what string // an input, a constant, an output of node 3
	line int
}

// scope is the set of values that nodes may use.
type scope struct {
	r      *reader
	what   string
	values map[string]definedAs
	used   map[string]bool
}

func newScope(r *reader, what string) *scope {
	return &scope{r: r, what: what, values: map[string]definedAs{}, used: map[string]bool{}}
}

func (s *scope) define(name, as string, line int) {
	if name == "" {
		return
	}
	if first, dup := s.values[name]; dup {
		s.r.fail(line, "%s: value %s is %s, but already %s on line %d; rename one", s.what, name, as, first.what, first.line)
		return
	}
	s.values[name] = definedAs{as, line}
}

// names reads a list of value names; optional lets "" stand for an absent one.
func (r *reader) names(n *yaml.Node, what string, optional bool) []string {
	var out []string
	for i, item := range r.list(n, what, maxValues) {
		at := fmt.Sprintf("%s[%d]", what, i)
		if optional && item.Kind == yaml.ScalarNode && item.Tag == "!!str" && item.Value == "" {
			out = append(out, "")
			continue
		}
		out = append(out, r.match(item, at, valuePattern, "the name of a value: a letter or _, then letters, digits, _ . -"))
	}
	return out
}

func (r *reader) pattern(n *yaml.Node, what string) *Pattern {
	f := r.fields(n, what, "inputs", "outputs", "nodes", "constants")
	if f == nil {
		return nil
	}
	before := len(r.problems)
	for _, key := range []string{"inputs", "outputs", "nodes"} {
		if f[key] == nil {
			r.fail(n.Line, "%s.%s is missing; add it", what, key)
		}
	}
	p := &Pattern{}
	if f["inputs"] != nil {
		p.Inputs = r.names(f["inputs"], what+".inputs", false)
	}
	if f["outputs"] != nil {
		p.Outputs = r.names(f["outputs"], what+".outputs", false)
	}
	if f["constants"] != nil {
		p.Constants = r.constants(f["constants"], what+".constants")
	}
	if f["nodes"] != nil {
		p.Nodes = r.patternNodes(f["nodes"], what+".nodes")
	}
	if len(r.problems) > before {
		return p
	}
	s := newScope(r, what)
	for _, name := range p.Inputs {
		s.define(name, "an input", f["inputs"].Line)
	}
	for _, c := range p.Constants {
		s.define(c.Name, "a constant", c.line)
	}
	for i, node := range p.Nodes {
		for _, name := range node.Out {
			s.define(name, fmt.Sprintf("an output of nodes[%d] (%s)", i, node.Op), node.line)
		}
	}
	if len(r.problems) > before {
		return p
	}
	r.checkPattern(p, s, f)
	return p
}

// checkPattern checks what Pattern promises of its graph and sorts the nodes.
func (r *reader) checkPattern(p *Pattern, s *scope, f map[string]*yaml.Node) {
	what := s.what
	switch {
	case len(p.Nodes) == 0:
		r.fail(f["nodes"].Line, "%s.nodes is empty, needed at least one node", what)
	case len(p.Inputs) == 0:
		r.fail(f["inputs"].Line, "%s.inputs is empty, needed at least one value", what)
	case len(p.Outputs) == 0:
		r.fail(f["outputs"].Line, "%s.outputs is empty, needed at least one value", what)
	}
	edges := make([]node, len(p.Nodes))
	for i, n := range p.Nodes {
		edges[i] = node{op: n.Op, in: n.In, out: n.Out, line: n.line}
	}
	order, ok := s.sort(edges)
	if !ok {
		return
	}
	s.outputs(p.Outputs, f["outputs"].Line, edges)
	s.allUsed(what, "value")
	if !s.connected(edges) {
		r.fail(f["nodes"].Line, "%s: the nodes fall into parts that share no value; make an operator of each part", what)
	}
	sorted := make([]PatternNode, len(order))
	for i, at := range order {
		sorted[i] = p.Nodes[at]
	}
	p.Nodes = sorted
}

// node is what checking a graph needs of a pattern's or a replacement's node.
type node struct {
	op      string
	in, out []string
	line    int
}

// sort checks that every input is defined and orders the nodes topologically, else by the file.
func (s *scope) sort(nodes []node) (order []int, ok bool) {
	before := len(s.r.problems)
	maker := map[string]int{}
	for i, n := range nodes {
		for _, name := range n.out {
			if name != "" {
				maker[name] = i
			}
		}
	}
	waits := make([]int, len(nodes))
	users := make([][]int, len(nodes))
	for i, n := range nodes {
		for _, name := range n.in {
			if name == "" {
				continue
			}
			if _, defined := s.values[name]; !defined {
				s.r.fail(n.line, "%s: node %s uses %s, which is no input, constant or output of a node%s; define it",
					s.what, n.op, name, suggestion(name, s.known()))
				continue
			}
			s.used[name] = true
			if from, made := maker[name]; made {
				waits[i]++
				users[from] = append(users[from], i)
			}
		}
	}
	if len(s.r.problems) > before {
		return nil, false
	}
	placed := make([]bool, len(nodes))
	for len(order) < len(nodes) {
		next := -1
		for i := range nodes {
			if !placed[i] && waits[i] == 0 {
				next = i
				break
			}
		}
		if next < 0 {
			for i := range nodes {
				if !placed[i] {
					s.r.fail(nodes[i].line, "%s: node %s depends on its own output; break the cycle", s.what, nodes[i].op)
					break
				}
			}
			return nil, false
		}
		placed[next] = true
		order = append(order, next)
		for _, u := range users[next] {
			waits[u]--
		}
	}
	return order, true
}

// known lists the defined values, for suggestions.
func (s *scope) known() []string {
	names := make([]string, 0, len(s.values))
	for name := range s.values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// outputs checks that each output comes from a node and counts it as used.
func (s *scope) outputs(names []string, line int, nodes []node) {
	for _, name := range names {
		made := slices.ContainsFunc(nodes, func(n node) bool { return slices.Contains(n.out, name) })
		if !made {
			s.r.fail(line, "%s: output %s is made by no node%s; let a node have it as an output", s.what, name, suggestion(name, s.known()))
		}
		s.used[name] = true
	}
}

// allUsed reports values that nothing uses: a pattern with one could match at any of several places.
func (s *scope) allUsed(what, noun string) {
	for _, name := range s.known() {
		if !s.used[name] {
			d := s.values[name]
			s.r.fail(d.line, "%s: %s %s is %s but nothing uses it; remove it or make it an output", what, noun, name, d.what)
		}
	}
}

// connected reports whether values other than constants hold the nodes together.
func (s *scope) connected(nodes []node) bool {
	if len(nodes) == 0 {
		return true
	}
	reached := map[int]bool{0: true}
	for queue := []int{0}; len(queue) > 0; {
		n := nodes[queue[0]]
		queue = queue[1:]
		for i, other := range nodes {
			if !reached[i] && s.share(n, other) {
				reached[i] = true
				queue = append(queue, i)
			}
		}
	}
	return len(reached) == len(nodes)
}

func (s *scope) share(a, b node) bool {
	for _, x := range slices.Concat(a.in, a.out) {
		if x != "" && s.values[x].what != "a constant" && (slices.Contains(b.in, x) || slices.Contains(b.out, x)) {
			return true
		}
	}
	return false
}

func (r *reader) constants(n *yaml.Node, what string) []Constant {
	entries, _ := r.entries(n, what)
	if len(entries) > maxValues {
		r.fail(n.Line, "%s has %d entries, needed at most %d", what, len(entries), maxValues)
		return nil
	}
	var out []Constant
	for _, e := range entries {
		name := what + "." + clip(e.key)
		if !valuePattern.MatchString(e.key) {
			r.fail(e.line, "%s: %q is not the name of a value, needed a letter or _, then letters, digits, _ . -", what, clip(e.key))
			continue
		}
		f := r.fields(e.value, name, "value", "tolerance", "any", "rank")
		if f == nil {
			continue
		}
		c := Constant{Name: e.key, Rank: -1, line: e.line}
		c.Any = r.flag(f["any"], name+".any")
		switch {
		case f["value"] != nil && c.Any:
			r.fail(e.line, "%s has both value and any, needed one", name)
		case f["value"] == nil && !c.Any:
			r.fail(e.line, "%s has neither value nor any: true, needed one", name)
		case c.Any:
			if f["tolerance"] != nil {
				r.fail(f["tolerance"].Line, "%s has a tolerance without a value; remove it", name)
			}
			if f["rank"] != nil {
				c.Rank = int(r.integer(f["rank"], name+".rank", 0, 32))
			}
		default:
			if f["rank"] != nil {
				r.fail(f["rank"].Line, "%s has a rank beside a value, which matches whatever the rank; remove it", name)
			}
			v := r.finite(f["value"], name+".value")
			c.Value = &v
			// A float32 that was written from the decimal in the file is within this.
			c.Tolerance = 1e-6
			if f["tolerance"] != nil {
				c.Tolerance = r.finite(f["tolerance"], name+".tolerance")
				if c.Tolerance < 0 || c.Tolerance >= 1 {
					r.fail(f["tolerance"].Line, "%s.tolerance is %v, needed 0 or more and below 1", name, c.Tolerance)
				}
			}
		}
		out = append(out, c)
	}
	return out
}

// Matches reports whether an element of a tensor is the constant's value.
func (c *Constant) Matches(element float64) bool {
	if c.Value == nil {
		return c.Any
	}
	bound := c.Tolerance
	if *c.Value != 0 {
		bound *= math.Abs(*c.Value)
	}
	return math.Abs(element-*c.Value) <= bound
}

// nodeFields reads what pattern nodes and replacement nodes have in common.
func (r *reader) nodeFields(n *yaml.Node, what string) (out WithNode, ok bool) {
	f := r.fields(n, what, "op", "domain", "in", "out", "attributes")
	if f == nil {
		return out, false
	}
	for _, key := range []string{"op", "in", "out"} {
		if f[key] == nil {
			r.fail(n.Line, "%s.%s is missing; add it", what, key)
		}
	}
	out.line = n.Line
	out.Op = r.match(f["op"], what+".op", operatorPattern, "an operator type such as MatMul")
	if d := r.text(f["domain"], what+".domain"); d != "ai.onnx" { // the long name of the default domain
		out.Domain = d
	}
	if f["in"] != nil {
		out.In = r.names(f["in"], what+".in", true)
	}
	if f["out"] != nil {
		out.Out = r.names(f["out"], what+".out", true)
		if !slices.ContainsFunc(out.Out, func(s string) bool { return s != "" }) {
			r.fail(f["out"].Line, "%s.out names no value, needed at least one", what)
		}
	}
	if f["attributes"] != nil {
		out.Attributes = r.attributes(f["attributes"], what+".attributes", true)
	}
	return out, true
}

func (r *reader) patternNodes(n *yaml.Node, what string) []PatternNode {
	var out []PatternNode
	for i, item := range r.list(n, what, maxNodes) {
		if f, ok := r.nodeFields(item, fmt.Sprintf("%s[%d]", what, i)); ok {
			out = append(out, PatternNode(f))
		}
	}
	return out
}

// attributes reads attribute values: scalars and lists of one type of scalar.
func (r *reader) attributes(n *yaml.Node, what string, captures bool) []Attribute {
	entries, _ := r.entries(n, what)
	if len(entries) > maxValues {
		r.fail(n.Line, "%s has %d entries, needed at most %d", what, len(entries), maxValues)
		return nil
	}
	var out []Attribute
	for _, e := range entries {
		name := what + "." + clip(e.key)
		if !operatorPattern.MatchString(e.key) {
			r.fail(e.line, "%s: %q is not the name of an attribute", what, clip(e.key))
			continue
		}
		value := r.attributeValue(e.value, name)
		if text, isText := value.(string); isText && captures && strings.HasPrefix(text, "?") {
			if !operatorPattern.MatchString(text[1:]) {
				r.fail(e.value.Line, "%s captures %q, needed ? and a name", name, clip(text))
			}
			value = Capture(text[1:])
		}
		if value != nil {
			out = append(out, Attribute{Name: e.key, Value: value})
		}
	}
	return out
}

func (r *reader) attributeValue(n *yaml.Node, what string) any {
	if !r.plain(n, what) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		return r.attributeScalar(n, what)
	}
	const limit = 4096
	items := r.list(n, what, limit)
	if len(items) == 0 {
		r.fail(n.Line, "%s is an empty list, whose type is unknown; remove the attribute", what)
		return nil
	}
	var (
		ints    []int64
		floats  []float64
		strs    []string
		isFloat bool
	)
	for i, item := range items {
		switch v := r.attributeScalar(item, fmt.Sprintf("%s[%d]", what, i)).(type) {
		case int64:
			ints, floats = append(ints, v), append(floats, float64(v))
		case float64:
			floats, isFloat = append(floats, v), true
		case string:
			strs = append(strs, v)
		}
	}
	switch {
	case len(strs) == len(items):
		return strs
	case len(floats) == len(items) && isFloat:
		return floats
	case len(ints) == len(items):
		return ints
	}
	r.fail(n.Line, "%s mixes numbers and text, needed one type", what)
	return nil
}

// attributeScalar reads an int64, float64 (infinities too) or string; true and false are 1 and 0, as ONNX
// has no boolean attribute.
func (r *reader) attributeScalar(n *yaml.Node, what string) any {
	if !r.plain(n, what) {
		return nil
	}
	if n.Kind == yaml.ScalarNode {
		switch n.Tag {
		case "!!bool":
			if r.flag(n, what) {
				return int64(1)
			}
			return int64(0)
		case "!!int":
			return r.integer(n, what, math.MinInt64, math.MaxInt64)
		case "!!float":
			return r.number(n, what)
		case "!!str":
			return r.text(n, what)
		}
	}
	r.fail(n.Line, "%s is %s, needed text or a number", what, kindOf(n))
	return nil
}
