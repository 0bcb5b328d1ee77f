package loaded

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/opgraft/graft/host/base/diagnostic"
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
)

// Variants are the plugins' libraries for CUDA. They are looked at when the first session needs them: a
// process that makes none never touches their files, nor a driver.
type Variants struct {
	found   []discovery.Found
	options plugin.OpenOptions

	mu      sync.Mutex
	opened  bool
	plugins []*plugin.Plugin
	refused map[string]string // by plugin: why its library is not used
	unsaid  []error           // of those that may not be used before they are verified
	on      map[int]*Backend  // by the device's number
}

// Backend is what runs sessions on one device.
type Backend struct {
	Plugins []*plugin.Plugin // loaded variants that run there
	Device  *plan.Device     // for the planner
}

func newVariants(found []discovery.Found, o plugin.OpenOptions) *Variants {
	o.Device = "cuda"
	return &Variants{found: found, options: o}
}

// On is what runs sessions on a device of CUDA. cpu are the loaded CPU variants of the same plugins, which
// stand beside them in a session's domain. A nil Variants has nothing.
func (v *Variants) On(number int, cpu []*plugin.Plugin) *Backend {
	device := &plan.Device{Device: tensor.Device{Kind: "cuda", Index: number},
		Operators: map[string][]signature.Operator{}, Without: map[string]string{}}
	if v == nil {
		return &Backend{Device: device}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.on[number]; s != nil {
		return s
	}
	v.open(cpu)
	s := &Backend{Device: device}
	for name, why := range v.refused {
		device.Without[name] = why
	}
	for _, p := range v.plugins {
		score, reason, err := p.Probe(device.Device)
		switch {
		case err != nil:
			device.Without[p.Manifest.Name] = err.Error()
		case score == 0:
			device.Without[p.Manifest.Name] = p.Path + ": " + reason
		default:
			s.Plugins = append(s.Plugins, p)
			device.Operators[p.Manifest.Name] = p.Info.Operators
		}
	}
	if v.on == nil {
		v.on = map[int]*Backend{}
	}
	v.on[number] = s
	return s
}

// Unverified are the errors of libraries that may not be used before they are verified, once.
func (v *Variants) Unverified() []error {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	list := v.unsaid
	v.unsaid = nil
	return list
}

// Alone reports that a plugin has a library for CUDA and none for the CPU.
func (v *Variants) Alone(name string) bool {
	if v == nil {
		return false
	}
	return slices.ContainsFunc(v.found, func(f discovery.Found) bool {
		return f.Manifest.Name == name && f.Manifest.Has(f.Folder, "cuda") && !f.Manifest.Has(f.Folder, "cpu")
	})
}

// open loads the libraries that there are, once.
func (v *Variants) open(cpu []*plugin.Plugin) {
	if v.opened {
		return
	}
	v.opened = true
	v.refused = map[string]string{}
	for _, f := range v.found {
		if _, err := f.Manifest.VariantFor("cuda", manifest.ThisPlatform); err != nil {
			continue
		}
		name := f.Manifest.Name
		p, err := plugin.Open(f.Folder, v.options)
		if err == nil {
			err = sameSignatures(p, cpu)
		}
		if err != nil {
			v.refused[name] = err.Error()
			if errors.Is(err, refusal.ErrVerification) {
				v.unsaid = append(v.unsaid, err)
			}
			continue
		}
		v.plugins = append(v.plugins, p)
	}
}

// sameSignatures refuses a variant that describes an operator otherwise than the CPU's of the same plugin does.
func sameSignatures(p *plugin.Plugin, cpu []*plugin.Plugin) error {
	beside, err := Named(cpu, p.Manifest.Name)
	if err != nil {
		return nil // it stands alone
	}
	for i := range p.Info.Operators {
		op := &p.Info.Operators[i]
		other, _, ok := beside.Info.Operator(op.Name)
		if !ok {
			continue
		}
		if err := signature.Same(other, op); err != nil {
			return &diagnostic.Error{Kind: refusal.ErrIncompatible, Path: p.Path, Cause: err,
				Found:  fmt.Sprintf("found another signature of operator %s than in %s: %v", op.Name, beside.Path, err),
				Needed: "equal inputs, outputs and attributes", Fix: "build all variants of the plugin from the same source"}
		}
	}
	return nil
}

// Plan completes options of Set.Plan for sessions on the device.
func (s *Backend) Plan(o plan.Options) plan.Options {
	o.Device, o.Kernel = s.Device, nil        // a device is not opened for shapes
	if f, ok := o.Folder.(fold.Plugins); ok { // whose CPU variants come first
		f.Loaded = append(f.Loaded[:len(f.Loaded):len(f.Loaded)], s.Plugins...)
		o.Folder = f
	}
	return o
}

// Manifests adds to those of the CPU's plugins those that have a variant for the device alone.
func (s *Backend) Manifests(cpu []*manifest.Manifest) []*manifest.Manifest {
	list := cpu
	for _, p := range s.Plugins {
		if !slices.ContainsFunc(cpu, func(m *manifest.Manifest) bool { return m.Name == p.Manifest.Name }) {
			list = append(list[:len(list):len(list)], p.Manifest)
		}
	}
	return list
}

// Domain gathers operators of the named plugins as the function Domain does: those of the CPU, which a
// session may still need for nodes that its device's provider leaves to it, and those of the device.
func (s *Backend) Domain(cpu []*plugin.Plugin, names, operators []string, l *ort.Library) (operator.Domain, error) {
	var host, device []string
	for _, name := range names {
		_, onHost := Named(cpu, name)
		_, there := Named(s.Plugins, name)
		if onHost != nil && there != nil {
			return operator.Domain{}, errors.Join(onHost, there)
		}
		if onHost == nil {
			host = append(host, name)
		}
		if there == nil {
			device = append(device, name)
		}
	}
	d, err := Domain(cpu, host, operators, l)
	if err != nil {
		return d, err
	}
	more, err := Domain(s.Plugins, device, operators, l)
	d.Operators = append(d.Operators, more.Operators...)
	return d, err
}
