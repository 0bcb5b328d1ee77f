package graph

import (
	"strconv"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// Limits that keep a hostile model from costing time or memory.
const (
	maxRank        = 64
	maxElems       = 4096    // elements of an integer tensor that are followed
	maxFloats      = 256     // elements of a floating tensor that are followed
	maxFollowed    = 16      // inputs of one operator whose elements are followed
	elementsBudget = 1 << 19 // elements that are followed in one model
	workBudget     = 1 << 22 // elements, and terms of theirs, that rules look at in one model
	maxNameLength  = 256     // longer names of lengths are not read
	maxRepeats     = 2       // depth of loops to which bodies are gone through again
)

// ownDomain is that of plugins' operators: a rewrite declares their results from what
// was inferred, so that these names are believed.
const ownDomain = "graft"

// trust is a declared length whose names are symbols.
func (s *Shapes) trust(d Dim) Dim {
	for _, name := range d.Symbols() {
		if _, taken := s.order[name]; !taken {
			s.order[name], s.claims[name] = len(s.order), DimSym(name)
			s.declared = append(s.declared, name)
		}
	}
	return s.now(d)
}

// reserveNames collects the names that the model gives to lengths anywhere, so
// that none of them is invented.
func (s *Shapes) reserveNames(g *Graph) {
	for _, v := range g.values {
		for _, d := range v.Type.GetTensorType().GetShape().GetDim() {
			for _, name := range named(d.GetDimParam()).Symbols() {
				s.reserved[name] = true
			}
		}
	}
	for _, n := range g.Nodes {
		for _, sub := range n.Subgraphs {
			s.reserveNames(sub)
		}
	}
}

// named is the length that a model gives by name, unknown when the name is
// empty, too long, or a number: exporters write "1" for what they traced.
func named(name string) Dim {
	if name == "" || len(name) > maxNameLength {
		return Dim{}
	}
	d := parseDim(name)
	if len(d.terms) == 0 {
		return Dim{}
	}
	return d
}

// numbered is the length that a model names an axis of an input by, as Transformers 5 names the heads of a cache "4":
// unknown for 1, which exporters write for what they traced. It is a claim as any name is.
func numbered(v *Value, index int) Dim {
	if list := v.Type.GetTensorType().GetShape().GetDim(); index < len(list) {
		if n, err := strconv.ParseInt(list[index].GetDimParam(), 10, 32); err == nil && n > 1 {
			return DimInt(n)
		}
	}
	return Dim{}
}

// symbol is the symbol made for an axis of a value, always the same one: the
// name that the model claims for it where no other axis has it.
func (s *Shapes) symbol(v *Value, index int, claim Dim, isResult bool) Dim {
	at := axis{v, index}
	name, ok := s.made[at]
	if !ok {
		var single bool
		if name, single = claim.symbol(); single {
			if _, taken := s.order[name]; !taken {
				s.made[at], s.origin[name], s.order[name], s.claims[name] = name, at, len(s.order), s.believed(claim, index)
				s.declared = append(s.declared, name)
				return DimSym(name)
			}
		}
		stem := v.Name
		if len(stem) > maxNameLength {
			stem = stem[:maxNameLength]
		}
		name = stem + "." + strconv.Itoa(index)
		for s.reserved[name] || s.Invented(name) {
			name += "." + strconv.Itoa(len(s.own))
		}
		s.main.Hold(symbolBytes + 2*len(name))
		s.made[at], s.origin[name], s.order[name], s.claims[name] = name, at, len(s.order), s.believed(claim, index)
		s.inside[name] = v.Graph
		s.invented[name] = isResult
		s.own = append(s.own, name)
	}
	return DimSym(name)
}

// fromType is what a declaration says.
func fromType(t *onnx.Type) Fact {
	tensor := t.GetTensorType()
	f := Fact{Rank: -1, DType: onnx.Tensor_DataType(tensor.GetElemType())}
	if tensor.GetShape() == nil || len(tensor.Shape.Dim) > maxRank {
		return f
	}
	f.Rank = len(tensor.Shape.Dim)
	f.Dims = make([]Dim, f.Rank)
	for i, d := range tensor.Shape.Dim {
		switch v := d.GetValue().(type) {
		case *onnx.Shape_Dim_DimValue:
			if v.DimValue >= 0 {
				f.Dims[i] = DimInt(v.DimValue)
			}
		case *onnx.Shape_Dim_DimParam:
			f.Dims[i] = named(v.DimParam)
		}
	}
	return f
}

// fromTensor is what a constant says.
func fromTensor(v *Value) Fact {
	t := v.Tensor
	f := Fact{DType: onnx.Tensor_DataType(t.GetDataType()), Rank: -1}
	count, err := Elements(t)
	if err != nil || len(t.Dims) > maxRank {
		return f
	}
	f.Rank = len(t.Dims)
	f.Dims = dimInts(t.Dims)
	switch {
	case isFloating(f.DType) && count <= maxFloats:
		f.Floats, _ = v.Floats()
	case f.DType == onnx.Tensor_INT64 && count <= maxElems, followed(f.DType) && count <= maxFloats:
		if list, ok := v.Ints(); ok {
			f.Elems = dimInts(list)
		}
	}
	return f
}

// input is what is known of a graph's input: what is given, what is declared,
// and symbols for the rest.
func (s *Shapes) input(v *Value, given Fact) Fact {
	return s.complete(v, given, false)
}

// graph goes through the nodes of a graph whose inputs are known. depth counts
// the loops around it.
func (s *Shapes) graph(g *Graph, depth int) {
	for _, n := range g.Nodes {
		for _, v := range n.In {
			if v != nil && v.Tensor != nil {
				s.constant(v)
			}
		}
		s.node(n, depth)
	}
	for _, v := range g.Outputs {
		if v.Tensor != nil {
			s.constant(v)
		}
	}
}

func (s *Shapes) constant(v *Value) {
	if _, ok := s.recall(v); !ok {
		s.Know(v, s.charge(fromTensor(v)))
	}
}

// node finds what a node's outputs are.
func (s *Shapes) node(n *Node, depth int) {
	c := &call{s: s, n: n, depth: depth, out: make([]Fact, len(n.Out))}
	for i := range c.out {
		c.out[i] = Fact{Rank: -1}
	}
	rule := rules[n.Op()]
	if s.functions[n.Op()] {
		rule = nil
	}
	if rule == nil {
		rule = unknownRule
	}
	before := s.work
	rule(c)
	s.main.Spend(1 + len(n.In) + len(n.Out) + (s.work-before)/8)
	for i, v := range n.Out {
		switch {
		case v == nil:
		case v.Tensor != nil:
			s.constant(v)
		default:
			s.Know(v, s.hold(s.charge(s.complete(v, c.out[i], true))))
		}
	}
}

// complete adds to what was found the numbers that are declared, and symbols for
// lengths of which nothing is known. A declaration never overrides what was found,
// but for a symbol that was itself made for want of anything better.
func (s *Shapes) complete(v *Value, f Fact, isResult bool) Fact {
	declared := fromType(v.Type)
	if f.DType == onnx.Tensor_UNDEFINED {
		f.DType = declared.DType
	}
	if f.Rank > maxRank || f.Rank >= 0 && f.Rank != len(f.Dims) {
		return unranked(f.DType)
	}
	if f.Rank < 0 {
		if declared.Rank < 0 {
			return unranked(f.DType)
		}
		f = shaped(f.DType, make([]Dim, declared.Rank)...)
	}
	dims := make([]Dim, f.Rank)
	for i := range dims {
		d := f.Dims[i]
		if n, ok := d.Const(); ok && n < 0 {
			d = Dim{}
		}
		if declared.Rank == f.Rank {
			want := declared.Dims[i]
			name, single := d.symbol()
			if _, ok := want.Const(); ok && (!d.Known() || single && s.invented[name]) {
				d = want
			}
		}
		if !d.Known() && declared.Dim(i).Known() && v.Producer != nil && v.Producer.Proto.GetDomain() == ownDomain {
			d = s.trust(declared.Dim(i))
		}
		if !d.Known() {
			claim := declared.Dim(i)
			if !claim.Known() && v.Producer == nil {
				claim = numbered(v, i)
			}
			d = s.symbol(v, i, claim, isResult)
		}
		dims[i] = d
	}
	f.Dims = dims
	return f
}

// charge drops what is known of the elements when it does not fit the shape, is
// too much, or the model has used up its share.
func (s *Shapes) charge(f Fact) Fact {
	if !f.tracks() {
		return f
	}
	n, ok := f.size()
	if f.Elems != nil && !(ok && int(n) == len(f.Elems) && n <= maxElems && followed(f.DType)) {
		f.Elems = nil
	}
	if f.Floats != nil && !(ok && int(n) == len(f.Floats) && n <= maxFloats && isFloating(f.DType)) {
		f.Floats = nil
	}
	if s.elements+len(f.Elems)+len(f.Floats) > elementsBudget {
		f.Elems, f.Floats = nil, nil
	}
	s.elements += len(f.Elems) + len(f.Floats)
	return f
}

// What is held in memory of a value, of each of its axes, of each factor in a length, and of a symbol.
const (
	valueBytes  = 160
	axisBytes   = 40
	factorBytes = 24
	symbolBytes = 600
)

// hold notes the memory that a fact takes.
func (s *Shapes) hold(f Fact) Fact {
	bytes := valueBytes + 8*len(f.Floats)
	for _, list := range [][]Dim{f.Dims, f.Elems} {
		for _, d := range list {
			bytes += axisBytes
			if len(d.terms) > 1 || len(d.terms) == 1 && len(d.terms[0].syms) > 1 {
				for _, t := range d.terms {
					bytes += factorBytes * (1 + len(t.syms))
				}
			}
		}
	}
	s.main.Hold(bytes)
	return f
}

// call is one operator call whose outputs are to be found.
type call struct {
	s     *Shapes
	n     *Node
	depth int // loops around the node
	out   []Fact
}

// in is what is known of an input; of one left out, nothing is. Looking at
// content is charged, so that a model cannot have it looked at without end.
func (c *call) in(i int) Fact {
	f := c.s.Of(c.n.Input(i))
	if !f.tracks() {
		return f
	}
	if c.s.work <= workBudget {
		c.s.work += len(f.Elems) + len(f.Floats)
		for _, d := range f.Elems {
			c.s.work += 4 * len(d.terms)
		}
	}
	if c.s.work > workBudget || i >= maxFollowed && !c.n.Is("Concat") {
		f.Elems, f.Floats = nil, nil
	}
	return f
}

// has reports whether an input is given.
func (c *call) has(i int) bool { return c.n.Input(i) != nil }

func (c *call) set(i int, f Fact) {
	if i < len(c.out) {
		c.out[i] = f
	}
}

// rules tells for each operator how to find what its outputs are. The outputs
// start as unknown.
var rules map[string]func(*call)

func init() {
	rules = map[string]func(*call){}
	for _, group := range []map[string]func(*call){
		arithmeticRules(), castRules(), layoutRules(), indexRules(), joinRules(), makeRules(), reduceRules(),
		productRules(), normRules(), convRules(), quantRules(), attentionRules(), microsoftRules(), controlRules(),
		sequenceRules(), rareRules(),
	} {
		for op, rule := range group {
			if rules[op] != nil {
				panic("graph: two shape rules for " + op)
			}
			rules[op] = rule
		}
	}
}

// unknownRule stands for operators that no rule knows. Their subgraphs are gone
// through with what these declare.
func unknownRule(c *call) {
	for _, sub := range c.n.Subgraphs {
		c.body(sub, nil)
	}
}

// body goes through a subgraph whose inputs are given as far as they are known.
func (c *call) body(g *Graph, inputs []Fact) {
	for i, v := range g.Inputs {
		f := Fact{Rank: -1}
		if i < len(inputs) {
			f = inputs[i]
		}
		c.s.Know(v, c.s.charge(c.s.input(v, f)))
	}
	c.s.enter()
	c.s.graph(g, c.depth+1)
	c.s.leave(g)
}

// shaped is a tensor of which type and shape are known, as far as they are.
func shaped(t onnx.Tensor_DataType, dims ...Dim) Fact {
	return Fact{DType: t, Rank: len(dims), Dims: dims}
}

// unranked is a tensor of which the type is known.
func unranked(t onnx.Tensor_DataType) Fact { return Fact{DType: t, Rank: -1} }

// like is the shape of f without its content, with another type unless that is
// undefined.
func like(f Fact, t onnx.Tensor_DataType) Fact {
	if t == onnx.Tensor_UNDEFINED {
		t = f.DType
	}
	return Fact{DType: t, Rank: f.Rank, Dims: f.Dims}
}

// axisOf is an axis, which may count from the end, among rank axes.
func axisOf(a int64, rank int) (int, bool) {
	if a < 0 {
		a += int64(rank)
	}
	return int(a), a >= 0 && a < int64(rank)
}

func product(dims []Dim) Dim {
	p := DimInt(1)
	for _, d := range dims {
		p = p.Mul(d)
	}
	return p
}

func opName(domain, op string) string {
	if domain == "" || domain == "ai.onnx" {
		return op
	}
	return domain + "." + op
}
