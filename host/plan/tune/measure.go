package tune

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/base/threads"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plan/tune/probe"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/capability"
)

// candidates are what is measured where its plugin is loaded and it can run.
func candidates(implementations plan.Implementations) (list []plan.Candidate) {
	for _, s := range implementations.Strategies() {
		list = append(list, implementations.Candidate(s, ""))
	}
	return list
}

// Options say what is measured and with what.
type Options struct {
	Plugins         []*plugin.Plugin
	Implementations plan.Implementations // the operators that are measured, where they are named
	Threads         int                  // that an operator uses; 0 is one a core
	// Candidates to measure; nil for all. Those whose plugin is not loaded, or that
	// cannot run, are left out.
	Candidates []plan.Candidate
	Range      plan.Range
	MaxBytes   int64 // the maximum that synthetic caches may take; 0 is half of what is free, 4 GiB at most
	// Repeats is how often each time is taken; 0 is 7. What takes long is taken less
	// often, three times at least.
	Repeats int
	// Progress is told how many of the shapes are done.
	Progress func(done, total int64)
}

// Limits of what is held in memory and of how long one shape is measured.
const (
	usualRepeats = 7
	leastRepeats = 3
	patience     = 400 * time.Millisecond
	maxLayers    = 3
	maxBytes     = 4 << 30
)

// Measure measures the candidates for layers of one kind. They take turns, since
// machines have fast and slow spells; what is recorded is the lower quartile, since what
// else runs on the machine only ever adds.
//
// A decoder reads other weights between two layers, and all of them between two
// steps, which drives keys and values out of the caches. So does Measure: it reads as
// many bytes of other memory before each layer, and as many as the caches hold before
// the first. Three layers are in memory: the first one and the others are timed
// apart, and the others stand for the rest.
func Measure(ctx context.Context, l plan.Layers, o Options) (*Table, error) {
	o.Implementations = o.Implementations.Among(plugin.Manifests(o.Plugins))
	id := Identify(o.Plugins, o.Implementations, o.Threads)
	t := &Table{SchemaVersion: tableVersion, Machine: id, Layers: l, Axes: axesOf(l, o.Range),
		Named: o.Implementations.Named(),
		Date:  time.Now().UTC().Format(time.RFC3339)}
	all := o.Candidates
	if all == nil {
		all = candidates(o.Implementations)
	}
	limit := o.MaxBytes
	if limit <= 0 {
		limit = maxBytes
		if free := memory.Available(); free > 0 {
			limit = min(limit, free/2)
		}
	}
	layers := min(l.Layers, maxLayers)
	var subjects []*probe.Layers
	defer func() {
		for _, s := range subjects {
			s.Close()
		}
	}()
	crew := threads.NewPool(id.Threads)
	defer crew.Close()
	if err := shrink(&t.Axes, l, all, layers, limit); err != nil {
		return nil, err
	}
	for _, c := range all {
		implementation := o.Implementations.Of(c.Strategy)
		i := slices.IndexFunc(o.Plugins, func(p *plugin.Plugin) bool { return p.Manifest.Name == implementation.Plugin })
		if i < 0 || c.Lacks(l) != "" {
			continue
		}
		s, err := probe.New(o.Plugins[i], o.Implementations, l, c, layers, t.Axes.largest(), crew)
		if err != nil {
			return nil, err
		}
		subjects = append(subjects, s)
		t.Rows = append(t.Rows, Row{Strategy: c.Strategy, Storage: c.Storage, Implementation: implementation,
			Seconds: make([]float64, t.Axes.Size())})
	}
	if len(subjects) == 0 {
		return nil, fmt.Errorf("nothing to measure for %s: no plugin that can run it is loaded", l)
	}
	var made *probe.Projections
	if p, operator, none := plugin.Provider(o.Plugins, capability.LinearPanels, nil); none == nil {
		var err error
		if made, err = probe.NewProjections(p, operator, l, layers, crew); err != nil {
			return nil, err
		}
		defer made.Close()
		t.Projection = make([]float64, t.Axes.Size())
	}
	between, err := newSweep(plan.OtherWeights(l), crew)
	if err != nil {
		return nil, err
	}
	defer between.close()
	for i := range t.Axes.Size() {
		shape := t.Axes.Shape(i)
		steps := make([]timed, len(subjects))
		for j, x := range subjects {
			if steps[j], err = x.Step(shape); err != nil {
				return nil, err
			}
		}
		same := t.sameProjection(i)
		if made != nil && same == i {
			rows := shape.Batch * shape.Beams
			if l.Type == "cross" {
				rows = shape.Keys
			}
			p, err := made.Rows(rows)
			if err != nil {
				return nil, err
			}
			steps = append(steps, p)
		}
		times, err := measureShape(ctx, steps, l, o.Repeats, between)
		if err != nil {
			return nil, err
		}
		for j := range t.Rows {
			t.Rows[j].Seconds[i] = times[j]
		}
		if made != nil {
			if same == i {
				t.Projection[i] = times[len(t.Rows)]
			}
			t.Projection[i] = t.Projection[same]
		}
		if o.Progress != nil {
			o.Progress(int64(i+1), int64(t.Axes.Size()))
		}
	}
	for _, r := range t.Rows {
		t.Axes.settle(r.Seconds)
	}
	if made != nil {
		t.Axes.settle(t.Projection)
	}
	return t, nil
}

// sameProjection is the first shape in which keys and values are made of as much as in
// this one: of cross attention, of as long an encoder's output.
func (t *Table) sameProjection(i int) int {
	if t.Layers.Type != "cross" {
		return i
	}
	return i - i%(len(t.Axes.Own)*len(t.Axes.Beams)*len(t.Axes.Batch))
}

// timed is what is measured: layers that run one at a time.
type timed interface {
	Layers() int
	Run(layer int) (time.Duration, error)
}

// measureShape is the usual time of each step of all layers.
func measureShape(ctx context.Context, steps []timed, l plan.Layers, repeats int, between *sweep) ([]float64, error) {
	if repeats <= 0 {
		repeats = usualRepeats
	}
	times := make([][]float64, len(steps))
	begun := time.Now()
	for n := 0; n <= repeats; n++ {
		if n > leastRepeats && time.Since(begun) > patience*time.Duration(len(steps)) {
			break
		}
		for i, step := range steps {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			took, err := pass(step, l.Layers, between)
			if err != nil {
				return nil, err
			}
			if n > 0 { // the first warms up
				times[i] = append(times[i], took)
			}
		}
	}
	out := make([]float64, len(times))
	for i, list := range times {
		slices.Sort(list)
		out[i] = list[len(list)/4]
	}
	return out, nil
}

// pass is the time of one step of all layers, in seconds.
func pass(step timed, layers int64, between *sweep) (float64, error) {
	between.all()
	first, err := step.Run(0)
	if err != nil {
		return 0, err
	}
	others := time.Duration(0)
	for i := 1; i < step.Layers(); i++ {
		between.some()
		took, err := step.Run(i)
		if err != nil {
			return 0, err
		}
		others += took
	}
	sum := first.Seconds()
	if n := step.Layers() - 1; n > 0 {
		sum += others.Seconds() / float64(n) * float64(layers-1)
	}
	return max(sum, 1e-9), nil
}

// sweep is other memory, read to drive what was read before out of the caches.
type sweep struct {
	region *memory.Region
	layer  int64
	crew   *threads.Pool
}

// sweepBytes is more than caches hold.
const sweepBytes = 96 << 20

func newSweep(layer int64, crew *threads.Pool) (*sweep, error) {
	r, err := memory.Reserve(sweepBytes)
	if err != nil {
		return nil, err
	}
	list := r.Bytes()
	for i := 0; i < len(list); i += 64 {
		list[i] = 1
	}
	return &sweep{r, min(layer, sweepBytes), crew}, nil
}

func (s *sweep) close() { _ = s.region.Close() } // nothing can be done about a mapping that stays

func (s *sweep) all()  { s.read(sweepBytes) }
func (s *sweep) some() { s.read(s.layer) }

// read reads n bytes: the runtime's search for a byte that is not there is as
// fast as memory.
func (s *sweep) read(n int64) {
	list := s.region.Bytes()[:n]
	parts := int64(s.crew.Threads())
	s.crew.Do(uint64(parts), func(i uint64) {
		if bytes.IndexByte(list[n*int64(i)/parts:n*int64(i+1)/parts], 2) >= 0 {
			panic("tune: a byte that was never written")
		}
	})
}
