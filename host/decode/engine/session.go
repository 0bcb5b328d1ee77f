package engine

import (
	"context"
	"maps"
	"slices"

	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/patch"
	"github.com/opgraft/graft/host/rewrite"
)

// Session is one of ONNX Runtime's with the weights that it takes as inputs.
type Session struct {
	*ort.Session
	panels  *panels
	given   map[string]*ort.Value // inputs that are the same in every run
	plugins []string
}

// OpenSession opens a model as an engine opens an encoder: plugins stand in wherever
// they can, and weights of products are laid out anew.
func OpenSession(path string, o Options) (*Session, error) {
	m, err := model.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return newSession(m, o, nil)
}

// newSession lets plugins stand in wherever the plan gains by them, lays out the
// weights of their products and makes a session of the result. edit, which may be
// nil, changes the graph as soon as plugins stand in it. The graph has operators of the
// plugins that are named already.
func newSession(m *model.Model, o Options, edit func(*graph.Graph) error, with ...string) (_ *Session, err error) {
	// A step has few rows nearly always, unlike what the plan must reckon with when
	// it knows no more of a model than its graph: what can serve, serves.
	chosen := o.Plan
	chosen.Force = true
	a, err := patch.Analyse(m, o.Plugins.Manifests(), o.Plugins.Plan(chosen))
	if err != nil {
		return nil, err
	}
	if err := a.Apply(); err != nil {
		return nil, err
	}
	plugins := []string{attentionPlugin}
	for _, name := range append(with, a.Plugins()...) {
		if !slices.Contains(plugins, name) {
			plugins = append(plugins, name)
		}
	}
	s := &Session{plugins: plugins}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	g, err := graph.New(m.Proto(), m)
	if err != nil {
		return nil, err
	}
	if edit != nil {
		if err := edit(g); err != nil {
			return nil, err
		}
	}
	if err := rewrite.DropReshapes(g, graph.Infer(g)); err != nil {
		return nil, err
	}
	if s.panels, err = pack(o.Library, m, g, o.Plugins.Plugins, o.PanelBytes, o.Threads); err != nil {
		return nil, err
	}
	if s.panels != nil {
		if g, err = graph.New(m.Proto(), m); err != nil {
			return nil, err
		}
		if err := rewrite.FuseProducts(g, graph.Infer(g)); err != nil {
			return nil, err
		}
	}
	domain, err := patch.Domain(o.Plugins.Plugins, plugins, o.Library)
	if err != nil {
		return nil, err
	}
	s.Session, err = open(o.Library, m, m.Proto(), ort.SessionOptions{
		Plain: true, IntraOpThreads: o.Threads, Config: maps.Clone(o.Config), Profile: o.Profile, Domains: []ort.Domain{domain}})
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
