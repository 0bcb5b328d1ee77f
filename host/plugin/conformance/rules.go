package conformance

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Rule is the outcome of one check of one case.
type Rule struct {
	Case  string `json:"case"`
	Check string `json:"check"`
	// Problem says what is wrong; empty when the plugin passed.
	Problem string `json:"problem,omitempty"`
}

// checks are what every case goes through, in this order. A check without anything to check passes.
var checks = []struct {
	name string
	run  func(*subject) error
}{
	{"alignment", (*subject).alignment},
	{"strides", (*subject).strides},
	{"concurrency", (*subject).concurrency},
	{"unknown sizes", (*subject).unknownSizes},
}

// Rules runs a case as Run does, and again in each way that a host may choose: at any alignment, through strides
// where the operator takes them, from several threads on one kernel, and with shapes that are not known yet. An error
// means that the case could not be run at all.
func Rules(ctx context.Context, p *plugin.Plugin, c *manifest.Case) ([]Rule, error) {
	answers, err := Run(ctx, p, c)
	if err != nil {
		return nil, err
	}
	list := []Rule{{Case: c.Name, Check: "answers", Problem: answers.Problem}}
	if answers.Problem != "" || c.Fold != nil {
		return list, nil // the other checks compare with these answers; a fold was run twice, and has no kernel
	}
	s, err := newSubject(p, c)
	if err != nil {
		return nil, err
	}
	defer s.kernel.Destroy()
	for _, check := range checks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r := Rule{Case: c.Name, Check: check.name}
		if problem := check.run(s); problem != nil {
			r.Problem = problem.Error()
		}
		list = append(list, r)
	}
	return list, nil
}

// subject is one case with its kernel and the answers of a plain run.
type subject struct {
	c      *manifest.Case
	op     *signature.Operator
	kernel *plugin.Kernel
	inputs []*tensor.Tensor
	wanted []bool
	shapes []*tensor.Tensor // of the outputs
	plain  []*tensor.Tensor
}

func newSubject(p *plugin.Plugin, c *manifest.Case) (*subject, error) {
	op, _, ok := p.Info.Operator(c.Operator)
	if !ok {
		return nil, fmt.Errorf("case %s: found no operator %s in the library", c.Name, c.Operator)
	}
	s := &subject{c: c, op: op}
	var err error
	if s.inputs, err = Tensors(c, op); err != nil {
		return nil, err
	}
	if s.wanted, err = Wanted(c, op); err != nil {
		return nil, err
	}
	if s.kernel, err = p.Create(c.Operator, c.Attributes, Constants(c, op, s.inputs), tensor.CPU); err != nil {
		return nil, err
	}
	if s.shapes, err = s.kernel.Infer(s.inputs, s.wanted); err == nil {
		s.plain, err = s.run(s.inputs, 0)
	}
	if err != nil {
		s.kernel.Destroy()
		return nil, err
	}
	return s, nil
}

// run runs the kernel on fresh outputs, which begin `shift` elements after a 64-byte boundary.
func (s *subject) run(inputs []*tensor.Tensor, shift int64) ([]*tensor.Tensor, error) {
	outputs := make([]*tensor.Tensor, len(s.shapes))
	for i, shape := range s.shapes {
		if shape == nil {
			continue
		}
		var err error
		if outputs[i], err = shifted(shape.DType, shape.Shape, shift); err != nil {
			return nil, err
		}
		for at := range outputs[i].Bytes() {
			outputs[i].Bytes()[at] = 0xff // NaN in every floating-point type
		}
	}
	size, err := s.kernel.Workspace(inputs, outputs, 1)
	if err != nil {
		return nil, err
	}
	return outputs, s.kernel.Run(&plugin.RunContext{Workspace: plugin.NewWorkspace(size), Threads: 1}, inputs, outputs)
}

// same compares outputs with those of the plain run, within the case's tolerance.
func (s *subject) same(outputs []*tensor.Tensor) error {
	for i, y := range outputs {
		if y == nil {
			continue
		}
		plain, got := s.plain[i].Floats(), y.Floats()
		for at, want := range plain {
			equal := got[at] == want || math.IsNaN(got[at]) && math.IsNaN(want)
			if !equal && !(math.Abs(got[at]-want) <= s.c.Tolerance.Absolute+s.c.Tolerance.Relative*math.Abs(want)) {
				return fmt.Errorf("output %d differs: element %d is %v, and %v in a plain run", i, at, got[at], want)
			}
		}
	}
	return nil
}

// alignment gives every tensor no more alignment than its elements need.
func (s *subject) alignment() error {
	inputs := make([]*tensor.Tensor, len(s.inputs))
	for i, x := range s.inputs {
		if x == nil {
			continue
		}
		var err error
		if inputs[i], err = shifted(x.DType, x.Shape, 1); err != nil {
			return err
		}
		copy(inputs[i].Bytes(), x.Bytes())
	}
	outputs, err := s.run(inputs, 1)
	if err != nil {
		return err
	}
	return s.same(outputs)
}

// strides stores each input that may be strided with its axes reversed, and gaps between elements.
func (s *subject) strides() error {
	for i, x := range s.inputs {
		if x == nil || !s.op.Inputs[min(i, len(s.op.Inputs)-1)].Strided {
			continue
		}
		view, err := reversed(x)
		if err != nil {
			return err
		}
		inputs := append([]*tensor.Tensor(nil), s.inputs...)
		inputs[i] = view
		outputs, err := s.run(inputs, 0)
		if err == nil {
			err = s.same(outputs)
		}
		if err != nil {
			return fmt.Errorf("input %d with strides %v: %w", i, view.Strides, err)
		}
	}
	return nil
}

// concurrency runs one kernel several times at once.
func (s *subject) concurrency() error {
	const runs = 4
	problems := make([]error, runs)
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() {
			for range 8 {
				outputs, err := s.run(s.inputs, 0)
				if err == nil {
					err = s.same(outputs)
				}
				if err != nil {
					problems[i] = err
					return
				}
			}
		})
	}
	all.Wait()
	for _, err := range problems {
		if err != nil {
			return fmt.Errorf("several runs at once on one kernel: %w", err)
		}
	}
	return nil
}

// unknownSizes infers with sizes hidden, all at once and axis by axis. What comes out must not contradict
// the shapes for the known sizes.
func (s *subject) unknownSizes() error {
	if err := s.inferHidden(func(int, int) bool { return true }); err != nil {
		return err
	}
	for i, x := range s.inputs {
		if x == nil {
			continue
		}
		for axis := range x.Shape {
			if err := s.inferHidden(func(input, a int) bool { return input == i && a == axis }); err != nil {
				return err
			}
		}
	}
	return nil
}

// inferHidden infers with some sizes replaced by symbols, equal ones for equal sizes.
func (s *subject) inferHidden(hide func(input, axis int) bool) error {
	sizes := map[int64]int64{} // size to symbol
	back := map[int64]int64{}
	inputs := make([]*tensor.Tensor, len(s.inputs))
	for i, x := range s.inputs {
		if x == nil {
			continue
		}
		inputs[i] = &tensor.Tensor{DType: x.DType, Shape: append([]int64{}, x.Shape...)}
		for axis, size := range x.Shape {
			if !hide(i, axis) {
				continue
			}
			if _, known := sizes[size]; !known {
				sizes[size] = -2 - int64(len(sizes))
				back[sizes[size]] = size
			}
			inputs[i].Shape[axis] = sizes[size]
		}
	}
	shapes, err := s.kernel.Infer(inputs, s.wanted)
	if err != nil {
		return fmt.Errorf("infer_shapes with inputs %v: %w", dims(inputs), err)
	}
	for i, got := range shapes {
		if got == nil {
			continue
		}
		want := s.shapes[i]
		fits := got.DType == want.DType && len(got.Shape) == len(want.Shape)
		for axis := 0; fits && axis < len(got.Shape); axis++ {
			size := got.Shape[axis]
			if symbol, ok := back[size]; ok {
				size = symbol
			}
			fits = size < 0 || size == want.Shape[axis]
		}
		if !fits {
			return fmt.Errorf("infer_shapes with inputs %v gave output %d %s%v, and %s%v with all sizes known",
				dims(inputs), i, got.DType, got.Shape, want.DType, want.Shape)
		}
	}
	return nil
}

func dims(tensors []*tensor.Tensor) [][]int64 {
	out := make([][]int64, len(tensors))
	for i, t := range tensors {
		if t != nil {
			out[i] = t.Shape
		}
	}
	return out
}
