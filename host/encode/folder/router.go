package folder

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// route reads a Router: modules of queries and modules of documents, or others by name. Each route becomes a folder
// with the modules before it, and those that come after the Router.
func (f *Folder) route(folder string, given bool) error {
	path := filepath.Join(folder, "router_config.json")
	o, found, err := readObject(path, "router_config.json")
	if err == nil && !found {
		path = filepath.Join(folder, "config.json") // before 5.0
		o, found, err = readObject(path, "router_config.json")
	}
	if err != nil {
		return err
	}
	if !found {
		return &diagnostic.Error{Path: path, Found: "there is no such file", Needed: "the routes of the Router"}
	}
	types, structure := map[string]string{}, map[string][]string{}
	o.value("types", "classes of modules by name", &types)
	order := keysOf(o.keys["structure"])
	o.value("structure", "lists of modules by route", &structure)
	fallback := ""
	if p, ok := o.inner("parameters"); ok {
		fallback, _ = p.text("default_route")
		p.refuse("route_mappings", "{}", "use routes named query and document")
		if p.bool("allow_empty_key", true) && fallback == "" && len(order) > 0 {
			fallback = order[0]
		}
		if err := p.close(); err != nil {
			return err
		}
	}
	if err := o.close(); err != nil {
		return err
	}
	if len(structure) == 0 || fallback != "" && structure[fallback] == nil {
		return &diagnostic.Error{Path: path, Found: fmt.Sprintf("%d routes and the default route %q", len(structure),
			diagnostic.Clip(fallback)), Needed: "routes, and one of them"}
	}
	f.Routes, f.Fallback = map[string]*Folder{}, fallback
	for _, name := range slices.Sorted(maps.Keys(structure)) {
		r := *f
		r.Routes, r.Modules = nil, slices.Clone(f.Modules)
		for i, id := range structure[name] {
			part, err := inside(folder, path, id)
			if err != nil {
				return err
			}
			if err := r.add(part, path, types[id], i == 0 && !given); err != nil {
				return err
			}
		}
		if len(structure[name]) == 0 && !given {
			return &diagnostic.Error{Path: path, Found: fmt.Sprintf("no modules of the route %q", diagnostic.Clip(name)),
				Needed: "one that reads texts"}
		}
		f.Routes[name] = &r
	}
	return nil
}

// keysOf are the keys of an object, in their order.
func keysOf(data json.RawMessage) (keys []string) {
	d := json.NewDecoder(strings.NewReader(string(data)))
	for depth := 0; ; {
		t, err := d.Token()
		if err != nil {
			return keys
		}
		switch s, ok := t.(string); {
		case t == json.Delim('{') || t == json.Delim('['):
			depth++
		case t == json.Delim('}') || t == json.Delim(']'):
			depth--
		case ok && depth == 1:
			keys = append(keys, s)
		}
	}
}

// For is the folder of a task: a Router's route of that name, or the one for texts, or the default one.
func (f *Folder) For(task Task) (*Folder, error) {
	if f.Routes == nil {
		return f, nil
	}
	for _, name := range []string{string(task), "text"} {
		if r := f.Routes[name]; r != nil {
			return r, nil
		}
	}
	if r := f.Routes[f.Fallback]; r != nil && task == "" {
		return r, nil
	}
	return nil, &diagnostic.Error{Path: f.Path, Found: fmt.Sprintf("no route for the task %q", task),
		Needed: "one of " + strings.Join(slices.Sorted(maps.Keys(f.Routes)), ", ")}
}
