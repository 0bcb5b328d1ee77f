package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"unsafe"

	"github.com/opgraft/graft/host/diagnostic"
)

// CaseResult is the outcome of one conformance case.
type CaseResult struct {
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

// RunCase runs a conformance case through the C ABI on the CPU, once with one thread and once with
// several, on outputs filled beforehand with what no right answer has. It holds the plugin to its
// description, to its own shapes, to the memory it was given, and to the expected numbers.
func (p *Plugin) RunCase(ctx context.Context, c *Case) (*CaseResult, error) {
	result := &CaseResult{Name: c.Name}
	run := p.runCase
	if c.Fold != nil {
		run = p.runFold
	}
	err := run(ctx, c, result)
	var own *diagnostic.Error
	switch {
	case errors.Is(err, errCase):
		result.Problem = strings.TrimPrefix(err.Error(), errCase.Error()+": ")
	case errors.As(err, &own) && (own.Kind == ErrKernel || own.Kind == ErrRefused):
		result.Problem = own.Found // the plugin said no to what its own manifest asks
	case err != nil:
		return nil, err
	}
	return result, nil
}

func (p *Plugin) runCase(ctx context.Context, c *Case, result *CaseResult) error {
	op, _, ok := p.Info.Operator(c.Operator)
	if !ok {
		return caseProblem("the library describes no operator %s", c.Operator)
	}
	inputs, err := caseTensors(c, op)
	if err != nil {
		return err
	}
	wanted, err := caseOutputs(c, op)
	if err != nil {
		return err
	}
	k, err := p.Create(c.Operator, c.Attributes, make([]*Tensor, len(inputs)), CPU)
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
func runOnce(k *Kernel, op *OperatorInfo, inputs, shapes []*Tensor, threads int, expected map[string][]float64, bound Tolerance, result *CaseResult) error {
	outputs := make([]*Tensor, len(shapes))
	guards := make([]*guarded, len(shapes))
	for i, s := range shapes {
		if s == nil {
			continue
		}
		n, err := elements(s.Shape)
		if err != nil || n > maxCaseElements {
			return caseProblem("infer_shapes gave output %s the shape %v", op.outputName(i), s.Shape)
		}
		guards[i] = newGuarded(n * s.DType.Size())
		outputs[i] = &Tensor{DType: s.DType, Shape: s.Shape, Data: guards[i].pointer()}
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
	run := &RunContext{Threads: threads}
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
			return caseProblem("it wrote outside output %s", op.outputName(i))
		}
		want, ok := expected[op.outputName(i)]
		if !ok {
			continue
		}
		if err := compare(op.outputName(i), y, want, bound, result); err != nil {
			return err
		}
	}
	return nil
}

// compare holds an output against the expected numbers.
func compare(name string, y *Tensor, want []float64, bound Tolerance, result *CaseResult) error {
	got := y.floats()
	if len(got) != len(want) {
		return caseProblem("output %s has %d elements (shape %v), expected are %d", name, len(got), y.Shape, len(want))
	}
	for i, w := range want {
		g := got[i]
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		difference := math.Abs(g - w)
		if !(difference <= bound.Absolute+bound.Relative*math.Abs(w)) || math.IsInf(g, 0) || math.IsInf(w, 0) {
			return caseProblem("output %s%v is %v, expected is %v within %v + %v relative", name, position(int64(i), y.Shape), g, w, bound.Absolute, bound.Relative)
		}
		result.MaxAbsolute = max(result.MaxAbsolute, difference)
		if w != 0 {
			result.MaxRelative = max(result.MaxRelative, difference/math.Abs(w))
		}
	}
	return nil
}

// position is the index of an element along each axis.
func position(i int64, shape []int64) []int64 {
	at := make([]int64, len(shape))
	for axis := len(shape) - 1; axis >= 0; axis-- {
		at[axis] = i % shape[axis]
		i /= shape[axis]
	}
	return at
}

// outputName is the name of an output, numbered where it is one of a variadic parameter's.
func (op *OperatorInfo) outputName(i int) string { return parameterName(op.Outputs, i) }

func parameterName(parameters []Parameter, i int) string {
	if last := len(parameters) - 1; last >= 0 && i >= last && parameters[last].Variadic {
		return fmt.Sprintf("%s%d", parameters[last].Name, i-last)
	}
	return parameters[i].Name
}

// slots puts named things into the order of an operator's parameters; those of a variadic one are called
// by its name and a number from 0.
func slots(names []string, parameters []Parameter, what string) ([]int, int, error) {
	at := make([]int, len(names))
	count := 0
	for _, p := range parameters {
		if !p.Variadic {
			count++
		}
	}
	fixed := count
	for n, name := range names {
		at[n] = -1
		for i := range fixed + len(names) {
			if i < fixed || fixed < len(parameters) {
				if parameterName(parameters, i) == name {
					at[n] = i
					count = max(count, i+1)
					break
				}
			}
		}
		if at[n] < 0 {
			return nil, 0, caseProblem("the operator has no %s %s", what, name)
		}
	}
	return at, count, nil
}

// caseTensors makes the inputs in the operator's order; nil where one is absent.
func caseTensors(c *Case, op *OperatorInfo) ([]*Tensor, error) {
	names := make([]string, len(c.Inputs))
	for i := range c.Inputs {
		names[i] = c.Inputs[i].Name
	}
	at, count, err := slots(names, op.Inputs, "input")
	if err != nil {
		return nil, err
	}
	out := make([]*Tensor, count)
	for i := range c.Inputs {
		if out[at[i]], err = c.Inputs[i].tensor(); err != nil {
			return nil, err
		}
	}
	for i := range out {
		if out[i] == nil && !op.Inputs[min(i, len(op.Inputs)-1)].Optional {
			return nil, caseProblem("the operator needs the input %s", parameterName(op.Inputs, i))
		}
	}
	return out, nil
}

func (in *CaseInput) tensor() (*Tensor, error) {
	t, err := NewTensor(DType(in.DType), in.Shape...)
	if err != nil {
		return nil, err
	}
	sequence := random(in.Seed)
	for i := range t.Elements() {
		switch {
		case in.Values != nil:
			t.set(i, in.Values[i])
		case t.DType == Bool:
			t.set(i, float64(sequence.next()&1))
		case strings.Contains(string(t.DType), "int"):
			t.set(i, math.Floor(sequence.uniform(in.Min, in.Max+1)))
		default:
			t.set(i, sequence.uniform(in.Min, in.Max))
		}
	}
	return t, nil
}

// caseOutputs says which outputs are asked for: those that the case names, else those that are not
// optional.
func caseOutputs(c *Case, op *OperatorInfo) ([]bool, error) {
	at, count, err := slots(c.Outputs, op.Outputs, "output")
	if err != nil {
		return nil, err
	}
	wanted := make([]bool, count)
	for i := range wanted {
		wanted[i] = len(c.Outputs) == 0 && !op.Outputs[i].Optional
	}
	for _, i := range at {
		wanted[i] = true
	}
	for len(wanted) > 0 && !wanted[len(wanted)-1] {
		wanted = wanted[:len(wanted)-1]
	}
	for i := range wanted {
		if !wanted[i] && !op.Outputs[i].Optional {
			return nil, caseProblem("the operator always has the output %s; name it too", op.outputName(i))
		}
	}
	return wanted, nil
}

func shapesOf(tensors []*Tensor) []*Tensor {
	out := make([]*Tensor, len(tensors))
	for i, t := range tensors {
		if t != nil {
			out[i] = &Tensor{DType: t.DType, Shape: t.Shape}
		}
	}
	return out
}

// expectation computes the right answer in float64, by output name.
func expectation(c *Case, op *OperatorInfo, inputs, shapes []*Tensor) (map[string][]float64, error) {
	byName := map[string]*Tensor{}
	for i, x := range inputs {
		if x != nil {
			byName[parameterName(op.Inputs, i)] = x
		}
	}
	asked := map[string]int64{}
	for i, s := range shapes {
		if s != nil {
			asked[op.outputName(i)] = s.Elements()
		}
	}
	var expected map[string][]float64
	switch {
	case c.Expect.Reference != "":
		var err error
		if expected, err = references[c.Expect.Reference](byName, c.Attributes); err != nil {
			return nil, caseProblem("the reference: %v", err)
		}
	case c.Expect.Formula != nil:
		expected = map[string][]float64{}
		for name, text := range c.Expect.Formula {
			values, err := evaluate(text, byName, asked[name])
			if err != nil {
				return nil, caseProblem("the formula of %s: %v", name, err)
			}
			expected[name] = values
		}
	default:
		expected = map[string][]float64{}
		for name, values := range c.Expect.Values {
			expected[name] = values
		}
	}
	for name := range expected {
		if _, ok := asked[name]; !ok && c.Expect.Reference == "" {
			return nil, caseProblem("the case expects an output %s, which it does not ask for", name)
		}
	}
	for name := range asked {
		if _, ok := expected[name]; !ok {
			return nil, caseProblem("the case says nothing of output %s", name)
		}
	}
	return expected, nil
}

// evaluate computes an expression for every element of an output of n elements.
func evaluate(text string, inputs map[string]*Tensor, n int64) ([]float64, error) {
	f, err := parseFormula(text)
	if err != nil {
		return nil, err
	}
	values := map[string][]float64{}
	for _, name := range f.inputs {
		x, ok := inputs[name]
		if !ok {
			return nil, fmt.Errorf("found the name %s, needed an input of the case", name)
		}
		values[name] = x.floats()
		if have := int64(len(values[name])); have != n && have != 1 {
			return nil, fmt.Errorf("found %d elements of %s, needed %d as the output has, or 1", have, name, n)
		}
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = f.compute(func(name string) float64 {
			v := values[name]
			if len(v) == 1 {
				return v[0]
			}
			return v[i]
		})
	}
	return out, nil
}

// guarded is memory between two strips that nobody may write to. It is filled with ones, which is NaN in
// every floating-point type.
type guarded struct {
	all  []byte
	size int64
}

const (
	guardSize = 4096
	guardByte = 0xa5
)

func newGuarded(size int64) *guarded {
	g := &guarded{all: alignedBytes(size + 2*guardSize), size: size}
	for i := range g.all {
		g.all[i] = guardByte
	}
	for i := range g.inner() {
		g.inner()[i] = 0xff
	}
	return g
}

func (g *guarded) inner() []byte { return g.all[guardSize : guardSize+g.size : guardSize+g.size] }

func (g *guarded) pointer() unsafe.Pointer { return unsafe.Pointer(&g.all[guardSize]) }

func (g *guarded) intact() bool {
	strips := [][]byte{g.all[:guardSize], g.all[guardSize+g.size:]}
	for _, strip := range strips {
		for _, b := range strip {
			if b != guardByte {
				return false
			}
		}
	}
	return true
}
