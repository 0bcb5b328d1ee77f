package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/measure/profile"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/patch"
)

// Options say what is run and how long.
type Options struct {
	// Patched runs the model with operators of plugins, as Plugins, Except, Force, QuantizationNoise, Padding and Fixed
	// choose them.
	Patched           bool
	Plugins, Except   []string
	Force             bool
	QuantizationNoise bool
	Padding           plan.Padding
	Fixed             map[string]string

	Inputs  inputs.Options
	Threads int // intra-op threads; 0 is one a core
	Warmup  int // runs of each session before timing
	Rounds  int // each runs the model twice with the profiler and twice without
	// Step is told what begins, Progress the rounds done and their number; nil for silence.
	Step     func(what string)       `json:"-"`
	Progress func(done, total int64) `json:"-"`
}

// Job is a model to run in a child process.
type Job struct {
	Model   string
	Options Options
	Runtime string   // path of ONNX Runtime's library; "" to find it
	Folders []string // of plugins, searched first
	Scratch string   // the child's folder to write in; Apart makes it
	// Deadline is how long opening sessions may take, and a round; 0 is comparison.DefaultDeadline.
	Deadline time.Duration `json:"-"`
	// Output gets what the child prints; nil for silence.
	Output io.Writer `json:"-"`
	// Refused is told of plugins that were left out; nil for silence.
	Refused func(why string) `json:"-"`
}

// Result is where the time of a model's runs goes.
type Result struct {
	SchemaVersion int             `json:"schema_version"`
	Model         string          `json:"model"`
	Patched       bool            `json:"patched"`
	Plugins       []string        `json:"plugins"` // whose operators ran
	Replaced      int             `json:"replaced"`
	Seed          uint64          `json:"seed"`
	Warmup        int             `json:"warmup"`
	Rounds        int             `json:"rounds"`
	Inputs        []inputs.Info   `json:"inputs"`
	Workload      inputs.Workload `json:"workload"`
	// Lengths are those of the run, by symbol.
	Lengths map[string]int64 `json:"lengths"`
	*profile.Report
	Environment comparison.Environment `json:"environment"`

	// Ran are the nodes that ran, with those of the subject's graph that they stand for.
	Ran []profile.Ran `json:"-"`
	// From is the first timed run of those of Ran.
	From int `json:"-"`

	stands map[string]string
}

// Names of what the child writes.
const (
	profilePrefix = "profile"
	graphFile     = "graph.onnx"
	weightsFile   = "weights"
)

// Apart runs a model in a child process: this executable, whose main calls worker.Main with Tasks. The analysis is of
// the model as it is, planned with the options of the job; machine is what parts of a peak are of. Errors are those
// of comparison.Apart.
func Apart(ctx context.Context, j Job, a *patch.Analysis, machine plan.Machine) (*Result, error) {
	j.Options.defaults()
	o := j.Options
	o.step("loading")
	folder, err := storage.Temporary("")
	if err != nil {
		return nil, err
	}
	defer folder.Remove()
	j.Scratch = filepath.Join(folder.Path, "scratch")
	if err := os.Mkdir(j.Scratch, 0o700); err != nil {
		return nil, err
	}
	child, err := comparison.Start(ctx,
		worker.Options{Subject: j.Model, Deadline: j.Deadline, Output: j.Output, Scratch: j.Scratch,
			ScratchBytes: scratchBytes(a.Graph)})
	if err != nil {
		return nil, err
	}
	defer child.Close()
	var ran *graph.Graph
	r, err := run(ctx, child, j, func() (err error) {
		var done func()
		if ran, done, err = readGraph(j.Scratch); err == nil {
			defer done()
			// The weights were written that the graph may be read, which is done.
			err = os.Remove(filepath.Join(j.Scratch, weightsFile))
		}
		if errors.Is(err, os.ErrNotExist) {
			err = nil // all of them are small
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	o.step("reading the profile")
	p, err := readProfile(j.Scratch)
	if err != nil {
		return nil, err
	}
	if want := o.Warmup + 2*o.Rounds + 1; len(p.Runs) != want {
		return nil, &diagnostic.Error{Path: j.Model,
			Found: fmt.Sprintf("the profile has %d runs of %d: ONNX Runtime records a million calls of nodes, and no more",
				len(p.Runs), want),
			Needed: "all of them", Fix: "ask for fewer --rounds"}
	}
	r.From = len(p.Runs) - 2*o.Rounds
	err = a.Within(ctx, func() error {
		r.Ran = p.Attribute(ran, a.Graph, r.stands)
		r.Report = p.Sum(r.From, r.Run.TimesMS, r.Profiled.TimesMS, r.Ran,
			profile.Subject{Graph: a.Graph, Shapes: a.Shapes, Plan: a.Plan, Lengths: r.Lengths, Machine: machine})
		return nil
	})
	return r, err
}

func (o *Options) defaults() {
	if o.Warmup <= 0 {
		o.Warmup = 3
	}
	if o.Rounds <= 0 {
		o.Rounds = 15
	}
}

func (o *Options) step(what string) {
	if o.Step != nil {
		o.Step(what)
	}
}

// scratchBytes bounds what a child writes: a profile, and the model's graph with weights, of which some are written
// twice where operators have them otherwise than the model.
func scratchBytes(g *graph.Graph) int64 {
	const profiles, graphs, most = 1 << 30, 256 << 20, 1 << 38
	weights, seen := int64(0), map[*graph.Value]bool{}
	g.Walk(func(n *graph.Node) {
		for _, v := range n.In {
			if v == nil || v.Tensor == nil || seen[v] {
				continue
			}
			seen[v] = true
			if elements, err := graph.Elements(v.Tensor); err == nil && elements < most {
				weights = min(most, weights+elements*int64(model.ElementBits(onnx.Tensor_DataType(v.Tensor.GetDataType())))/8)
			}
		}
	})
	return profiles + graphs + 2*weights
}

// run leads the child through its stages. What ran is read when the sessions are open.
func run(ctx context.Context, child *worker.Child, j Job, opening func() error) (*Result, error) {
	o := j.Options
	opened, err := comparison.Ask[openAnswer](ctx, child, taskOpen, j)
	if j.Refused != nil {
		for _, why := range opened.Refused {
			j.Refused(why)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := opening(); err != nil {
		return nil, err
	}
	r := &Result{SchemaVersion: 2, Model: j.Model, Patched: o.Patched, Plugins: opened.Plugins, Replaced: opened.Replaced,
		Seed:   o.Inputs.Seed,
		Warmup: o.Warmup, Rounds: o.Rounds, Inputs: opened.Inputs, Workload: opened.Workload, Lengths: opened.Lengths,
		stands: opened.Stands, Report: &profile.Report{}}
	o.step("timing")
	for done, warmup := 0, o.Warmup; done < o.Rounds; warmup = 0 {
		a, err := comparison.Ask[roundsAnswer](ctx, child, taskRounds, roundsRequest{warmup, o.Rounds - done})
		if err != nil {
			return nil, err
		}
		if len(a.Run) < 2 || len(a.Run) != len(a.Profiled) || len(a.Run) > 2*(o.Rounds-done) {
			return nil, fmt.Errorf("%s: the child process gave %d and %d times in a round", j.Model, len(a.Run), len(a.Profiled))
		}
		r.Run.TimesMS, r.Profiled.TimesMS = append(r.Run.TimesMS, a.Run...), append(r.Profiled.TimesMS, a.Profiled...)
		done += len(a.Run) / 2
		if o.Progress != nil {
			o.Progress(int64(done), int64(o.Rounds))
		}
	}
	o.step("measuring the machine")
	r.Environment, err = comparison.Ask[comparison.Environment](ctx, child, taskEnd, struct{}{})
	return r, err
}

// readProfile reads the one profile of a folder that has runs. Sessions that were made to see what the runtime does,
// and those that another takes the place of, leave profiles too, without any.
func readProfile(folder string) (*profile.Profile, error) {
	const most = 8
	found, err := filepath.Glob(filepath.Join(folder, profilePrefix+"*"))
	if err != nil {
		return nil, err
	}
	var with []*profile.Profile
	for _, path := range found[:min(len(found), most+1)] {
		p, err := profile.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if len(p.Runs) > 0 {
			with = append(with, p)
		}
	}
	if len(with) != 1 || len(found) > most {
		return nil, &diagnostic.Error{Path: folder,
			Found:  fmt.Sprintf("%d profiles, %d of them with runs", len(found), len(with)),
			Needed: "one with runs", Fix: "a run may have failed, and a session without plugins taken over: graft ab runs both"}
	}
	return with[0], nil
}

// readGraph reads the graph that the runtime made of the model, in a folder. Its constants are gone when done was
// called.
func readGraph(folder string) (g *graph.Graph, done func(), err error) {
	const maxGraph = 256 << 20
	data, err := storage.ReadOwn(filepath.Join(folder, graphFile), maxGraph)
	if err != nil {
		return nil, nil, err
	}
	m, err := model.Parse(data, folder)
	if err != nil {
		return nil, nil, fmt.Errorf("the graph that ONNX Runtime made: %w", err)
	}
	onceEach(m.Proto().GetGraph())
	if g, err = graph.New(m.Proto(), m); err != nil {
		m.Close()
		return nil, nil, fmt.Errorf("the graph that ONNX Runtime made: %w", err)
	}
	return g, func() { m.Close() }, nil
}

// onceEach leaves one constant of those that have one name: the runtime may write a constant of a subgraph twice.
func onceEach(g *onnx.Graph) {
	if g == nil {
		return
	}
	seen := map[string]bool{}
	g.Initializer = slices.DeleteFunc(g.Initializer, func(t *onnx.Tensor) bool {
		twice := seen[t.GetName()]
		seen[t.GetName()] = true
		return twice
	})
	for _, n := range g.Node {
		for _, a := range n.Attribute {
			onceEach(a.G)
			for _, inner := range a.Graphs {
				onceEach(inner)
			}
		}
	}
}
