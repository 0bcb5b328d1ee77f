package main

import (
	"context"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/session/patch"
)

// expect is what graft expects of a run of the whole model with these inputs, of which the mask shows a share of
// tokens, over the same run unpatched. It is 0 where there is no estimate.
func (p *sideProcess) expect(ctx context.Context, inputs []array, visible float64) (float64, error) {
	m, err := model.Open(p.job.Model)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	mode := plan.ExactPadding
	if entry, ok := p.job.Config["graft.padding"]; ok {
		if mode, err = plan.ParsePadding(entry); err != nil {
			return 0, err
		}
	}
	o := p.set.Plan(plan.Options{Padding: mode})
	a, err := patch.Analyse(ctx, m, plugin.Manifests(p.set.Plugins), o)
	if err != nil {
		return 0, err
	}
	var s plan.WholeSample
	err = a.Within(ctx, func() (err error) {
		s, err = a.Plan.At(a.Graph, a.Shapes, a.Report, a.Padding, o, lengthsOf(a, inputs), visible)
		return err
	})
	if err != nil || s.Patched <= 0 {
		return 0, nil // what is not estimated is no fault of the model's
	}
	return s.Unpatched / s.Patched, nil
}

// lengthsOf are the lengths of a model's symbols as inputs have them.
func lengthsOf(a *patch.Analysis, inputs []array) map[string]int64 {
	at := map[string]int64{}
	for _, v := range a.Graph.Inputs {
		for _, in := range inputs {
			if in.Name != v.Name {
				continue
			}
			for i, d := range a.Shapes.Of(v).Dims {
				for _, name := range d.Symbols() {
					if i < len(in.Shape) && d.Equal(graph.DimSym(name)) {
						at[name] = in.Shape[i]
					}
				}
			}
		}
	}
	return at
}
