package runs

import (
	"context"
	"fmt"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
)

// maxPartRounds are enough: parts are shown, and compared with nothing.
const maxPartRounds = 10

// TimeSides profiles each side of a comparison in the cell in which A takes longest, and notes what it finds in the
// result. The job is that of the comparison; each side runs in a child process of its own. The result is as it was
// where there is an error.
func TimeSides(ctx context.Context, j comparison.Job, set *loaded.Set, s *comparison.Swept) error {
	if s.ModelB != "" {
		return fmt.Errorf("%s: times of nodes are those of one model, found another beside it, %s", s.Model, s.ModelB)
	}
	n := &comparison.NodeTimes{}
	for i := range s.Cells {
		if s.Cells[i].A.MedianMS > s.Cells[n.Cell].A.MedianMS {
			n.Cell = i
		}
	}
	o := j.Options.In(s.Cells[n.Cell].Lengths)
	// The model as it is has the blocks that the side with the most of them knows.
	widest := s.A
	for _, side := range s.Sides {
		if side.Blocks > widest.Blocks {
			widest = side
		}
	}
	times, err := timeSide(ctx, j, o, set, s.A.Name, widest.Name)
	if err != nil {
		return err
	}
	n.A = *times
	for _, side := range s.Sides {
		times, err := timeSide(ctx, j, o, set, side.Name, side.Name)
		if err != nil {
			return err
		}
		n.Sides = append(n.Sides, *times)
	}
	s.NodeTimes = n
	return nil
}

// timeSide profiles a side. Blocks are those of the plan of another, where the side has none.
func timeSide(ctx context.Context, j comparison.Job, o comparison.Options, set *loaded.Set, name,
	widest string) (*comparison.SideTimes, error) {
	fail := func(err error) (*comparison.SideTimes, error) {
		return nil, fmt.Errorf("times of the nodes of %s: %w", name, err)
	}
	if o.Step != nil {
		o.Step("profiling " + name)
	}
	planned := name
	if name == "none" {
		planned = widest
	}
	po, err := comparison.PlanOptions(set, planned, o)
	if err != nil {
		return fail(err)
	}
	m, err := model.Open(j.Model)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	with := set.Plan(po)
	a, err := patch.Analyse(ctx, m, set.Manifests(), with)
	if err == nil {
		err = a.Settle(ctx, set.Manifests(), with)
	}
	if err != nil {
		return fail(err)
	}
	r, err := Apart(ctx,
		Job{Model: j.Model, Runtime: j.Runtime, Folders: j.Folders, Deadline: j.Deadline, Output: j.Output,
			Options: Options{Patched: name != "none", Plugins: po.Plugins, Force: po.Force,
				QuantizationNoise: po.QuantizationNoise, Padding: po.Padding, Fixed: po.Fixed,
				Inputs: o.Inputs, Threads: o.Threads, Warmup: o.Warmup, Rounds: min(max(o.Rounds, 1), maxPartRounds),
				Progress: o.Progress}}, a, plan.ThisMachine())
	if err != nil {
		return fail(err)
	}
	t := &comparison.SideTimes{Name: name, Runs: len(r.Profiled.TimesMS), RunMS: r.Run.TypicalMS,
		BetweenMS: r.UnexplainedMS,
		Parts:     []comparison.PartTime{}, Blocks: []comparison.BlockTime{}}
	for _, k := range r.Kinds {
		t.Parts = append(t.Parts, comparison.PartTime{Part: k.Name, Nodes: k.Nodes, MS: k.MS})
	}
	for _, b := range r.Blocks {
		t.Blocks = append(t.Blocks, comparison.BlockTime{Kind: b.Kind, Node: b.Node, MS: b.MS})
	}
	return t, nil
}
