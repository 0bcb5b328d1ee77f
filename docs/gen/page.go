package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/types"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

const introduction = `# The keys of -o json

What each command prints with ` + "`-o json`" + `. This page is made from the types that the commands print, by
` + "`go generate ./cmd/graft`" + `; [cli.md](cli.md) says what the commands are for.

Names say their unit: ` + "`_ms`, `_s`, `_us`, `_bytes`, `_gb_s`" + `; shares are from 0 to 1. A list ends with ` + "`[]`" + `, and an object whose keys
are names of the user's with ` + "`{}`" + `. A key with ` + "`?`" + ` is absent where it says nothing, and one that stands in
several places is explained in the first. *Italic* names are objects of another command, or of several: these are at the
end. Each object that a command prints begins with ` + "`schema_version`" + `.
`

// page renders the objects, and at the end those that are parts of several.
func (p *program) page(objects []object) []byte {
	slices.SortStableFunc(objects, func(a, b object) int { return strings.Compare(a.title, b.title) })
	r := &renderer{program: p, uses: map[string]int{}, titles: map[string]string{}, said: map[string]bool{}}
	for i := range objects {
		if i > 0 && objects[i-1].title == objects[i].title {
			objects[i].title += ", of several"
		}
	}
	objects = merged(objects)
	for _, o := range objects {
		if name := nameOf(structOf(o.t)); name != "" {
			r.titles[name] = o.title
		}
	}
	for _, o := range objects {
		r.count(o.t, map[string]bool{})
	}
	r.text.WriteString(introduction)
	for _, o := range objects {
		fmt.Fprintf(&r.text, "\n## %s\n\n", o.title)
		r.object("- ", "- ", "", o.t)
	}
	r.text.WriteString("\n## Objects of several commands\n\n")
	for i := 0; i < len(r.shared); i++ { // more are found on the way
		t := r.shared[i]
		r.object("- *"+r.short(nameOf(t))+"*: ", "  - ", "", t)
	}
	return append(bytes.TrimRight(r.text.Bytes(), "\n"), '\n')
}

// merged has one object for all commands that print the same type.
func merged(objects []object) []object {
	var list []object
	for _, o := range objects {
		same := func(l object) bool { return nameOf(structOf(o.t)) != "" && types.Identical(o.t, l.t) }
		if i := slices.IndexFunc(list, same); i >= 0 {
			list[i].title += ", " + o.title
		} else {
			list = append(list, o)
		}
	}
	return list
}

type renderer struct {
	*program
	text   bytes.Buffer
	uses   map[string]int    // of named structs
	titles map[string]string // of named structs that are printed themselves
	shared []types.Type
	said   map[string]bool // names of keys with their comments: each is explained where it stands first
}

// count counts where each named struct is used.
func (r *renderer) count(t types.Type, above map[string]bool) {
	for _, f := range r.fields(t) {
		inner := structOf(f.t)
		if inner == nil {
			continue
		}
		if name := nameOf(inner); name != "" {
			r.uses[name]++
			if r.uses[name] > 1 || above[name] {
				continue
			}
			above[name] = true
		}
		r.count(inner, above)
	}
}

// elsewhere is what to write for an object whose keys stand in another place: its title, or its name in italics.
func (r *renderer) elsewhere(t types.Type) string {
	name := nameOf(t)
	switch {
	case name == "manifest.Manifest":
		return " (the plugin.yaml)"
	case r.titles[name] != "":
		return " *" + r.titles[name] + "*"
	case r.uses[name] < 2:
		return ""
	}
	if !slices.ContainsFunc(r.shared, func(s types.Type) bool { return nameOf(s) == name }) {
		r.shared = append(r.shared, t)
	}
	return " *" + r.short(name) + "*"
}

// standsElsewhere says whether elsewhere has a place for a type.
func (r *renderer) standsElsewhere(t types.Type) bool {
	name := nameOf(structOf(t))
	return r.uses[name] > 1 || r.titles[name] != ""
}

// short is a type's name without its package, unless another package has one of that name.
func (r *renderer) short(name string) string {
	base := name[strings.LastIndex(name, ".")+1:]
	for other := range r.uses {
		if other != name && (other == base || strings.HasSuffix(other, "."+base)) {
			return name
		}
	}
	return base
}

// object writes a line of an object's keys after first, and below it one after mark for each object in it.
func (r *renderer) object(first, mark, path string, t types.Type) {
	var keys, bare []string // bare keys have one code span together
	flush := func() {
		if len(bare) > 0 {
			keys = append(keys, "`"+strings.Join(bare, ", ")+"`")
		}
		bare = nil
	}
	var below []field
	for _, f := range r.fields(t) {
		if f.name == "schema_version" {
			continue
		}
		inner := structOf(f.t)
		if f.embedded {
			flush()
			keys = append(keys, "the keys of"+r.elsewhere(inner))
			continue
		}
		note := ""
		if inner != nil {
			if note = r.elsewhere(inner); note == "" {
				below = append(below, f)
			}
		}
		if said := f.name + ": " + f.comment; f.comment != "" && !r.said[said] {
			r.said[said] = true
			note += " (" + f.comment + ")"
		}
		key := f.name + suffix(f.t) + f.optional
		if note == "" {
			bare = append(bare, key)
			continue
		}
		flush()
		keys = append(keys, "`"+key+"`"+note)
	}
	flush()
	fmt.Fprintf(&r.text, "%s%s\n", first, strings.Join(keys, ", "))
	for _, f := range below {
		p := path + strings.Repeat(".", min(len(path), 1)) + f.name + suffix(f.t)
		r.object(mark+"`"+p+"`: ", mark, p, structOf(f.t))
	}
}

// field is a key of an object.
type field struct {
	name, optional, comment string
	t                       types.Type
	embedded                bool // all its keys, in place
}

// fields are those of a struct as encoding/json writes them, embedded structs in place.
func (r *renderer) fields(t types.Type) []field {
	var list []field
	s, ok := deref(t).Underlying().(*types.Struct)
	if !ok {
		return nil
	}
	for i := range s.NumFields() {
		v := s.Field(i)
		tag := reflect.StructTag(s.Tag(i)).Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case name == "-" || !v.Exported() && !v.Embedded():
			continue
		case v.Embedded() && name == "" && r.standsElsewhere(v.Type()):
			list = append(list, field{t: v.Type(), embedded: true})
			continue
		case v.Embedded() && name == "":
			list = append(list, r.fields(v.Type())...)
			continue
		case name == "":
			name = v.Name()
		}
		f := field{name: name, t: v.Type(), comment: r.comment(v)}
		if strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero") {
			f.optional = "?"
		}
		list = append(list, f)
	}
	return list
}

// deref is what a pointer points to.
func deref(t types.Type) types.Type {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		return p.Elem()
	}
	return t
}

// structOf is the struct in lists, maps and pointers of a type that encoding/json writes as an object.
func structOf(t types.Type) types.Type {
	if types.NewMethodSet(types.NewPointer(deref(t))).Lookup(nil, "MarshalJSON") != nil {
		return nil
	}
	switch u := t.Underlying().(type) {
	case *types.Pointer:
		return structOf(u.Elem())
	case *types.Slice:
		return structOf(u.Elem())
	case *types.Array:
		return structOf(u.Elem())
	case *types.Map:
		return structOf(u.Elem())
	case *types.Struct:
		for v := range u.Fields() {
			if v.Exported() || v.Embedded() {
				return t
			}
		}
	}
	return nil
}

func suffix(t types.Type) string {
	switch u := t.Underlying().(type) {
	case *types.Pointer:
		return suffix(u.Elem())
	case *types.Slice:
		if b, ok := u.Elem().Underlying().(*types.Basic); ok && b.Kind() == types.Byte {
			return ""
		}
		return "[]" + suffix(u.Elem())
	case *types.Map:
		return "{}" + suffix(u.Elem())
	}
	return ""
}

// nameOf is a named type's, with its package where that is not the command's own.
func nameOf(t types.Type) string {
	if t == nil {
		return ""
	}
	n, ok := types.Unalias(t).(*types.Named)
	if !ok {
		return ""
	}
	if n.Obj().Pkg().Name() == "main" {
		return n.Obj().Name()
	}
	return n.Obj().Pkg().Name() + "." + n.Obj().Name()
}

var sentence = regexp.MustCompile(`^(?:[^;.]|\.\S|e\.g\.)*`)

var begins = regexp.MustCompile(`^(is|are|says|holds|lists) `)

// internal are words of Go in a comment, which say nothing to who reads JSON.
var internal = regexp.MustCompile(`\bnil\b|\b[A-Za-z]+\.[A-Z]`)

// comment is what stands beside a field in its source, or above it, to the end of the first clause.
func (p *program) comment(v *types.Var) string {
	at := p.files.Position(v.Pos())
	at.Filename = strings.TrimPrefix(at.Filename, module+"/") // built with -trimpath
	if p.comments[at.Filename] == nil {
		p.comments[at.Filename] = p.readComments(at.Filename)
	}
	text := sentence.FindString(strings.Join(strings.Fields(p.comments[at.Filename][at.Line]), " "))
	if rest, ok := strings.CutPrefix(text, v.Name()+" "); ok {
		text = begins.ReplaceAllString(rest, "")
	}
	const enough = 36
	if len(text) > enough {
		if at := max(strings.LastIndex(text[:enough], ", "), strings.LastIndex(text[:enough], ": ")); at > 0 {
			text = text[:at]
		}
	}
	if internal.MatchString(text) || strings.Count(text, "(") != strings.Count(text, ")") || len(text) > enough {
		return ""
	}
	return strings.NewReplacer("*", "", "<", "&lt;").Replace(strings.TrimSuffix(text, "."))
}

// readComments finds the comments of all fields of a file, by the line of the field's name.
func (p *program) readComments(name string) map[int]string {
	found := map[int]string{}
	f, err := parser.ParseFile(p.files, name, nil, parser.ParseComments)
	if err != nil {
		return found
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok {
			text := f.Comment.Text()
			if text == "" {
				text = f.Doc.Text()
			}
			for _, n := range f.Names {
				found[p.files.Position(n.Pos()).Line] = text
			}
		}
		return true
	})
	return found
}
