package patch

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Entries of ONNX Runtime's own session config by which a program steers one
// session.
const (
	ConfigDisable = "graft.disable" // "1": this session is not patched
	ConfigPlugins = "graft.plugins" // names of the plugins to use, with commas between
)

// Sessions patches sessions as they are made.
type Sessions struct {
	Plugins []*plugin.Plugin // loaded, in order of preference
	CUDA    *Variants        // what there is for sessions with the CUDA provider; nil for nothing
	Options plan.Options
	Logger  *slog.Logger    // told of every session; nil for silence
	Done    func(*Analysis) // told of every analysis; nil for none
}

// Patch is the ort.Patcher of these plugins. It returns nil for a model in which
// nothing is replaced.
func (s *Sessions) Patch(r ort.Request) (p *ort.Patch, err error) {
	o, err := s.options(r)
	if err != nil || o == nil {
		return nil, err
	}
	device, obstacle, err := deviceOf(r)
	if err != nil {
		return nil, err
	}
	if obstacle != "" {
		s.leave(r, obstacle)
		return nil, nil
	}
	manifests := Manifests(s.Plugins)
	served := &Served{}
	if device.Kind == "cuda" {
		served = s.CUDA.On(device.Index, s.Plugins)
		*o = served.Plan(*o)
		manifests = served.Manifests(manifests)
	}
	m, err := open(r)
	if err != nil {
		return nil, err
	}
	defer func() {
		if p == nil {
			m.Close()
		}
	}()
	a, err := Analyse(m, manifests, *o)
	if err != nil {
		return nil, err
	}
	if a.Plan.Replaced() > 0 {
		if err := a.Apply(); err != nil {
			return nil, err
		}
	}
	if a.Plan.Replaced() > 0 {
		if p, err = s.patch(a, r, served); err != nil {
			return nil, err
		}
		// External files lie in the model's mapping, which ONNX Runtime still reads.
		p.Done = func() { m.Close() }
	}
	s.log(r, a, device)
	return p, nil
}

// patch hands over what the session of a rewritten model is made from.
func (s *Sessions) patch(a *Analysis, r ort.Request, served *Served) (*ort.Patch, error) {
	out, err := a.Model.Serialize(a.Model.Proto(), model.SerializeOptions{InMemory: r.Path == ""})
	if err != nil {
		return nil, err
	}
	domain, err := served.domain(s.Plugins, a.Plugins(), r.Library)
	if err != nil {
		return nil, err
	}
	p := &ort.Patch{Model: out.Bytes, ExternalFolder: out.Folder, Domains: []ort.Domain{domain}}
	for _, f := range out.Memory {
		if p.ExternalFiles == nil {
			p.ExternalFiles = map[string][]byte{}
		}
		p.ExternalFiles[f.Name] = f.Data
	}
	return p, nil
}

func open(r ort.Request) (*model.Model, error) {
	if r.Path != "" {
		return model.Open(r.Path)
	}
	folder, _ := r.Config(ort.ConfigExternalFolder)
	return model.Parse(r.Model, folder)
}

// log says in one line what a session is about to be made from.
func (s *Sessions) log(r ort.Request, a *Analysis, device tensor.Device) {
	if s.Done != nil {
		s.Done(a)
	}
	if s.Logger == nil {
		return
	}
	s.Logger.Info("graft: model planned", "model", modelName(r), "device", device.String(), "blocks", len(a.Report.Blocks),
		"replaced", a.Plan.Replaced(), "plugins", a.Plugins(), "unrecognised", len(a.Report.Unrecognised))
}

// leave says in one line why a session is left as it is.
func (s *Sessions) leave(r ort.Request, why string) {
	if s.Logger != nil {
		s.Logger.Info("graft: model left as it is", "model", modelName(r), "reason", why)
	}
}

func modelName(r ort.Request) string {
	if r.Path == "" {
		return "model bytes"
	}
	return r.Path
}

// options are the session's own, or nil when it asks to be left alone.
func (s *Sessions) options(r ort.Request) (*plan.Options, error) {
	if v, ok := r.Config(ConfigDisable); ok && v != "" && v != "0" {
		return nil, nil
	}
	o := s.Options
	if v, ok := r.Config(ConfigPlugins); ok {
		o.Plugins = []string{}
		for _, name := range strings.Split(v, ",") {
			if name = strings.TrimSpace(name); name == "" {
				continue
			}
			if _, err := Named(s.Plugins, name); err != nil && !s.CUDA.alone(name) {
				return nil, fmt.Errorf("session config entry %s: %w", ConfigPlugins, err)
			}
			o.Plugins = append(o.Plugins, name)
		}
	}
	return &o, nil
}
