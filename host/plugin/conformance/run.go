// Package conformance runs the cases of a plugin's manifest and compares what comes out with formulas, values
// and operators computed in float64.
package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Result is the outcome of one conformance case.
type Result struct {
	Name        string  `json:"name"`
	MaxAbsolute float64 `json:"max_absolute"` // largest |got - want|
	MaxRelative float64 `json:"max_relative"` // largest |got - want| / |want|, where want is not 0
	// Problem says what is wrong; empty when the case passed.
	Problem string `json:"problem,omitempty"`
}

// errCase is a failed case, as opposed to a case that could not be run.
var errCase = errors.New("case failed")

func caseProblem(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errCase, fmt.Sprintf(format, args...))
}

// Run runs a conformance case through the C ABI on the CPU, once with one thread and once with
// several, on outputs filled beforehand with what no right answer has. It holds the plugin to its
// description, to its own shapes, to the memory it was given, and to the expected numbers.
func Run(ctx context.Context, p *plugin.Plugin, c *manifest.Case) (*Result, error) {
	result := &Result{Name: c.Name}
	run := runCase
	if c.Fold != nil {
		run = runFold
	}
	err := run(ctx, p, c, result)
	var own *diagnostic.Error
	switch {
	case errors.Is(err, errCase):
		result.Problem = strings.TrimPrefix(err.Error(), errCase.Error()+": ")
	case errors.As(err, &own) && (own.Kind == refusal.ErrKernel || own.Kind == refusal.ErrFold):
		result.Problem = own.Found // the plugin said no to what its own manifest asks
	case err != nil:
		return nil, err
	}
	return result, nil
}

func runCase(ctx context.Context, p *plugin.Plugin, c *manifest.Case, result *Result) error {
	op, _, ok := p.Info.Operator(c.Operator)
	if !ok {
		return caseProblem("the library describes no operator %s", c.Operator)
	}
	inputs, err := Tensors(c, op)
	if err != nil {
		return err
	}
	wanted, err := Wanted(c, op)
	if err != nil {
		return err
	}
	k, err := p.Create(c.Operator, c.Attributes, Constants(c, op, inputs), tensor.CPU)
	if err != nil {
		return err
	}
	defer k.Destroy()
	shapes, err := k.Infer(shapesOf(inputs), wanted)
	if err != nil {
		return err
	}
	expected, err := expectation(c, op, inputs, shapes)
	if err != nil {
		return err
	}
	for _, threads := range []int{1, max(2, min(runtime.GOMAXPROCS(0), 8))} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := runOnce(k, op, inputs, shapes, threads, expected, c.Tolerance, result); err != nil {
			return fmt.Errorf("%w (%d threads)", err, threads)
		}
	}
	return nil
}

// runOnce runs a kernel on fresh outputs and compares.
func runOnce(k *plugin.Kernel, op *signature.Operator, inputs, shapes []*tensor.Tensor, threads int,
	expected map[string][]float64, bound manifest.Tolerance, result *Result) error {
	outputs := make([]*tensor.Tensor, len(shapes))
	guards := make([]*guarded, len(shapes))
	for i, s := range shapes {
		if s == nil {
			continue
		}
		n, err := tensor.Elements(s.Shape)
		if err != nil || n > manifest.MaxCaseElements {
			return caseProblem("infer_shapes gave output %s the shape %v", outputName(op, i), s.Shape)
		}
		guards[i] = newGuarded(n * s.DType.Size())
		outputs[i] = &tensor.Tensor{DType: s.DType, Shape: s.Shape, Data: guards[i].pointer()}
	}
	before := make([][]byte, len(inputs))
	for i, x := range inputs {
		if x != nil {
			before[i] = bytes.Clone(x.Bytes())
		}
	}
	size, err := k.Workspace(inputs, outputs, threads)
	if err != nil {
		return err
	}
	const limit = 8 << 30
	if size > limit {
		return caseProblem("workspace_size asks for %d bytes", size)
	}
	var scratch *guarded
	run := &plugin.RunContext{Threads: threads}
	if size > 0 {
		scratch = newGuarded(int64(size))
		run.Workspace = scratch.inner()
	}
	if err := k.Run(run, inputs, outputs); err != nil {
		return err
	}
	if scratch != nil && !scratch.intact() {
		return caseProblem("it wrote outside its workspace of %d bytes", size)
	}
	for i, x := range inputs {
		if x != nil && !bytes.Equal(before[i], x.Bytes()) {
			return caseProblem("it changed input %s", op.Inputs[min(i, len(op.Inputs)-1)].Name)
		}
	}
	for i, y := range outputs {
		if y == nil {
			continue
		}
		if !guards[i].intact() {
			return caseProblem("it wrote outside output %s", outputName(op, i))
		}
		want, ok := expected[outputName(op, i)]
		if !ok {
			continue
		}
		if err := compare(outputName(op, i), y, want, bound, result); err != nil {
			return err
		}
	}
	return nil
}
