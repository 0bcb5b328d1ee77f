package graft

import (
	"cmp"
	"context"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/opening"
)

// Patched says what [Patch] wrote.
type Patched struct {
	Blocks   int // blocks that were recognised, those that were replaced among them
	Replaced int
	// Libraries are the paths of the shared libraries that a program registers with ONNX Runtime
	// (RegisterCustomOpsLibrary) before it loads the file.
	Libraries []string
}

// Patch writes the model at path, with operators replaced and its weights, to out, for programs in any language. What
// fits into no single ONNX file (2 GiB) gets a second one, out with ".data" after its name. That no block is replaced
// is [ErrNothingReplaced]; nothing is written then. Options that only sessions follow are [ErrOption].
func Patch(ctx context.Context, path, out string, o Options) (patched *Patched, err error) {
	defer diagnostic.Recovered(path, "patching", &err)
	if err := o.check(); err != nil {
		return nil, err
	}
	if name := o.sessionOnly(); name != "" {
		return nil, opening.Refuse("%s is set and would be ignored: Patch creates no session", name)
	}
	set, err := o.common().Load(nil)
	if err != nil {
		return nil, err
	}
	m, err := model.Open(path)
	if err != nil {
		return nil, opening.Public(err, ErrBadModel)
	}
	defer m.Close()
	analysis := graph.WithProcessorTime(ctx, cmp.Or(o.AnalysisTime, patch.DefaultTime))
	a, err := patch.Analyse(analysis, m, set.Manifests(), set.Plan(o.planned()))
	if err != nil {
		return nil, opening.Public(err, ErrBadModel)
	}
	if a.Plan.Changes() {
		if err := a.Apply(analysis); err != nil {
			return nil, opening.Public(err, ErrBadModel)
		}
	}
	if !a.Plan.Changes() { // what was planned may turn out to be tied to the rest of the graph
		return nil, nothing(path, a)
	}
	if err := a.Write(ctx, out, model.WriteOptions{}); err != nil {
		return nil, err
	}
	return &Patched{Blocks: len(a.Plan.Choices), Replaced: a.Plan.Replaced(), Libraries: set.Libraries(a.Plugins(), nil)},
		nil
}
