// Package sessions patches sessions of ONNX Runtime as they are made, on the device where they compute.
package sessions

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/host/session/isolation"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
)

// Entries of ONNX Runtime's own session config by which a program steers one
// session.
const (
	ConfigDisable = "graft.disable"                   // "1": this session is not patched
	ConfigPlugins = "graft.plugins"                   // names of the plugins to use, with commas between
	ConfigNoise   = "graft.accept_quantization_noise" // "1": answers of a quantised model may move, "0": they may not
	ConfigMemory  = "graft.bound_memory"              // "1": as Patcher.BoundMemory, "0": as Patcher.OwnArenas
	ConfigPadding = "graft.padding"                   // "exact", "ignore" or "keep": what becomes of hidden tokens
	ConfigShare   = "graft.share_weights"             // "1": as shared.Always, "0": as shared.Never
	ConfigIsolate = "graft.isolate"                   // names of plugins whose kernels run in workers, with commas between
	ConfigLock    = "graft.lock"                      // a lock file, of whose plugins alone the session is made
)

// Patcher patches sessions with a set of plugins.
type Patcher struct {
	Plugins []*plugin.Plugin // loaded, in order of preference
	CUDA    *loaded.Variants // what there is for sessions with the CUDA provider; nil for nothing
	Options plan.Options
	Time    time.Duration // that the analysis of a model may take; 0 for patch.DefaultTime
	Logger  *slog.Logger  // told of every session; nil for silence
	// MapWeights lets sessions map their models' files, which must not change then, instead of holding weights.
	MapWeights bool
	// Share says whether sessions share weights with those of other processes.
	Share shared.Wish
	// BoundMemory has sessions plan no block of memory for each combination of input shapes, also where all shapes are
	// fixed.
	BoundMemory bool
	// Isolation says how plugins are isolated for which a session asks for that.
	Isolation isolation.Options
	// OwnArenas has each session hold what it computes with as ONNX Runtime would, in an arena of its own.
	OwnArenas bool

	applies func(context.Context, *patch.Analysis) error // Analysis.Apply, for tests; nil for that
}

// Patch is the session.Patcher of these plugins. It returns nil for a model in which nothing is replaced. A file that
// was
// replaced by a new version meanwhile is read once more.
func (s *Patcher) Patch(r session.Request) (*session.Patch, error) {
	return model.ReadAgainIfChanged(func() (*session.Patch, error) {
		p, err := s.Plan(context.Background(), r)
		if err != nil {
			return nil, err
		}
		return p.Patch()
	})
}

// mapped reports a session whose weights lie in files that it maps.
func (s *Patcher) mapped(r session.Request) bool { return s.MapWeights && r.Path != "" }

// share says whether a session shares its weights with other processes.
func (s *Patcher) share(r session.Request) shared.Wish {
	switch v, ok := r.Config(ConfigShare); {
	case !ok:
		return s.Share
	case v == "" || v == "0":
		return shared.Never
	}
	return shared.Always
}

// Open reads the model of a session that is about to be made.
func Open(r session.Request) (*model.Model, error) {
	if r.Path != "" {
		return model.Open(r.Path)
	}
	folder, _ := r.Config(session.ConfigExternalFolder)
	return model.Parse(r.Model, folder)
}

// log says in one line what a session is about to be made from.
func (s *Patcher) log(r session.Request, a *patch.Analysis, device tensor.Device) {
	if a.Obstacle != "" {
		s.logUnchanged(r, a.Obstacle)
		return
	}
	if s.Logger == nil {
		return
	}
	s.Logger.Info("graft: model planned", "model", modelName(r), "device", device.String(), "blocks", len(a.Plan.Choices),
		"replaced", a.Plan.Replaced(), "plugins", a.Plugins(), "unrecognised", len(a.Report.Unrecognised))
}

// plain is the model as the program has it, for the session that takes over when a run of the patched one fails. nil is
// for none.
func (s *Patcher) plain(m *model.Model, r session.Request) *session.Plain {
	p, err := plain(m, r)
	if err != nil && s.Logger != nil {
		s.Logger.Info("graft: the session has no way back when an operator fails", "model", modelName(r), "reason", err)
	}
	return p
}

// logUnchanged says in one line why a session is left unchanged.
func (s *Patcher) logUnchanged(r session.Request, why string) {
	if s.Logger != nil {
		s.Logger.Info("graft: model left unchanged", "model", modelName(r), "reason", why)
	}
}

func modelName(r session.Request) string {
	if r.Path == "" {
		return "model bytes"
	}
	return r.Path
}

// options are the session's own, or nil when it is to be left unchanged.
func (s *Patcher) options(r session.Request) (*plan.Options, error) {
	if v, ok := r.Config(ConfigDisable); ok && v != "" && v != "0" {
		return nil, nil
	}
	o := s.Options
	o.AsTheyLie = o.AsTheyLie || s.mapped(r)
	if v, ok := r.Config(ConfigNoise); ok {
		o.QuantizationNoise = v != "" && v != "0"
	}
	if v, ok := r.Config(ConfigPadding); ok {
		p, err := plan.ParsePadding(v)
		if err != nil {
			return nil, fmt.Errorf("session config entry %s: %w", ConfigPadding, err)
		}
		o.Padding = p
	}
	if v, ok := r.Config(ConfigPlugins); ok {
		o.Plugins = []string{}
		for _, name := range names(v) {
			if _, err := loaded.Named(s.Plugins, name); err != nil && !s.CUDA.Alone(name) {
				return nil, fmt.Errorf("session config entry %s: %w", ConfigPlugins, err)
			}
			o.Plugins = append(o.Plugins, name)
		}
	}
	if path, ok := r.Config(ConfigLock); ok && path != "" {
		if err := s.lock(&o, path); err != nil {
			return nil, fmt.Errorf("session config entry %s: %w", ConfigLock, err)
		}
	}
	return &o, nil
}
