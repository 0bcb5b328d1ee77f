package pattern

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Bounds of what one pattern stands for.
const (
	MaxForms    = 256
	MaxNodes    = 256   // of a form
	MaxAllNodes = 16384 // of all forms
)

// Form is one plain graph that a pattern stands for. Every value is an input, a constant or the output of exactly one
// node; the graph has no cycle and is in one piece; each node leads to an output.
type Form struct {
	Pattern *Pattern
	// Choices says which form it is, "with Add (line 12), alternative 2 of line 14"; "" for the only one.
	Choices   string
	Inputs    []string
	Outputs   []string
	Nodes     []Node // in topological order once it is checked
	Constants []Constant
	Shapes    []Shape
	Types     []Type
	Ranks     []Rank
	Recompute []string
	Same      map[string]string   // names of values that are others in this form
	Lists     map[string][]string // names of what each repetition has of its own, in the order of repetitions
}

// Constant returns the constant of that name.
func (f *Form) Constant(name string) (*Constant, bool) {
	for i := range f.Constants {
		if f.Constants[i].Name == name {
			return &f.Constants[i], true
		}
	}
	return nil, false
}

// Has reports a name that stands for a value in the form.
func (f *Form) Has(name string) bool {
	if len(f.Lists[name]) > 0 {
		return true
	}
	name = f.of(name)
	return f.defines(name)
}

// Resolve is the name in the form of a value that the pattern calls name; "" where the form has none.
func (f *Form) Resolve(name string) string {
	if name = f.of(name); f.defines(name) {
		return name
	}
	return ""
}

// of follows the names that stand for others.
func (f *Form) of(name string) string {
	for range len(f.Same) + 1 {
		next, ok := f.Same[name]
		if !ok {
			break
		}
		name = next
	}
	return name
}

func (f *Form) defines(name string) bool {
	if slices.Contains(f.Inputs, name) ||
		slices.ContainsFunc(f.Constants, func(c Constant) bool { return c.Name == name }) {
		return true
	}
	return f.makes(name)
}

func (f *Form) makes(name string) bool {
	return name != "" && slices.ContainsFunc(f.Nodes, func(n Node) bool { return slices.Contains(n.Out, name) })
}

// draft is a form in the making: what some parts stand for together.
type draft struct {
	nodes   []Node
	same    map[string]string
	lists   map[string][]string
	choices []string
}

func (d draft) and(e draft) draft {
	out := draft{nodes: slices.Concat(d.nodes, e.nodes), same: maps.Clone(d.same), lists: maps.Clone(d.lists),
		choices: slices.Concat(d.choices, e.choices)}
	if out.same == nil {
		out.same = map[string]string{}
	}
	if out.lists == nil {
		out.lists = map[string][]string{}
	}
	maps.Copy(out.same, e.same)
	maps.Copy(out.lists, e.lists)
	return out
}

// TooMany is the error of a pattern that stands for more than one description may.
type TooMany struct{ Found, Needed string }

func (e *TooMany) Error() string { return e.Found + ", needed " + e.Needed }

// Expand lists the forms that a pattern stands for, those with the most nodes first, else in the order of the file.
// Whether each is a graph is not checked.
func (p *Pattern) Expand() ([]Form, error) {
	drafts, err := expand(p.Parts)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(drafts, func(a, b draft) int { return len(b.nodes) - len(a.nodes) })
	forms := make([]Form, 0, len(drafts))
	for _, d := range drafts {
		forms = append(forms, p.form(d))
	}
	return forms, nil
}

func expand(parts []Part) ([]draft, error) {
	list := []draft{{}}
	for i := range parts {
		options, err := parts[i].options()
		if err != nil {
			return nil, err
		}
		if n := len(list) * len(options); n > MaxForms {
			return nil, &TooMany{fmt.Sprintf("stands for more than %d forms", MaxForms),
				"fewer choices; make several operators of it"}
		}
		var next []draft
		total := 0
		for _, d := range list {
			for _, o := range options {
				both := d.and(o)
				if total += len(both.nodes); len(both.nodes) > MaxNodes || total > MaxAllNodes {
					return nil, &TooMany{fmt.Sprintf("stands for more than %d nodes in a form, or %d in all", MaxNodes, MaxAllNodes),
						"fewer repetitions or choices"}
				}
				next = append(next, both)
			}
		}
		list = next
	}
	return list, nil
}

// options are the ways of writing a part.
func (p *Part) options() ([]draft, error) {
	switch {
	case p.Node != nil:
		return p.Node.options(), nil
	case p.Repeat != nil:
		return p.Repeat.options(p.Line)
	}
	var list []draft
	for i, a := range p.AnyOf {
		note := draft{choices: []string{fmt.Sprintf("alternative %d of line %d", i+1, p.Line)}}
		if a.Same != nil {
			list = append(list, note.and(draft{same: a.Same}))
			continue
		}
		options, err := expand(a.Parts)
		if err != nil {
			return nil, err
		}
		for _, o := range options {
			list = append(list, note.and(o))
		}
	}
	return list, nil
}

func (n *Node) options() []draft {
	list := []draft{{nodes: []Node{*n}}}
	for i, name := range n.In {
		if !mayLack(name) {
			continue
		}
		var both []draft
		for _, d := range list {
			for _, in := range []string{Plain(name), ""} {
				node := d.nodes[0]
				node.In = slices.Clone(node.In)
				node.In[i] = in
				with := "with"
				if in == "" {
					with = "without"
				}
				both = append(both, draft{nodes: []Node{node},
					choices: append(slices.Clone(d.choices), fmt.Sprintf("%s %s (line %d)", with, Plain(name), n.Line))})
			}
		}
		list = both
	}
	if n.Optional == "" {
		return list
	}
	for i := range list {
		list[i].choices = append([]string{fmt.Sprintf("with %s (line %d)", n.Op, n.Line)}, list[i].choices...)
	}
	same := map[string]string{}
	for _, name := range n.Out {
		if name != "" {
			same[name] = n.Optional
		}
	}
	return append(list, draft{same: same, choices: []string{fmt.Sprintf("without %s (line %d)", n.Op, n.Line)}})
}

// options are as many copies of the parts as there may be, the most first.
func (r *Repeat) options(line int) ([]draft, error) {
	bodies, err := expand(r.Parts)
	if err != nil {
		return nil, err
	}
	var list []draft
	for times := r.Max; times >= r.Min; times-- {
		for _, body := range bodies {
			d := draft{choices: append([]string{fmt.Sprintf("%d times line %d", times, line)}, body.choices...)}
			if len(body.nodes)*times > MaxNodes || len(list) > MaxForms {
				return nil, &TooMany{fmt.Sprintf("stands for more than %d nodes in a form, or %d forms", MaxNodes, MaxForms),
					"fewer repetitions or choices"}
			}
			for i := range times {
				d = d.and(r.copy(body, i, times))
			}
			if times == 0 {
				d = d.and(draft{same: map[string]string{r.To: r.From}})
			}
			lists := map[string][]string{}
			for _, name := range r.Each {
				lists[name] = []string{}
				for i := range times {
					lists[name] = append(lists[name], numbered(name, i))
				}
			}
			list = append(list, d.and(draft{lists: lists}))
		}
	}
	return list, nil
}

// numbered is what a repetition calls a value of its own: no name of a file has such a sign.
func numbered(name string, i int) string { return fmt.Sprintf("%s#%d", name, i+1) }

// copy is a repetition: its own values have its number, but what the first reads and the last makes is known outside.
func (r *Repeat) copy(body draft, i, times int) draft {
	own := map[string]bool{}
	for _, name := range r.Each {
		own[name] = true
	}
	for _, n := range body.nodes {
		for _, name := range n.Out {
			own[name] = name != ""
		}
	}
	for name := range body.same {
		own[name] = true
	}
	rename := func(name string) string {
		switch {
		case name == r.From && i > 0:
			return numbered(r.To, i-1)
		case name == r.To && i == times-1:
			return name
		case own[name]:
			return numbered(name, i)
		}
		return name
	}
	out := draft{same: map[string]string{}}
	for _, n := range body.nodes {
		n.In, n.Out = renamed(n.In, rename), renamed(n.Out, rename)
		out.nodes = append(out.nodes, n)
	}
	for name, is := range body.same {
		out.same[rename(name)] = rename(is)
	}
	return out
}

func renamed(names []string, by func(string) string) []string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = by(name)
	}
	return list
}

// form gives a draft the names that its values have, and what the pattern says of them.
func (p *Pattern) form(d draft) Form {
	f := Form{Pattern: p, Nodes: d.nodes, Same: d.same, Lists: d.lists, Choices: strings.Join(d.choices, ", ")}
	if f.Same == nil {
		f.Same = map[string]string{}
	}
	for i := range f.Nodes {
		f.Nodes[i].In = renamed(f.Nodes[i].In, f.of)
	}
	// An output that is another value, of a node that is not there, is that value under its own name.
	for _, name := range p.Outputs {
		name = Plain(name)
		made := f.of(name)
		if made == name || !f.makes(made) || slices.ContainsFunc(p.Outputs, func(o string) bool { return Plain(o) == made }) {
			continue
		}
		delete(f.Same, name)
		rename := func(other string) string {
			if other == made {
				return name
			}
			return other
		}
		for i := range f.Nodes {
			f.Nodes[i].In, f.Nodes[i].Out = renamed(f.Nodes[i].In, rename), renamed(f.Nodes[i].Out, rename)
		}
		for other, is := range f.Same {
			f.Same[other] = rename(is)
		}
		f.Same[made] = name
	}
	read := map[string]bool{}
	for _, n := range f.Nodes {
		for _, name := range n.In {
			read[name] = true
		}
	}
	f.Inputs = f.present(p.Inputs, read)
	for _, c := range p.Constants {
		for _, name := range f.copies(c.Name) {
			if read[name] {
				c.Name = name
				f.Constants = append(f.Constants, c)
			}
		}
	}
	for _, name := range p.Outputs {
		if plain := Plain(name); !mayLack(name) || f.makes(plain) {
			f.Outputs = append(f.Outputs, plain)
		}
	}
	for _, s := range p.Shapes {
		for _, name := range f.copies(s.Value) {
			if s.Value = f.Resolve(name); s.Value != "" {
				f.Shapes = append(f.Shapes, s)
			}
		}
	}
	for _, t := range p.Types {
		for _, name := range f.copies(t.Value) {
			if t.Value = f.Resolve(name); t.Value != "" {
				f.Types = append(f.Types, t)
			}
		}
	}
	for _, r := range p.Ranks {
		for _, name := range f.copies(r.Value) {
			if r.Value = f.Resolve(name); r.Value != "" {
				f.Ranks = append(f.Ranks, r)
			}
		}
	}
	for _, name := range p.Recompute {
		if name = f.Resolve(name); f.makes(name) {
			f.Recompute = append(f.Recompute, name)
		}
	}
	return f
}

// copies are the names of a value in the form: one, or that of each repetition.
func (f *Form) copies(name string) []string {
	if list, ok := f.Lists[name]; ok {
		return list
	}
	return []string{name}
}

func (f *Form) present(names []string, read map[string]bool) (list []string) {
	for _, name := range names {
		for _, copied := range f.copies(name) {
			if read[copied] {
				list = append(list, copied)
			}
		}
	}
	return list
}

// Optional reports an output that a replacement makes only if something outside reads it.
func (f *Form) Optional(output string) bool { return slices.Contains(f.Pattern.Outputs, output+"?") }

func unique(names []string) (list []string) {
	for _, name := range names {
		if name != "" && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
