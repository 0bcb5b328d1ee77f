// Package loaded holds the plugins that are loaded, and those of their variants that run on a device.
package loaded

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/host/session/fold"
	"github.com/opgraft/graft/host/session/isolation"
)

// Set is the loaded plugins, in order of preference.
type Set struct {
	Plugins []*plugin.Plugin
	Search  *discovery.Search
	Refused []error   // plugins that were found and could not be loaded
	CUDA    *Variants // what they have for CUDA, not loaded yet
}

// Load finds plugins and loads their CPU variants. folders are searched first.
// Plugins that cannot be loaded are left out and listed as refused; it is an
// error only when plugins were found and none could be loaded, or none was found.
// A plugin that has a library for CUDA alone waits for the sessions that need it. Where LockVariable names a lock
// file, that is Ways.Lock.
func Load(folders []string, unverified bool) (*Set, error) {
	return LoadWith(folders, unverified, Ways{Lock: os.Getenv(LockVariable)})
}

// Ways say what is loaded in another way than all plugins are.
type Ways struct {
	// Lock is the path of a lock file, "" for none: what it names is loaded, and no other; of a plugin of several
	// versions the one that is as the lock says, whichever is current. It is an error when one is not there, or cannot
	// be loaded.
	Lock string
	// Isolate names plugins whose code runs in workers; nil for none. One of these that cannot be loaded is an error.
	Isolate *Isolate
}

// LoadWith is Load in such ways, and reads no variable.
func LoadWith(folders []string, unverified bool, ways Ways) (*Set, error) {
	s := &Set{Search: discovery.Find(discovery.Options{Folders: folders})}
	open := plugin.OpenOptions{AcceptUnverified: unverified}
	if ways.Lock != "" {
		var err error
		if s.Search, open.Locked, err = locked(s.Search, ways.Lock); err != nil {
			return s, err
		}
	}
	s.CUDA = newVariants(slices.DeleteFunc(s.Search.Plugins(),
		func(f discovery.Found) bool { return ways.Isolate.has(f.Manifest.Name) }), open)
	waits := 0
	var apart []string // names of plugins that have to run apart first
	var last error
	for _, f := range s.Search.Found {
		if f.ShadowedBy != "" {
			continue
		}
		if f.Err != nil {
			s.Refused = append(s.Refused, f.Err)
			continue
		}
		if ways.Isolate.has(f.Manifest.Name) {
			p, err := isolation.Open(f.Folder, open, ways.Isolate.Options)
			if err != nil {
				return nil, err
			}
			s.Plugins = append(s.Plugins, p)
			continue
		}
		if f.Manifest.Has(f.Folder, "cuda") && !f.Manifest.Has(f.Folder, "cpu") {
			waits++
			continue
		}
		p, err := plugin.Open(f.Folder, open)
		if errors.Is(err, refusal.ErrUnverified) {
			apart, last = append(apart, f.Manifest.Name), err
			continue
		}
		if err != nil {
			s.Refused = append(s.Refused, err)
			continue
		}
		s.Plugins = append(s.Plugins, p)
	}
	switch len(apart) {
	case 0:
	case 1:
		s.Refused = append(s.Refused, last)
	default:
		s.Refused = append(s.Refused, notVerified(apart, folders))
	}
	if ways.Lock != "" && len(s.Refused) > 0 {
		return s, errors.Join(s.Refused...)
	}
	if len(s.Plugins) > 0 || waits > 0 && len(s.Refused) == 0 {
		return s, nil
	}
	if len(s.Refused) > 0 {
		return s, errors.Join(s.Refused...)
	}
	return s, s.Search.Err()
}

// notVerified is one error for plugins of these names, which all need the same.
func notVerified(names, folders []string) error {
	fix := "run: graft doctor --fix"
	for _, folder := range folders {
		fix += " --plugins-dir " + diagnostic.Quote(folder)
	}
	return &diagnostic.Error{Kind: refusal.ErrUnverified,
		Found:  fmt.Sprintf("found %d plugins that have not been verified here (%s)", len(names), strings.Join(names, ", ")),
		Needed: "ones that graft has run apart from this program first", Fix: fix}
}

// Manifests are those of the plugins, in their order.
func (s *Set) Manifests() []*manifest.Manifest { return plugin.Manifests(s.Plugins) }

// Versions are those of plugins, in the order of their names.
func (s *Set) Versions(names []string) []string {
	list := []string{}
	for _, name := range names {
		version := ""
		if p, err := Named(s.Plugins, name); err == nil {
			version = p.Manifest.Version
		}
		list = append(list, version)
	}
	return list
}

// Names are those of the plugins, in their order.
func (s *Set) Names() []string {
	names := []string{}
	for _, p := range s.Plugins {
		names = append(names, p.Manifest.Name)
	}
	return names
}

// Libraries are the paths of the named plugins' libraries, by which a program finds the version that is current:
// those for a device after the CPU's; on is nil for the CPU alone.
func (s *Set) Libraries(names []string, on *Backend) []string {
	list := []string{}
	for path := range s.Hashed(names, on) {
		list = append(list, path)
	}
	return list
}

// Hashed are the paths of Libraries, with the SHA-256 of the bytes that were verified.
func (s *Set) Hashed(names []string, on *Backend) iter.Seq2[string, string] {
	return func(yield func(path, sum string) bool) {
		var plugins []*plugin.Plugin
		plugins = append(plugins, s.Plugins...)
		if on != nil {
			plugins = append(plugins, on.Plugins...)
		}
		for _, p := range plugins {
			if slices.Contains(names, p.Manifest.Name) &&
				!yield(filepath.Join(discovery.Linked(p.Folder), filepath.Base(p.Path)), p.SHA256) {
				return
			}
		}
	}
}

// On is what runs on a device, nil for the CPU.
func (s *Set) On(d tensor.Device) *Backend {
	if d.Kind != "cuda" {
		return nil
	}
	return s.CUDA.On(d.Index, s.Plugins)
}

// Plan completes options with what the plugins' own code computes, which is stored in the
// user's cache folder, and with how they describe their operators.
func (s *Set) Plan(o plan.Options) plan.Options {
	o.Folder = fold.Plugins{Cache: fold.User(nil), Loaded: s.Plugins}
	o.Described = map[string][]signature.Operator{}
	for _, p := range s.Plugins {
		o.Described[p.Manifest.Name] = p.Info.Operators
	}
	o.Kernel = Kernels(s.Plugins)
	return o
}

// Kernels makes kernels of nodes with the plugins' code, with no constants.
func Kernels(plugins []*plugin.Plugin) func(name string, n *onnx.Node) (plan.Kernel, error) {
	return func(name string, n *onnx.Node) (plan.Kernel, error) {
		p, err := Named(plugins, name)
		if err != nil {
			return nil, err
		}
		return kernel(p, n)
	}
}

func kernel(p *plugin.Plugin, n *onnx.Node) (plan.Kernel, error) {
	var attributes []manifest.Attribute
	for _, a := range n.GetAttribute() {
		attributes = append(attributes, manifest.Attribute{Name: a.GetName(), Value: attributeOf(a)})
	}
	if x := isolation.For(p); x != nil {
		return x.Kernel(n.GetOpType(), attributes, len(n.GetInput()))
	}
	return p.Create(n.GetOpType(), attributes, make([]*tensor.Tensor, len(n.GetInput())), tensor.CPU)
}

// attributeOf is a value that a kernel is made with; nil for kinds that there are none of.
func attributeOf(a *onnx.Attribute) any {
	switch a.GetType() {
	case onnx.Attribute_INT:
		return a.GetI()
	case onnx.Attribute_FLOAT:
		return float64(a.GetF())
	case onnx.Attribute_STRING:
		return string(a.GetS())
	case onnx.Attribute_INTS:
		return a.GetInts()
	case onnx.Attribute_FLOATS:
		list := make([]float64, len(a.GetFloats()))
		for i, x := range a.GetFloats() {
			list[i] = float64(x)
		}
		return list
	}
	return nil
}

// Named finds a plugin by name. Without one, the error is of kind refusal.ErrNotFound.
func Named(plugins []*plugin.Plugin, name string) (*plugin.Plugin, error) {
	var have []string
	for _, p := range plugins {
		if p.Manifest.Name == name {
			return p, nil
		}
		have = append(have, p.Manifest.Name)
	}
	refused := &diagnostic.Error{Kind: refusal.ErrNotFound, Fix: "see graft plugin list",
		Found: fmt.Sprintf("no plugin %q is loaded", name)}
	switch like := diagnostic.Nearest(name, have); {
	case like != "":
		refused.Fix = fmt.Sprintf("did you mean %s? graft plugin list shows all", like)
	case len(have) == 0:
		refused.Found += ", and no other"
	default:
		refused.Found += ", found " + strings.Join(have, ", ")
	}
	return nil, refused
}

// Require reports the first of the names that no loaded plugin has.
func (s *Set) Require(names []string) error {
	for _, name := range names {
		if s.CUDA.Alone(name) {
			continue
		}
		if _, err := Named(s.Plugins, name); err != nil {
			return err
		}
	}
	return nil
}

// Domain gathers those operators of the named plugins that stand in a model as ONNX Runtime takes them, and
// no other: each is listed by its name in operators.
func Domain(plugins []*plugin.Plugin, names, operators []string, l *ort.Library) (operator.Domain, error) {
	d := operator.Domain{Name: manifest.Domain}
	base, err := l.APIBase()
	if err != nil {
		return d, err
	}
	for _, name := range names {
		p, err := Named(plugins, name)
		if err != nil {
			return d, err
		}
		ops, err := operatorsOf(p, base, l)
		if err != nil {
			return d, err
		}
		for _, op := range ops {
			if slices.Contains(operators, operator.Name(op)) {
				d.Operators = append(d.Operators, op)
			}
		}
	}
	return d, nil
}

// operatorsOf are a plugin's, or those that stand for them where its code runs in a worker.
func operatorsOf(p *plugin.Plugin, base uintptr, l *ort.Library) ([]uintptr, error) {
	if x := isolation.For(p); x != nil {
		return x.Operators(l)
	}
	return p.OrtOps(base)
}
