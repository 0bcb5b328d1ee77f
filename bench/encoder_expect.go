package main

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/loaded"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/model/onnx"
	"github.com/opgraft/graft/host/patch"
	"github.com/opgraft/graft/host/plan"
)

// expect is what graft inspect expects of a run of the whole model with inputs of these lengths, over the same run
// unpatched: that of the model whose inputs have no other lengths, with the choices of the model as it is. It is 0 where
// graft has no estimate.
func (p *sideProcess) expect(ctx context.Context, inputs []array) (float64, error) {
	m, err := model.Open(p.job.Model)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	o := p.set.Plan(plan.Options{})
	open, err := patch.Analyse(ctx, m, loaded.Manifests(p.set.Plugins), o)
	if err != nil {
		return 0, err
	}
	o.Fixed = map[string]string{}
	for _, c := range open.Plan.Choices {
		if c.Operator != nil {
			o.Fixed[c.Node] = c.Operator.Name
		}
	}
	fixed, err := patch.View(ctx, m, withLengths(m.Proto(), inputs))
	if err != nil {
		return 0, err
	}
	if err := fixed.Choose(ctx, loaded.Manifests(p.set.Plugins), o); err != nil {
		return 0, err
	}
	var expected float64
	err = fixed.Within(ctx, func() error {
		expected = fixed.Plan.Whole(fixed.Graph, fixed.Shapes, fixed.Report, o).Speedup
		return nil
	})
	return expected, err
}

// withLengths is a copy of a model whose inputs have the shapes of arrays.
func withLengths(m *onnx.Model, inputs []array) *onnx.Model {
	m = proto.CloneOf(m)
	for _, in := range m.GetGraph().GetInput() {
		for _, a := range inputs {
			if a.Name != in.GetName() {
				continue
			}
			for i, d := range in.GetType().GetTensorType().GetShape().GetDim() {
				if i < len(a.Shape) {
					d.Value = &onnx.Shape_Dim_DimValue{DimValue: a.Shape[i]}
				}
			}
		}
	}
	return m
}
