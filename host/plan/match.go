package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/pattern"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Match is one place where a form of an operator's pattern was found.
type Match struct {
	*pattern.Match
	Graph    *graph.Graph
	Operator *manifest.Operator
	With     manifest.With            // what stands in its place
	Folded   map[string]tensor.Weight // what the plugin's fold made of the captured constants
}

// Leaves reports an output that nothing reads, in the model or in the replacement, and that the pattern lets a
// replacement leave out.
func (m *Match) Leaves(output string) bool {
	return slices.Contains(m.Unread, output) && m.Form.Optional(output) &&
		!slices.ContainsFunc(m.With.Nodes, func(n manifest.WithNode) bool { return slices.Contains(n.In, output) })
}

// Folder computes weights from weights with a plugin's own fold. An error of kind
// refusal.ErrFold means that the constants do not qualify.
type Folder interface {
	Fold(plugin string, operator string, constants []tensor.Weight, attributes []manifest.Attribute) ([]tensor.Weight,
		error)
}

// patterns looks for the patterns of all operators, away from nodes that a
// chosen block or an earlier match takes.
func patterns(g *graph.Graph, e *estimator, p *Plan, by provided, manifests []*manifest.Manifest,
	o Options) []Choice {
	taken := map[*graph.Node]bool{}
	for _, c := range p.Choices {
		if c.Operator != nil && c.Block != nil {
			for _, n := range e.region(c.Block) {
				taken[n] = true
			}
		}
	}
	var choices []Choice
	finder := pattern.NewFinder(g, e.shapes)
	isTaken := func(n *graph.Node) bool { return taken[n] }
	for _, m := range manifests {
		for i := range m.Operators {
			op := &m.Operators[i]
			if op.Replaces.Pattern == nil || by.surplus(m, op) || o.excludes(m.Name, op.Name, "") != "" && o.Fixed == nil {
				continue
			}
			choices = append(choices, forms(e, finder, m, op, o, taken, isTaken)...)
		}
	}
	return choices
}

// forms looks for the forms of one operator's pattern, the largest first. Of the reasons for which forms with the
// same last node are left one is told, and none where a smaller form is taken after all.
func forms(e *estimator, finder *pattern.Finder, m *manifest.Manifest, op *manifest.Operator, o Options,
	taken map[*graph.Node]bool, isTaken func(*graph.Node) bool) (choices []Choice) {
	for _, form := range op.Forms() {
		givenUp := finder.Each(form.Form, isTaken, func(found *pattern.Match) {
			if found.Stretched() {
				return
			}
			c := decide(e, m, &Match{Match: found, Graph: found.Nodes[0].Graph, Operator: op, With: form.With}, o)
			if c.Operator != nil {
				for _, used := range found.Nodes {
					taken[used] = true
				}
				choices = slices.DeleteFunc(choices,
					func(old Choice) bool { return old.Operator == nil && isTaken(old.Match.last()) })
			} else if slices.ContainsFunc(choices, func(old Choice) bool { return old.Match.last() == c.Match.last() }) {
				return
			}
			choices = append(choices, c)
		})
		if givenUp {
			choices = append(choices,
				Choice{Kind: "pattern", Node: "the model",
					Reason: fmt.Sprintf("%s: the search for %s was given up: the graph has too many places that are like a part of "+
						"its pattern", m.Name, op.Name)})
			break
		}
	}
	return choices
}

// last is the node that a match is named after.
func (m *Match) last() *graph.Node {
	if m == nil {
		return nil
	}
	return m.Nodes[len(m.Nodes)-1]
}

// ends are the values that a match reads, captured constants included, and makes.
func (m *Match) ends() (ins, outs []*graph.Value) {
	ins, outs = values(m, m.Form.Inputs), values(m, m.Form.Outputs)
	for _, k := range m.Form.Constants {
		ins = append(ins, m.Values[k.Name])
	}
	return ins, outs
}

// decide weighs one match: constraints, fold, expectation.
func decide(e *estimator, m *manifest.Manifest, match *Match, o Options) Choice {
	op := match.Operator
	c := Choice{Node: match.last().Path(), Kind: "pattern", Match: match}
	if why := o.excludes(m.Name, op.Name, c.Node); why != "" {
		c.Reason = why
		return c
	}
	facts := match.facts()
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
	if why := match.Unequal(); why != "" {
		c.Reason = m.Name + ": " + why
		return c
	}
	product, q := match.product()
	if q != nil {
		if why := e.cannotTake(m, op, q, o); why != "" {
			c.Reason = m.Name + ": " + why
			return c
		}
	}
	ins, outs := match.ends()
	x := e.compare(match.Gone(), ins, outs, e.work(match.Nodes), graph.Dim{}, e.cost(op))
	if work, some := e.integerWork(match.Nodes); some {
		x = e.compareIntegers(ins, outs, work, e.cost(op))
	}
	if q != nil {
		x = e.compareNBits(product, q, e.cost(op))
		if why := e.noGain(x, q); why != "" && !o.Force && o.Fixed == nil {
			c.Reason = m.Name + ": " + why
			return c
		}
	}
	if len(match.With.Fold) > 0 {
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
	for _, k := range match.Form.Constants {
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
	for _, k := range match.Form.Constants {
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

// facts of a match, for constraints, and whether the CPU has VNNI.
func (m *Match) facts() map[string]any {
	f := m.Facts()
	f["cpu_vnni"] = vnni()
	return f
}

func values(m *Match, names []string) []*graph.Value {
	list := make([]*graph.Value, len(names))
	for i, n := range names {
		list[i] = m.Values[n]
	}
	return list
}
