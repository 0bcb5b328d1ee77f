package prepare

import (
	"context"
	"slices"

	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/rewrite/engine"
	"github.com/opgraft/graft/host/session/patch"
)

// Operands of operators that run blocks of attention: what hides keys, or adds to
// scores.
const (
	biasOperand = 5
	maskOperand = 6
)

// maxMasked is the longest input of an encoder that its masks are evaluated at.
const maxMasked = 4096

// encoder rewrites the encoder.
func (gen *Generation) encoder(ctx context.Context, o Options) error {
	file, err := gen.Model.open(gen.Model.Files.Encoder)
	if err != nil {
		return err
	}
	x, err := patch.View(ctx, file, file.Proto())
	if err != nil {
		return err
	}
	exported := newEvaluator(o.Library, x)
	defer exported.close()
	for _, v := range x.Graph.Inputs {
		if exported.roles.Of(v) == roles.Mask {
			gen.EncoderMasks = append(gen.EncoderMasks, v.Name)
		}
	}
	gen.Encoder, err = replace(ctx, x, o, func(g *graph.Graph) {
		if gen.EncoderPositions <= maxMasked {
			dropIdleMasks(g, attends(x.Plan), exported, gen.EncoderPositions)
		}
	})
	return err
}

// attends are the operators that stand for blocks of attention.
func attends(p *plan.Plan) (ops []string) {
	for _, c := range p.Choices {
		if c.Block != nil && c.Operator != nil {
			ops = append(ops, manifest.Domain+"."+c.Operator.Name)
		}
	}
	return ops
}

// dropIdleMasks takes masks off attention that hide nothing. An engine encodes one
// input at a time, without padding, for which most encoders' masks are zeros: as
// many as there are pairs of positions, computed and added for nothing. A mask is
// idle when it is so for the shortest and for the longest input.
func dropIdleMasks(g *graph.Graph, attends []string, exported *evaluator, positions int64) {
	for _, n := range g.Nodes {
		if !n.Is(attends...) {
			continue
		}
		for operand, idle := range map[int]float32{biasOperand: 0, maskOperand: 1} {
			v := n.Input(operand)
			if v == nil || exported.values[v.Name] == nil {
				continue
			}
			if all(exported, v.Name, positions, idle) && all(exported, v.Name, 1, idle) {
				n.SetInput(operand, nil)
			}
		}
	}
	g.Prune()
}

// all says whether every element of a value is x for an input of that many
// positions. What cannot be evaluated is not.
func all(exported *evaluator, name string, positions int64, x float32) bool {
	list, err := exported.evaluate([]string{name}, engine.Lengths{New: positions, Encoder: positions})
	return err == nil && len(list[0].Data) > 0 &&
		!slices.ContainsFunc(list[0].Data, func(y float32) bool { return y != x })
}
