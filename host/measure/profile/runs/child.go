package runs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/sessions"
)

// The child's tasks, which are its stages.
const (
	taskOpen   = "profile"
	taskRounds = "profile rounds"
	taskEnd    = "profile end"
)

type openAnswer struct {
	Refused  []string
	Plugins  []string
	Replaced int
	Stands   map[string]string // values of the patched model by those of the model that they were put in the place of
	Inputs   []inputs.Info
	Workload inputs.Workload
	Lengths  map[string]int64
}

type roundsRequest struct{ Warmup, AtMost int }

type roundsAnswer struct{ Run, Profiled []float64 }

// Tasks are what an executable that can be a child does for Apart: pass them to worker.Main. A child does one job.
func Tasks() map[string]worker.Handler {
	var h *here
	var once sync.Once
	opened := func() (*here, error) {
		if h == nil || h.run == nil || h.profiled == nil {
			return nil, errors.New("no model is open")
		}
		return h, nil
	}
	return map[string]worker.Handler{
		taskOpen: comparison.Task(func(ctx context.Context, j Job) (a openAnswer, err error) {
			err = errors.New("a model is open")
			once.Do(func() { h, a, err = open(ctx, j) })
			return a, err
		}),
		taskRounds: comparison.Task(func(ctx context.Context, r roundsRequest) (a roundsAnswer, err error) {
			h, err := opened()
			if err == nil {
				a, err = h.rounds(ctx, r)
			}
			return a, err
		}),
		taskEnd: comparison.Task(func(context.Context, struct{}) (e comparison.Environment, err error) {
			h, err := opened()
			if err == nil {
				h.profiled.Close() // which writes the end of the profile
				h.profiled = nil
				e = comparison.Measure(h.library)
			}
			return e, err
		}),
	}
}

// here is a model with its two sessions.
type here struct {
	model         string
	library       *ort.Library
	fed           *inputs.Batch
	run, profiled *session.Session
}

func open(ctx context.Context, j Job) (h *here, a openAnswer, err error) {
	o := j.Options
	h = &here{model: j.Model}
	if h.library, err = ort.FindAndOpen(j.Runtime); err != nil {
		return nil, a, err
	}
	set, refused, err := comparison.Plugins(j.Folders, o.Patched)
	a.Refused = refused
	if err != nil {
		return nil, a, err
	}
	if h.fed, err = inputs.Make(h.library, j.Model, o.Inputs); err != nil {
		return nil, a, err
	}
	a.Inputs, a.Workload, a.Lengths = h.fed.Infos, h.fed.Workload, h.fed.Lengths
	// Threads that wait awake for the next run would do so on the cores of the other session.
	so := session.Options{IntraOpThreads: o.Threads, Unpatched: true,
		Config: map[string]string{"session.force_spinning_stop": "1"}}
	a.Plugins = []string{}
	if o.Patched {
		po := plan.Options{Plugins: o.Plugins, Except: o.Except, Force: o.Force, QuantizationNoise: o.QuantizationNoise,
			Padding: o.Padding, Fixed: o.Fixed}
		so.Unpatched = false
		s := &sessions.Patcher{Plugins: set.Plugins, Options: set.Plan(po)}
		so.Patcher = func(r session.Request) (*session.Patch, error) {
			p, err := s.Plan(ctx, r)
			if p == nil || err != nil {
				return nil, err
			}
			x := p.Analysis
			a.Replaced, a.Stands = x.Plan.Replaced(), x.Graph.Stands()
			if list := x.Plugins(); list != nil {
				a.Plugins = list
			}
			return p.Patch()
		}
	}
	if h.run, err = session.OpenContext(ctx, h.library, j.Model, so); err != nil {
		return nil, a, err
	}
	so.Profile, so.OptimizedModel = filepath.Join(j.Scratch, profilePrefix), filepath.Join(j.Scratch, graphFile)
	so.LogSeverity = session.LogError // it warns that the graph is for this machine
	so.Config = map[string]string{"session.force_spinning_stop": "1",
		"session.optimized_model_external_initializers_file_name":         weightsFile,
		"session.optimized_model_external_initializers_min_size_in_bytes": "1024"}
	if h.profiled, err = session.OpenContext(ctx, h.library, j.Model, so); err != nil {
		h.run.Close()
		return nil, a, err
	}
	// A first run says whether there is one, and makes what later runs have.
	for _, s := range []*session.Session{h.run, h.profiled} {
		if _, err := h.once(ctx, s); err != nil {
			return nil, a, err
		}
	}
	return h, a, nil
}

// once is a run of a session, in milliseconds.
func (h *here) once(ctx context.Context, s *session.Session) (float64, error) {
	start := time.Now()
	results, err := s.Run(ctx, h.fed.Values)
	took := float64(time.Since(start).Nanoseconds()) / 1e6
	for _, v := range results {
		v.Close()
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", h.model, err)
	}
	return took, err
}

// batch is how long rounds are timed before anybody hears of it.
const batch = time.Second

// rounds are rounds of a run without the profiler, two with it, and one without, so that drifts of the machine fall
// on both alike.
func (h *here) rounds(ctx context.Context, r roundsRequest) (a roundsAnswer, err error) {
	for range r.Warmup {
		for _, s := range []*session.Session{h.run, h.profiled} {
			if _, err := h.once(ctx, s); err != nil {
				return a, err
			}
		}
	}
	for start := time.Now(); len(a.Run) < 2*r.AtMost && (len(a.Run) == 0 || time.Since(start) < batch); {
		for _, profiled := range []bool{false, true, true, false} {
			s, times := h.run, &a.Run
			if profiled {
				s, times = h.profiled, &a.Profiled
			}
			t, err := h.once(ctx, s)
			if err != nil {
				return a, err
			}
			*times = append(*times, t)
		}
	}
	return a, nil
}
