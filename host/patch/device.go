package patch

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/opgraft/graft/host/diagnostic"
	"github.com/opgraft/graft/host/fold"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// ConfigDevice is the session config entry by which a program says on which device a session computes:
// "cpu", "cuda", or "cuda:1" for a device of another number. It is for sessions whose providers cannot be
// seen; the others' are.
const ConfigDevice = "graft.device"

// ParseDevice reads "cpu", "cuda" or "cuda:NUMBER".
func ParseDevice(text string) (tensor.Device, error) {
	kind, number, numbered := strings.Cut(text, ":")
	d := tensor.Device{Kind: kind}
	switch {
	case kind == "cpu" && !numbered, kind == "cuda" && !numbered:
		return d, nil
	case kind == "cuda":
		if n, err := strconv.ParseUint(number, 10, 16); err == nil {
			d.Index = int(n)
			return d, nil
		}
	}
	return d, fmt.Errorf("found device %q, needed cpu, cuda or cuda:NUMBER", text)
}

// onDevice are providers that keep tensors on a device for which plugins have no variants.
var onDevice = map[string]bool{
	"TensorrtExecutionProvider": true, "NvTensorRTRTXExecutionProvider": true, "CudaPluginExecutionProvider": true,
	"ROCMExecutionProvider": true, "MIGraphXExecutionProvider": true, "CANNExecutionProvider": true,
	"DmlExecutionProvider": true, "WebGpuExecutionProvider": true, "JsExecutionProvider": true,
}

// deviceOf says where a session computes, by its config entry or its providers. An obstacle is the reason
// why no installed plugin can.
func deviceOf(r ort.Request) (d tensor.Device, obstacle string, err error) {
	if text, ok := r.Config(ConfigDevice); ok {
		if d, err = ParseDevice(text); err != nil {
			err = fmt.Errorf("session config entry %s: %w", ConfigDevice, err)
		}
		return d, "", err
	}
	d, obstacle = deviceFor(r.Appended())
	return d, obstacle, nil
}

func deviceFor(appended []ort.Appended, automatic bool) (d tensor.Device, obstacle string) {
	const say = "; the session config entry " + ConfigDevice + " can say where it computes"
	for _, p := range appended {
		switch {
		case p.Name == ort.CUDA:
			return tensor.Device{Kind: "cuda", Index: p.Device}, ""
		case onDevice[p.Name]:
			return d, "its tensors lie with " + p.Name + ", for which plugins have no operators" + say
		}
	}
	if automatic {
		return d, "ONNX Runtime chooses its providers" + say
	}
	return tensor.CPU, ""
}

// Variants are the plugins' libraries for CUDA. They are looked at when the first session needs them: a
// process that makes none never touches their files, nor a driver.
type Variants struct {
	found   []discovery.Found
	options plugin.OpenOptions

	mu      sync.Mutex
	opened  bool
	plugins []*plugin.Plugin
	refused map[string]string // by plugin: why its library is not used
	on      map[int]*Served   // by the device's number
}

// Served is what serves sessions on one device.
type Served struct {
	Plugins []*plugin.Plugin // loaded variants that run there
	Device  *plan.Device     // the same as the planner needs it
}

func newVariants(found []discovery.Found, o plugin.OpenOptions) *Variants {
	o.Device = "cuda"
	return &Variants{found: found, options: o}
}

// On is what serves sessions on a device of CUDA. cpu are the loaded CPU variants of the same plugins, which
// stand beside them in a session's domain. A nil Variants has nothing.
func (v *Variants) On(number int, cpu []*plugin.Plugin) *Served {
	device := &plan.Device{Device: tensor.Device{Kind: "cuda", Index: number}, Operators: map[string][]signature.Operator{}, Without: map[string]string{}}
	if v == nil {
		return &Served{Device: device}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.on[number]; s != nil {
		return s
	}
	v.open(cpu)
	s := &Served{Device: device}
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
		v.on = map[int]*Served{}
	}
	v.on[number] = s
	return s
}

// alone reports that a plugin has a library for CUDA and none for the CPU.
func (v *Variants) alone(name string) bool {
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
			err = sameFaces(p, cpu)
		}
		if err != nil {
			v.refused[name] = err.Error()
			continue
		}
		v.plugins = append(v.plugins, p)
	}
}

// sameFaces refuses a variant that describes an operator otherwise than the CPU's of the same plugin does.
func sameFaces(p *plugin.Plugin, cpu []*plugin.Plugin) error {
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
func (s *Served) Plan(o plan.Options) plan.Options {
	o.Device = s.Device
	if f, ok := o.Folder.(fold.Plugins); ok { // whose CPU variants come first
		f.Loaded = append(f.Loaded[:len(f.Loaded):len(f.Loaded)], s.Plugins...)
		o.Folder = f
	}
	return o
}

// Manifests adds to those of the CPU's plugins those that have a variant for the device alone.
func (s *Served) Manifests(cpu []*manifest.Manifest) []*manifest.Manifest {
	list := cpu
	for _, p := range s.Plugins {
		if !slices.ContainsFunc(cpu, func(m *manifest.Manifest) bool { return m.Name == p.Manifest.Name }) {
			list = append(list[:len(list):len(list)], p.Manifest)
		}
	}
	return list
}

// domain gathers the operators of the named plugins: those of the CPU, which a session may still need for
// nodes that its device's provider leaves to it, and those of the device.
func (s *Served) domain(cpu []*plugin.Plugin, names []string, l *ort.Library) (ort.Domain, error) {
	var host, device []string
	for _, name := range names {
		_, onHost := Named(cpu, name)
		_, there := Named(s.Plugins, name)
		if onHost != nil && there != nil {
			return ort.Domain{}, errors.Join(onHost, there)
		}
		if onHost == nil {
			host = append(host, name)
		}
		if there == nil {
			device = append(device, name)
		}
	}
	d, err := Domain(cpu, host, l)
	if err != nil {
		return d, err
	}
	more, err := Domain(s.Plugins, device, l)
	d.Operators = append(d.Operators, more.Operators...)
	return d, err
}
