package engine

import (
	"context"
	"maps"
	"slices"

	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/rewrite/linear"
	"github.com/opgraft/graft/host/session/fold"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
)

// Session is one of ONNX Runtime's with the weights that it takes as inputs.
type Session struct {
	*session.Session
	panels  *panels
	given   map[string]*ort.Value // inputs that are the same in every run
	plugins []string
}

// OpenSession makes a session of a graph that prepare made: weights of linear layers are laid
// out anew where PanelBytes has room for them, or are stored as Weights says.
func OpenSession(ctx context.Context, g *prepare.Graph, o Options) (*Session, error) {
	return openSession(ctx, g, o, &report{})
}

// openSession is OpenSession that reports what became of weights.
func openSession(ctx context.Context, g *prepare.Graph, o Options, r *report) (_ *Session, err error) {
	if o.Quantized == nil {
		o.Quantized = fold.UserQuantized(nil)
	}
	s := &Session{plugins: g.Plugins}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.panels, err = pack(g, o); err != nil {
		return nil, err
	}
	if s.panels != nil {
		if err := linear.Fuse(g.Graph, g.Shapes); err != nil {
			return nil, err
		}
	}
	r.session(g.Graph, s.panels)
	domain, err := loaded.Domain(o.Plugins.Plugins, s.plugins, patch.Placed(g.Graph.Model()), o.Library)
	if err != nil {
		return nil, err
	}
	s.Session, err = g.Open(ctx, o.Library, session.Options{
		Unpatched: true, IntraOpThreads: o.Threads, Config: maps.Clone(o.Config), Profile: o.Profile,
		Domains: []operator.Domain{domain}}, o.MapWeights, o.Share)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Run is that of ONNX Runtime's session, with the weights added to the inputs.
func (s *Session) Run(ctx context.Context, inputs map[string]*ort.Value, outputs ...string) ([]*ort.Value, error) {
	if s.panels != nil {
		maps.Copy(inputs, s.panels.tensors)
	}
	maps.Copy(inputs, s.given)
	return s.Session.Run(ctx, inputs, outputs...)
}

// Inputs are those that are not weights.
func (s *Session) Inputs() []ort.ValueInfo {
	return slices.DeleteFunc(slices.Clone(s.Session.Inputs()), func(in ort.ValueInfo) bool {
		return s.given[in.Name] != nil || s.panels != nil && s.panels.tensors[in.Name] != nil
	})
}

// size is the bytes of the weights that were laid out anew.
func (s *Session) size() int64 {
	if s == nil {
		return 0
	}
	return s.panels.size()
}

// Close frees the session and its weights.
func (s *Session) Close() {
	if s == nil {
		return
	}
	if s.Session != nil {
		s.Session.Close()
	}
	s.panels.close()
}
