package bisect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// slowdown is the speed-up below which a side is slower: less is not worth a search.
const slowdown = 0.98

// share is the part of what a block of B takes longer on average from which on a block is a culprit: operators that
// cost their call and no more are none beside one that is slow.
const share = 0.5

// unit is what is tried as one: a block, or the blocks that stand only together.
type unit struct {
	choices []choice
	padding bool // they remove padding together
}

// unitsOf are those places where B's choices are others than A's.
func unitsOf(a, b *choices) []unit {
	at := map[string]choice{}
	for _, c := range a.Choices {
		at[c.Node] = c
	}
	var list []unit
	var padding unit
	for _, c := range b.Choices {
		before, there := at[c.Node]
		delete(at, c.Node)
		switch {
		case there && before.Operator == c.Operator:
		case c.Padding:
			padding.choices, padding.padding = append(padding.choices, c), true
		default:
			list = append(list, unit{choices: []choice{c}})
		}
	}
	if padding.padding {
		list = append(list, padding)
	}
	for _, c := range a.Choices { // that B leaves unchanged
		if _, left := at[c.Node]; left {
			c.Plugin, c.Operator = "", ""
			list = append(list, unit{choices: []choice{c}})
		}
	}
	return list
}

// chosen are A's choices with some of B's in their places.
func (r *run) chosen(parts []int) map[string]string {
	list := maps.Clone(r.placed)
	for _, i := range parts {
		for _, c := range r.units[i].choices {
			if list[c.Node] = c.Operator; c.Operator == "" {
				delete(list, c.Node)
			}
		}
	}
	return list
}

// write writes a plan file.
func write(path string, chosen map[string]string) error {
	p := &plan.Plan{}
	for _, node := range slices.Sorted(maps.Keys(chosen)) {
		p.Choices = append(p.Choices, plan.Choice{Node: node, Operator: &manifest.Operator{Name: chosen[node]}})
	}
	return plan.WriteFile(path, p)
}

// planned is the plan file of some of B's choices.
func (r *run) planned(parts []int) (string, error) {
	path := filepath.Join(r.folder.Path, "plan"+strings.ReplaceAll(fmt.Sprint(parts), " ", "-")+".json")
	if len(path) > 200 {
		path = filepath.Join(r.folder.Path, fmt.Sprintf("plan%d-%d.json", len(parts), r.result.Probes))
	}
	return path, write(path, r.chosen(parts))
}

// probe compares A with a side that has some of B's choices. What was tried before is not tried again.
func (r *run) probe(ctx context.Context, parts []int) (Outcome, error) {
	key := fmt.Sprint(parts)
	if o, ok := r.tried[key]; ok {
		return o, nil
	}
	path, err := r.planned(parts)
	if err != nil {
		return Outcome{}, err
	}
	o, err := r.side(ctx, len(parts), path)
	if o.How == Slower && o.LongerMS < share*r.result.Whole.LongerMS*float64(len(parts))/float64(len(r.units)) {
		o.How = Equal
	}
	if err == nil {
		r.tried[key] = o
	}
	return o, err
}

// side compares A with a side.
func (r *run) side(ctx context.Context, parts int, b string) (Outcome, error) {
	r.step(fmt.Sprintf("probe %d: %d of %d blocks", r.result.Probes, parts, len(r.units)))
	r.result.Probes++
	o := r.Options
	o.B, o.Step, o.Progress = b, nil, nil
	return r.compare(ctx, r.comparison(o))
}

func (r *run) comparison(o comparison.Options) comparison.Job {
	j := comparison.Job{Model: r.Model, Options: o, Runtime: r.Runtime, Folders: r.Folders, Deadline: r.Deadline,
		Output: r.Output}
	if r.result.Probes == 0 {
		j.Refused = r.Refused
	}
	return j
}

// compare is one probe. Only what is not B's doing is an error.
func (r *run) compare(ctx context.Context, j comparison.Job) (Outcome, error) {
	if r.Slower {
		return r.slower(ctx, j)
	}
	found, err := comparison.AnswersApart(ctx, j)
	if err != nil {
		return failed(ctx, err)
	}
	if found.Parity.OK {
		return Outcome{How: Equal}, nil
	}
	o := Outcome{How: Differs}
	for _, out := range found.Parity.Outputs {
		if !out.OK {
			o.Outputs = append(o.Outputs, out)
		}
	}
	return o, nil
}

// slower times both sides. B is slower where that is significant, twice in a row: of many probes, some are
// significant by chance.
func (r *run) slower(ctx context.Context, j comparison.Job) (o Outcome, err error) {
	for range 2 {
		found, err := comparison.Apart(ctx, j)
		if err != nil {
			return failed(ctx, err)
		}
		if o = (Outcome{How: Equal, Speedup: &found.Speedup,
			LongerMS: found.B.MedianMS - found.A.MedianMS}); !found.Speedup.Significant || found.Speedup.Median > slowdown {
			return o, nil
		}
	}
	o.How = Slower
	return o, nil
}

// failed says how side B failed.
func failed(ctx context.Context, err error) (Outcome, error) {
	var e *diagnostic.Error
	switch {
	case ctx.Err() != nil:
		return Outcome{}, ctx.Err()
	case errors.Is(err, comparison.ErrSame): // nothing of what was asked for could be placed without the rest
		return Outcome{How: Equal}, nil
	case errors.Is(err, worker.ErrEnded) && errors.As(err, &e):
		return Outcome{How: Ends, Detail: e.Found}, nil
	case errors.Is(err, worker.ErrDeadline) && errors.As(err, &e):
		return Outcome{How: Hangs, Detail: e.Found}, nil
	case strings.Contains(err.Error(), "b ("):
		return Outcome{How: Fails, Detail: blame(err)}, nil
	}
	return Outcome{}, err
}
