package verification

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/pattern"
	"github.com/opgraft/graft/host/plugin/signature"
)

// declared reports what a manifest says of its operators and the library, ONNX or the host does not: nodes that no
// operator takes, and facts that no block has.
func declared(m *manifest.Manifest, library []signature.Operator, device string) error {
	for i := range m.Operators {
		op := &m.Operators[i]
		fail := func(format string, args ...any) error {
			return fmt.Errorf("operator %s: %s", op.Name, fmt.Sprintf(format, args...))
		}
		if p := op.Replaces.Pattern; p != nil {
			var problem error
			p.Walk(func(n *pattern.Node) {
				if n.Domain == "" && problem == nil {
					problem = signature.AcceptONNX(manifest.WithNode{Op: n.Op, In: n.In, Out: n.Out, Attributes: n.Attributes})
				}
			})
			if problem != nil {
				return fail("pattern: %v", problem)
			}
		}
		for _, form := range op.Forms() {
			for _, n := range form.With.Nodes {
				var err error
				switch n.Domain {
				case "":
					err = signature.AcceptONNX(n)
				case manifest.Domain:
					if described := signature.Find(library, n.Op); described != nil {
						err = described.Accept(n)
					} else if device == "cpu" { // another variant may have fewer
						err = fmt.Errorf("the library has no operator %s; it has %s", n.Op,
							cmp.Or(strings.Join(names(library), ", "), "none"))
					}
				}
				if err != nil {
					return fail("with: %v", err)
				}
			}
		}
		known := facts(op)
		for _, c := range op.Where {
			if known != nil && !slices.Contains(known, c.Fact) {
				return fail("where: no fact is called %s%s; there are %s", c.Fact, meant(c.Fact, known), strings.Join(known, ", "))
			}
			if err := elementTypes(c); err != nil {
				return fail("where: %v", err)
			}
		}
	}
	return nil
}

// meant asks for the name nearest to one that there is not, or is empty.
func meant(name string, known []string) string {
	if near := diagnostic.Nearest(name, known); near != "" {
		return ", did you mean " + near + "?"
	}
	return ""
}

// elementTypes reports a value of the fact dtype that is no element type, for which a constraint never holds.
func elementTypes(c manifest.Constraint) error {
	if c.Fact != "dtype" {
		return nil
	}
	for _, value := range c.OneOf {
		name := fmt.Sprint(value)
		if slices.Contains(manifest.ElementTypes, name) {
			continue
		}
		return fmt.Errorf("no element type is called %s%s; there are %s", diagnostic.Clip(name),
			meant(name, manifest.ElementTypes), strings.Join(manifest.ElementTypes, ", "))
	}
	return nil
}

func names(library []signature.Operator) []string {
	list := make([]string, len(library))
	for i, op := range library {
		list[i] = op.Name
	}
	return list
}

// facts are those that constraints of an operator may name.
func facts(op *manifest.Operator) []string {
	if op.Replaces.Block != "" {
		return slices.Sorted(maps.Keys((&blocks.Block{Attention: &blocks.Attention{}}).Facts()))
	}
	p := op.Replaces.Pattern
	if p == nil {
		return nil
	}
	asked := make([]string, len(op.Where))
	for i, c := range op.Where {
		asked[i] = c.Fact
	}
	return append(p.FactNames(asked), "cpu_vnni")
}
