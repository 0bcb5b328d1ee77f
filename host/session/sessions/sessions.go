// Package sessions patches sessions of ONNX Runtime as they are made, on the device where they compute.
package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
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
	Time    time.Duration         // that the analysis of a model may take; 0 for patch.DefaultTime
	Logger  *slog.Logger          // told of every session; nil for silence
	Done    func(*patch.Analysis) // told of every analysis; nil for none
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

	allRows bool // whatever a session says
}

// Patch is the ort.Patcher of these plugins. It returns nil for a model in which
// nothing is replaced.
func (s *Patcher) Patch(r ort.Request) (*ort.Patch, error) { return s.Without(r, nil) }

// Without is Patch of a session in which some choices of the plan are not made: leave has the reasons by their numbers.
func (s *Patcher) Without(r ort.Request, leave map[int]string) (*ort.Patch, error) {
	p, err := s.once(r, leave)
	if errors.Is(err, model.ErrInUse) { // replaced by a new version, which is there now
		p, err = s.once(r, leave)
	}
	return p, err
}

func (s *Patcher) once(r ort.Request, leave map[int]string) (*ort.Patch, error) {
	s, err := s.isolating(r)
	if err != nil {
		return nil, err
	}
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
	s.isolated(r, o, device)
	manifests := loaded.Manifests(s.Plugins)
	backend := &loaded.Backend{}
	if device.Kind == "cuda" {
		backend = s.CUDA.On(device.Index, s.Plugins)
		if err := lockedOn(r, backend.Plugins); err != nil {
			return nil, err
		}
		*o = backend.Plan(*o)
		manifests = backend.Manifests(manifests)
	}
	key := ""
	if device.Kind == tensor.CPU.Kind {
		key = s.key(r, leave)
	}
	found, done := plannedFor(key)
	if found != nil {
		defer done()
		return found.patcher.made(r, found.analysis, backend, device)
	}
	if device.Kind == tensor.CPU.Kind {
		o.Fusions = func() ([]plan.Fusion, error) { return s.fusionsOf(r) }
	}
	rest, a, err := s.analysed(r, leave, manifests, *o)
	if err != nil {
		return nil, err
	}
	defer remember(key, rest, a)()
	return rest.made(r, a, backend, device)
}

// analysed opens a session's model and rewrites its graph as planned. The model is the caller's to close; the Patcher
// is that whose plan it is.
func (s *Patcher) analysed(r ort.Request, leave map[int]string, manifests []*manifest.Manifest,
	o plan.Options) (_ *Patcher, a *patch.Analysis, err error) {
	m, err := Open(r)
	if err != nil {
		return nil, nil, err
	}
	held := false
	defer func() {
		if !held {
			m.Close()
		}
	}()
	ctx := graph.WithProcessorTime(context.Background(), cmp.Or(s.Time, patch.DefaultTime))
	if a, err = patch.Analyse(ctx, m, manifests, o); err != nil {
		return nil, nil, err
	}
	for i, why := range leave {
		if i < len(a.Plan.Choices) {
			a.Plan.Choices[i].Leave(why)
		}
	}
	if a.Plan.Changes() {
		err := a.Apply(ctx)
		if errors.Is(err, patch.ErrPadding) {
			if s.Logger != nil {
				s.Logger.Warn("padding is kept", "model", modelName(r), "reason", err)
			}
			rest := *s
			rest.Options.Padding, rest.allRows = plan.KeepPadding, true
			o.Padding = plan.KeepPadding
			return rest.analysed(r, nil, manifests, o)
		}
		if err != nil {
			return nil, nil, err
		}
		if wrong := a.Misshapen(); len(wrong) > 0 {
			if s.Logger != nil {
				s.Logger.Warn("blocks are left unchanged, because an operator gives results of another shape than they", "model",
					modelName(r), "blocks", len(wrong),
					"reason", wrong[slices.Min(slices.Collect(maps.Keys(wrong)))])
			}
			maps.Copy(wrong, leave)
			return s.analysed(r, wrong, manifests, o)
		}
	}
	held = true
	return s, a, nil
}

// made is what a session is made from, of a rewritten model.
func (s *Patcher) made(r ort.Request, a *patch.Analysis, backend *loaded.Backend, device tensor.Device) (p *ort.Patch,
	err error) {
	if a.Plan.Changes() {
		if p, err = s.patch(a, r, backend, device); err != nil {
			return nil, err
		}
		if r.WayBack {
			p.Plain = s.plain(a.Model, r)
		}
	}
	s.log(r, a, device)
	return p, nil
}

// patch hands over what the session of a rewritten model is made from.
func (s *Patcher) patch(a *patch.Analysis, r ort.Request, backend *loaded.Backend, device tensor.Device) (*ort.Patch,
	error) {
	domain, err := backend.Domain(s.Plugins, a.Plugins(), patch.Placed(a.Model.Proto()), r.Library)
	if err != nil {
		return nil, err
	}
	bound, share := s.memory(r, a.Model.Proto().GetGraph(), device)
	out, err := patch.Serialize(a.Model, a.Model.Proto(), device == tensor.CPU, s.mapped(r), s.share(r))
	if err != nil {
		return nil, err
	}
	p := &ort.Patch{Model: out.Model, ExternalFolder: out.Folder, Weights: out.Weights, Domains: []ort.Domain{domain},
		Hidden:          a.Hidden(),
		NoMemoryPattern: bound, ShareArena: share}
	if apart := loaded.Isolated(s.Plugins, a.Plugins()); len(apart) > 0 {
		p.Apart = apart
	}
	return p, nil
}

// mapped reports a session whose weights lie in files that it maps.
func (s *Patcher) mapped(r ort.Request) bool { return s.MapWeights && r.Path != "" }

// share says whether a session shares its weights with other processes.
func (s *Patcher) share(r ort.Request) shared.Wish {
	switch v, ok := r.Config(ConfigShare); {
	case !ok:
		return s.Share
	case v == "" || v == "0":
		return shared.Never
	}
	return shared.Always
}

// Open reads the model of a session that is about to be made.
func Open(r ort.Request) (*model.Model, error) {
	if r.Path != "" {
		return model.Open(r.Path)
	}
	folder, _ := r.Config(ort.ConfigExternalFolder)
	return model.Parse(r.Model, folder)
}

// log says in one line what a session is about to be made from.
func (s *Patcher) log(r ort.Request, a *patch.Analysis, device tensor.Device) {
	if s.Done != nil {
		s.Done(a)
	}
	if a.Obstacle != "" {
		s.leave(r, a.Obstacle)
		return
	}
	if s.Logger == nil {
		return
	}
	s.Logger.Info("graft: model planned", "model", modelName(r), "device", device.String(), "blocks", len(a.Report.Blocks),
		"replaced", a.Plan.Replaced(), "plugins", a.Plugins(), "unrecognised", len(a.Report.Unrecognised))
}

// plain is the model as the program has it, for the session that takes over when a run of the patched one fails. nil is
// for none.
func (s *Patcher) plain(m *model.Model, r ort.Request) *ort.Plain {
	p, err := plain(m, r)
	if err != nil && s.Logger != nil {
		s.Logger.Info("graft: the session has no way back when an operator fails", "model", modelName(r), "reason", err)
	}
	return p
}

// leave says in one line why a session is left unchanged.
func (s *Patcher) leave(r ort.Request, why string) {
	if s.Logger != nil {
		s.Logger.Info("graft: model left unchanged", "model", modelName(r), "reason", why)
	}
}

func modelName(r ort.Request) string {
	if r.Path == "" {
		return "model bytes"
	}
	return r.Path
}

// options are the session's own, or nil when it is to be left unchanged.
func (s *Patcher) options(r ort.Request) (*plan.Options, error) {
	if v, ok := r.Config(ConfigDisable); ok && v != "" && v != "0" {
		return nil, nil
	}
	o := s.Options
	o.AsTheyLie = o.AsTheyLie || s.mapped(r)
	if v, ok := r.Config(ConfigNoise); ok {
		o.QuantizationNoise = v != "" && v != "0"
	}
	if v, ok := r.Config(ConfigPadding); ok && !s.allRows {
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
