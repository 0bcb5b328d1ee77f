package random

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/host/session/sessions"
)

// errRefused is that ONNX Runtime alone does not take a graph.
var errRefused = errors.New("ONNX Runtime alone refuses it")

// Counts are what became of a graph.
type Counts struct {
	Blocks, Replaced map[string]int // by operator; blocks of attention are "attention"
	Runs, Refused    int            // runs, and those that ONNX Runtime alone refuses
	// sessions that ONNX Runtime makes of a patched model only without its own optimisations
	Broken int
	Rows   map[string]int // by way, and by which tokens are computed
	Kept   string         // why hidden tokens are computed
}

// way is one in which a model is patched.
type way struct {
	name    string
	force   bool
	padding plan.Padding
}

// ways are those of a graph: of an encoder, those in which its padding is treated.
func (g *Graph) ways() []way {
	if g.Rows == nil {
		return []way{{"forced", true, plan.ExactPadding}, {"default", false, plan.ExactPadding}}
	}
	return []way{{"exact", false, plan.ExactPadding}, {"ignore", true, plan.IgnorePadding},
		{"keep", true, plan.KeepPadding}}
}

// bench is what graphs are run with.
type bench struct {
	library *ort.Library
	set     *loaded.Set
	near    bool // answers in float16 are near those of ONNX Runtime in float16, however far both are from float32
}

// check compares the answers of a graph: with plugins in each of its ways, with ONNX Runtime alone with its
// optimisations and without. It is errRefused where that does not take the graph.
func (b *bench) check(ctx context.Context, g *Graph, threads int) (c Counts, err error) {
	c = Counts{Blocks: map[string]int{}, Replaced: map[string]int{}, Rows: map[string]int{}}
	bytes, err := proto.Marshal(g.Model)
	if err != nil {
		return c, err
	}
	quiet := session.Options{IntraOpThreads: threads, Unpatched: true, LogSeverity: session.LogFatal,
		Config: map[string]string{"session.intra_op.allow_spinning": "0"}}
	open := func(o session.Options) *session.Session {
		if err != nil {
			return nil
		}
		var s *session.Session
		s, err = session.FromBytes(b.library, bytes, o)
		return s
	}
	closes := func(s *session.Session) {
		if s != nil {
			s.Close()
		}
	}
	plain := open(quiet)
	defer func() { closes(plain) }()
	bare := quiet
	bare.Optimization = session.OptimizeNone
	literal := open(bare)
	defer func() { closes(literal) }()
	if err != nil {
		return c, fmt.Errorf("%w: %w", errRefused, err)
	}
	patched := map[string]*session.Session{}
	defer func() {
		for _, s := range patched {
			closes(s)
		}
	}()
	seen := map[string]bool{"": true} // plans
	hidden := map[string]*session.Hidden{}
	for at, way := range g.ways() {
		var a *patch.Analysis
		with := quiet
		with.Unpatched = false
		p := &sessions.Patcher{Plugins: b.set.Plugins,
			Options: b.set.Plan(plan.Options{Force: way.force, Padding: way.padding})}
		choices := ""
		with.Patcher = func(r session.Request) (*session.Patch, error) {
			planned, err := p.Plan(context.Background(), r)
			if err != nil {
				return nil, err
			}
			a = planned.Analysis
			patch, err := planned.Patch()
			if err == nil {
				for _, one := range a.Plan.Choices {
					if one.Operator != nil {
						choices += fmt.Sprintln(one.Node, one.Operator.Name, a.Plan.Rows())
					}
				}
			}
			if at > 0 && seen[choices] {
				return nil, errors.Join(err, errSame)
			}
			return patch, err
		}
		s := open(with)
		if errors.Is(err, errSame) {
			err = nil
			continue
		}
		if err != nil { // a program's session stays as it is then
			broken := err
			err, choices, with.Optimization = nil, "", session.OptimizeNone
			if s = open(with); err != nil {
				return c, fmt.Errorf("%s: %w", way.name, broken)
			}
			c.Broken++
		}
		patched[way.name], hidden[way.name] = s, a.Hidden()
		seen[choices] = true
		if at == 0 {
			c.count(a)
			c.Kept = a.PaddingReason
		}
		if rows := a.Plan.Rows(); rows != plan.AllRows {
			c.Rows[way.name+" "+string(rows)]++
		}
	}
	for i, feed := range g.Runs {
		r := &run{bench: b, graph: g, feed: feed, options: quiet, plain: plain, literal: literal, patched: patched,
			hidden: hidden}
		refused, err := r.compare(ctx)
		c.Runs++
		if refused {
			c.Refused++
		}
		if err != nil {
			return c, fmt.Errorf("run %d: %w", i, err)
		}
	}
	return c, nil
}

// errSame is that a plan is one of those before, or none.
var errSame = errors.New("the plan is known")

func (c *Counts) count(a *patch.Analysis) {
	for _, choice := range a.Plan.Choices {
		kind := choice.Kind
		if choice.Operator != nil {
			c.Replaced[choice.Operator.Name]++
		}
		if choice.Match != nil {
			kind = "pattern"
		}
		c.Blocks[kind]++
	}
}
