package sessions

import (
	"cmp"
	"context"
	"errors"
	"maps"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
)

// Planned is the plan of one session: its model as it was read, and rewritten in memory. It ends with Patch or Close.
type Planned struct {
	// Analysis is what was recognised and chosen. It may be read when the plan has ended, but for the model's weights.
	Analysis *patch.Analysis

	patcher *Patcher
	request session.Request
	backend *loaded.Backend
	device  tensor.Device
	release func() // the model, which sessions of the same plan may share
}

// Plan reads a session's model and plans what replaces which of its parts. It is nil for a session that is to stay as
// it is, by its entries or because of its device.
func (s *Patcher) Plan(ctx context.Context, r session.Request) (*Planned, error) {
	return s.plan(ctx, r, nil, nil)
}

// PlanWithout is Plan with some operators left out.
func (s *Patcher) PlanWithout(ctx context.Context, r session.Request, these plan.LeftOut) (*Planned, error) {
	return s.plan(ctx, r, these, nil)
}

// PlanViewed is Plan for a model that the caller has opened and viewed, with patch.ViewFor. View and model belong to
// the plan from then on, and are closed where there is none.
func (s *Patcher) PlanViewed(ctx context.Context, r session.Request, view *patch.Analysis) (*Planned, error) {
	return s.plan(ctx, r, nil, view)
}

func (s *Patcher) plan(ctx context.Context, r session.Request, without plan.LeftOut, view *patch.Analysis) (_ *Planned,
	err error) {
	defer func() {
		if view != nil {
			view.Model.Close()
		}
	}()
	if s, err = s.isolating(r); err != nil {
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
		s.logUnchanged(r, obstacle)
		return nil, nil
	}
	s.isolated(r, o, device)
	p := &Planned{patcher: s, request: r, backend: &loaded.Backend{}, device: device}
	manifests := plugin.Manifests(s.Plugins)
	if device.Kind == "cuda" {
		p.backend = s.CUDA.On(device.Index, s.Plugins)
		if s.Logger != nil {
			for _, err := range s.CUDA.Unverified() {
				s.Logger.Warn("a library for CUDA is not used", "reason", err)
			}
		}
		if err := lockedOn(r, p.backend.Plugins); err != nil {
			return nil, err
		}
		*o = p.backend.Plan(*o)
		manifests = p.backend.Manifests(manifests)
	}
	from, key := view, ""
	if device.Kind == tensor.CPU.Kind {
		o.Fusions = func() ([]plan.Fusion, error) { return s.fusionsOf(ctx, r) }
		if view == nil {
			key = s.key(r, without)
		}
		view = nil // rewritten's
	} else {
		from = nil // operators are taken apart for the CPU alone
	}
	if p.Analysis, p.release = planKeptFor(key); p.Analysis != nil {
		return p, nil
	}
	if p.Analysis, err = s.rewritten(ctx, r, from, without, manifests, *o); err != nil {
		return nil, err
	}
	p.release = keepPlan(key, p.Analysis)
	return p, nil
}

// rewritten plans a session's model, from a view of it or from its file, and rewrites its graph. What turns out not to
// be possible is planned anew without it, from the file. The model is the caller's to close.
func (s *Patcher) rewritten(ctx context.Context, r session.Request, view *patch.Analysis, without plan.LeftOut,
	manifests []*manifest.Manifest, o plan.Options) (*patch.Analysis, error) {
	for {
		a, err := s.rewrittenOnce(ctx, r, view, without, manifests, o)
		switch {
		case errors.Is(err, patch.ErrPadding):
			if s.Logger != nil {
				s.Logger.Warn("padding is kept", "model", modelName(r), "reason", err)
			}
			o.Padding = plan.KeepPadding
		case err != nil:
			return nil, err
		default:
			wrong := a.Misshapen()
			if len(wrong) == 0 {
				return a, nil
			}
			a.Model.Close()
			if s.Logger != nil {
				s.Logger.Warn("blocks are left unchanged, because an operator gives results of another shape than they", "model",
					modelName(r), "blocks", len(wrong), "reason", wrong[wrong.Sorted()[0]])
			}
			maps.Copy(wrong, without)
			without = wrong
		}
		view = nil
	}
}

// rewrittenOnce is rewritten with nothing planned anew. The model is closed with an error.
func (s *Patcher) rewrittenOnce(ctx context.Context, r session.Request, view *patch.Analysis, without plan.LeftOut,
	manifests []*manifest.Manifest, o plan.Options) (_ *patch.Analysis, err error) {
	ctx = graph.WithProcessorTime(ctx, cmp.Or(s.Time, patch.DefaultTime))
	a := view
	if a == nil {
		m, err := Open(r)
		if err != nil {
			return nil, err
		}
		if a, err = patch.ViewFor(ctx, m, o); err != nil {
			m.Close()
			return nil, err
		}
	}
	if err = a.Choose(ctx, manifests, o); err == nil {
		a.Plan.LeaveOut(without)
		if a.Plan.Changes() {
			err = s.apply(ctx, a)
		}
	}
	if err != nil {
		a.Model.Close()
		return nil, err
	}
	return a, nil
}

// apply rewrites a model as planned.
func (s *Patcher) apply(ctx context.Context, a *patch.Analysis) error {
	if s.applies != nil {
		return s.applies(ctx, a)
	}
	return a.Apply(ctx)
}

// Close ends a plan of which no session is made.
func (p *Planned) Close() {
	if p != nil {
		p.release()
	}
}

// Patch hands over what the session is made from, and ends the plan. It is nil where nothing is replaced.
func (p *Planned) Patch() (made *session.Patch, err error) {
	if p == nil {
		return nil, nil
	}
	defer p.Close()
	if p.Analysis.Plan.Changes() {
		if made, err = p.serialized(); err != nil {
			return nil, err
		}
		if p.request.WayBack {
			made.Plain = p.patcher.plain(p.Analysis.Model, p.request)
		}
	}
	p.patcher.log(p.request, p.Analysis, p.device)
	return made, nil
}

func (p *Planned) serialized() (*session.Patch, error) {
	s, a, r := p.patcher, p.Analysis, p.request
	domain, err := p.backend.Domain(s.Plugins, a.Plugins(), patch.Placed(a.Model.Proto()), r.Library)
	if err != nil {
		return nil, err
	}
	bound, share := s.memory(r, a.Model.Proto().GetGraph(), p.device)
	out, err := patch.Serialize(a.Model, a.Model.Proto(), p.device == tensor.CPU, s.mapped(r), s.share(r))
	if err != nil {
		return nil, err
	}
	made := &session.Patch{Model: out.Model, ExternalFolder: out.Folder, Weights: out.Weights,
		Domains: []operator.Domain{domain}, Hidden: a.Hidden(), NoMemoryPattern: bound, ShareArena: share}
	if isolated := loaded.Isolated(s.Plugins, a.Plugins()); len(isolated) > 0 {
		made.Apart = isolated
	}
	return made, nil
}
