package manifest

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/pattern"
)

// maxDepth is how deep choices and repetitions may stand in each other.
const maxDepth = 4

// parts reads nodes, choices and repetitions.
func (r *reader) parts(n *yaml.Node, what string, p *Pattern, depth int) (out []pattern.Part) {
	for i, item := range r.list(n, what, maxNodes) {
		at := fmt.Sprintf("%s[%d]", what, i)
		key := ""
		if item.Kind == yaml.MappingNode {
			for _, k := range item.Content {
				if k.Value == "any_of" || k.Value == "repeat" {
					key = k.Value
					break
				}
			}
		}
		if key != "" && depth == maxDepth {
			r.fail(item.Line, "%s: choices and repetitions stand in each other more than %d deep; write them out", at, maxDepth)
			continue
		}
		part := pattern.Part{Line: item.Line}
		switch key {
		case "any_of":
			part.AnyOf = r.anyOf(item, at, p, depth+1)
		case "repeat":
			part.Repeat = r.repeat(item, at, p, depth+1)
		default:
			part.Node = r.patternNode(item, at, p)
		}
		if part.Node != nil || part.AnyOf != nil || part.Repeat != nil {
			out = append(out, part)
		}
	}
	return out
}

func (r *reader) anyOf(n *yaml.Node, what string, p *Pattern, depth int) (out []pattern.Alternative) {
	f := r.fields(n, what, "any_of")
	if f == nil || f["any_of"] == nil {
		return nil
	}
	what += ".any_of"
	for i, item := range r.list(f["any_of"], what, maxNodes) {
		at := fmt.Sprintf("%s[%d]", what, i)
		if item.Kind != yaml.MappingNode {
			parts := r.parts(item, at, p, depth)
			if item.Kind == yaml.SequenceNode && len(item.Content) == 0 {
				r.fail(item.Line, "%s is empty, needed nodes, or what its value is without any, as in {y: x}", at)
			}
			out = append(out, pattern.Alternative{Parts: parts})
			continue
		}
		same := map[string]string{}
		entries, _ := r.entries(item, at)
		for _, e := range entries {
			if e.key == "op" {
				r.fail(e.line, "%s is a node, needed a list of nodes; write it in brackets", at)
				break
			}
			same[e.key] = r.match(e.value, at+"."+diagnostic.Clip(e.key), valuePattern, aValueName)
		}
		if len(entries) == 0 {
			r.fail(item.Line, "%s is empty, needed nodes, or what its value is without any, as in {y: x}", at)
		}
		out = append(out, pattern.Alternative{Same: same})
	}
	if f["any_of"].Kind == yaml.SequenceNode && len(out) < 2 {
		r.fail(n.Line, "%s has %d alternatives, needed at least 2; write the nodes without any_of", what, len(out))
	}
	if circular(out) {
		r.fail(n.Line, "%s: a value is itself; name another", what)
	}
	return out
}

func circular(list []pattern.Alternative) bool {
	return slices.ContainsFunc(list, func(a pattern.Alternative) bool {
		for name := range a.Same {
			at := name
			for range len(a.Same) {
				if at = a.Same[at]; at == name {
					return true
				}
			}
		}
		return false
	})
}

func (r *reader) repeat(n *yaml.Node, what string, p *Pattern, depth int) *pattern.Repeat {
	outer := r.fields(n, what, "repeat")
	if outer == nil || outer["repeat"] == nil {
		return nil
	}
	what += ".repeat"
	f := r.fields(outer["repeat"], what, "min", "max", "from", "to", "each", "nodes")
	if f == nil {
		return nil
	}
	before := len(r.problems)
	for _, key := range []string{"max", "from", "to", "nodes"} {
		if f[key] == nil {
			r.fail(n.Line, "%s.%s is missing; add it", what, key)
		}
	}
	if len(r.problems) > before {
		return nil
	}
	out := &pattern.Repeat{Min: 1}
	if f["min"] != nil {
		out.Min = int(r.integer(f["min"], what+".min", 0, pattern.MaxNodes))
	}
	out.Max = int(r.integer(f["max"], what+".max", 1, pattern.MaxNodes))
	if out.Min > out.Max {
		r.fail(f["max"].Line, "%s has min %d above max %d; exchange them", what, out.Min, out.Max)
	}
	out.From, out.To = r.match(f["from"], what+".from", valuePattern, aValueName),
		r.match(f["to"], what+".to", valuePattern, aValueName)
	if f["each"] != nil {
		out.Each = r.names(f["each"], what+".each", false)
	}
	for _, name := range out.Each {
		if _, constant := p.Constant(name); !constant && !slices.Contains(p.Inputs, name) {
			r.fail(f["each"].Line, "%s.each names %s, needed inputs or constants of the pattern", what, name)
		}
	}
	out.Parts = r.parts(f["nodes"], what+".nodes", p, depth)
	if len(r.problems) > before {
		return out
	}
	inner := &Pattern{Parts: out.Parts}
	made, read := inner.Values(), false
	inner.Walk(func(n *pattern.Node) {
		read = read || slices.Contains(n.In, out.From) || slices.Contains(n.In, out.From+"?")
	})
	switch {
	case !slices.Contains(made, out.To):
		r.fail(f["to"].Line, "%s.to is %s, which none of its nodes makes%s; name what each repetition hands to the next",
			what, out.To, suggestion(out.To, made))
	case !read:
		r.fail(f["from"].Line, "%s.from is %s, which none of its nodes reads; name what the first repetition reads", what,
			out.From)
	case slices.Contains(made, out.From):
		r.fail(f["from"].Line, "%s.from is %s, which its own nodes make; name what the first repetition reads from outside",
			what, out.From)
	}
	for _, part := range out.Parts {
		if part.Repeat != nil {
			r.fail(part.Line, "%s holds another repetition; make one of them a choice of nodes", what)
		}
	}
	return out
}

// patternNode reads a node to look for.
func (r *reader) patternNode(n *yaml.Node, what string, p *Pattern) *pattern.Node {
	f := r.fields(n, what, "op", "domain", "in", "out", "attributes", "optional", "commute")
	if f == nil {
		return nil
	}
	with := r.nodeOf(n, f, what, true)
	out := &pattern.Node{Op: with.Op, Domain: with.Domain, In: with.In, Out: with.Out, Attributes: with.Attributes,
		Line: n.Line}
	for i := range out.Attributes {
		if a := &out.Attributes[i]; a.Value == "any" {
			a.Value = pattern.Any{}
		}
	}
	if f["commute"] != nil {
		commute := r.flag(f["commute"], what+".commute")
		out.Commute = &commute
		if commute && len(out.In) < 2 {
			r.fail(f["commute"].Line, "%s.commute is of a node with %d inputs, needed two or more; remove it", what, len(out.In))
		}
	}
	if f["optional"] != nil {
		r.optional(f["optional"], what, out, p)
	}
	return out
}

// optional reads which input stands for the output of a node that may be absent: with true the only one that is no
// constant.
func (r *reader) optional(n *yaml.Node, what string, out *pattern.Node, p *Pattern) {
	var inputs []string
	for _, name := range out.In {
		if _, constant := p.Constant(pattern.Plain(name)); name != "" && !constant && !slices.Contains(inputs, name) {
			inputs = append(inputs, name)
		}
	}
	named := slices.DeleteFunc(slices.Clone(out.Out), func(name string) bool { return name == "" })
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!bool":
		if !r.flag(n, what+".optional") {
			return
		}
		if len(inputs) != 1 {
			r.fail(n.Line, "%s.optional is true of a node with %d inputs that are no constants, so that which of them stands "+
				"for its output is not known; name it, as in optional: x", what, len(inputs))
			return
		}
		out.Optional = inputs[0]
	default:
		out.Optional = r.match(n, what+".optional", valuePattern,
			"true, or the name of the input that stands for the output where the node is not there")
		if out.Optional != "" && !slices.Contains(out.In, out.Optional) {
			r.fail(n.Line, "%s.optional is %s, needed an input of the node: %s", what, out.Optional,
				strings.Join(inputs, " or "))
		}
	}
	if len(named) != 1 {
		r.fail(n.Line, "%s.optional is of a node with %d outputs, needed one; make a choice of it with any_of", what,
			len(named))
	}
}

// nodeOf reads what nodes of patterns and of replacements have in common.
func (r *reader) nodeOf(n *yaml.Node, f map[string]*yaml.Node, what string, lacking bool) (out WithNode) {
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
		out.In = r.marked(f["in"], what+".in", true, lacking)
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
	return out
}

// ElementTypes are those of tensors, by the names that facts have.
var ElementTypes = []string{"float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64",
	"uint32", "uint16", "uint8",
	"bool", "string", "complex64", "complex128", "int4", "uint4", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2",
	"float8e5m2fnuz"}
