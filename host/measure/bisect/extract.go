package bisect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/patch"
)

// Extract is what shows a culprit in one command.
type Extract struct {
	Model     string   `json:"model"`            // the model that the command compares
	Whole     bool     `json:"whole,omitempty"`  // it is the searched one: no part of it that was tried shows the culprit
	Nodes     int      `json:"nodes,omitempty"`  // of a part
	Inputs    string   `json:"inputs,omitempty"` // what it is fed, a numpy archive
	Plan      string   `json:"plan,omitempty"`   // the culprit's choices, where the command needs them
	Outcome   Outcome  `json:"outcome"`          // of the command when it was tried
	Shown     bool     `json:"reproduced"`       // the outcome is that of the culprit
	Arguments []string `json:"arguments"`        // of the command
	Command   string   `json:"command"`          // as a shell takes it

	fed bool // the inputs lie in the folder
}

// Names of what an extract holds.
const (
	modelFile  = "model.onnx"
	inputsFile = "inputs.npz"
	planFile   = "plan.json"
	planFileA  = "plan-a.json"
)

// extraction makes extracts of a model.
type extraction struct {
	*run
	library *ort.Library
	model   *model.Model
	fed     *inputs.Batch
}

// extract writes an extract of each culprit that is like no earlier one, all in one step: into the folder, or of
// several into folders in it with the culprits' numbers.
func (r *run) extract(ctx context.Context, sets [][]int) error {
	if r.Extract == "" {
		return nil
	}
	l, err := ort.FindAndOpen(r.Runtime)
	if err != nil {
		return err
	}
	m, err := model.Open(r.Model)
	if err != nil {
		return err
	}
	defer m.Close()
	fed, err := inputs.Make(l, r.Model, r.Options.Inputs)
	if err != nil {
		return err
	}
	defer fed.Close()
	if err := os.MkdirAll(filepath.Dir(filepath.Clean(r.Extract)), 0o755); err != nil {
		return &diagnostic.Error{Path: r.Extract, Found: "cannot write an extract there: " + diagnostic.Cause(err),
			Cause: err}
	}
	beside, err := storage.Temporary(filepath.Dir(filepath.Clean(r.Extract)))
	if err != nil {
		return &diagnostic.Error{Path: r.Extract, Found: "cannot write an extract there: " + diagnostic.Cause(err),
			Cause: err}
	}
	defer beside.Remove()
	stage := filepath.Join(beside.Path, "extract")
	x := &extraction{r, l, m, fed}
	several := slices.ContainsFunc(r.result.Culprits[1:], func(c Culprit) bool { return c.Like == 0 })
	for i := range r.result.Culprits {
		if r.result.Culprits[i].Like > 0 {
			continue
		}
		at, final := stage, r.Extract
		if several {
			at, final = filepath.Join(at, strconv.Itoa(i+1)), filepath.Join(final, strconv.Itoa(i+1))
		}
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		var parts []int
		if i < len(sets) {
			parts = sets[i]
		}
		if err := x.one(ctx, at, final, &r.result.Culprits[i], parts); err != nil {
			return err
		}
	}
	if err := storage.Place(stage, filepath.Clean(r.Extract)); err != nil {
		return &diagnostic.Error{Path: r.Extract, Found: "cannot write an extract there: " + diagnostic.Cause(err),
			Cause: err}
	}
	return nil
}

// one writes the smallest part of the model that shows a culprit, or what the whole model shows it with.
func (x *extraction) one(ctx context.Context, at, final string, c *Culprit, parts []int) error {
	x.step("extracting")
	if !c.Padding {
		for _, cut := range []bool{true, false} {
			found, err := x.part(ctx, at, final, c, parts, cut)
			if err != nil || found {
				return err
			}
		}
	}
	e := &Extract{Whole: true, fed: x.archived()}
	c.Extract = e
	if e.fed {
		if err := inputs.WriteNPZ(filepath.Join(at, inputsFile), x.fed.Values); err != nil {
			return err
		}
	}
	side := candidate{a: x.Options.A, b: x.Options.B, force: x.Options.Force}
	if len(parts) > 0 {
		side.b = ""
		if err := write(filepath.Join(at, planFile), x.chosen(parts)); err != nil {
			return err
		}
	}
	_, err := x.try(ctx, at, final, e, c, side)
	return err
}

// archived says whether what the model was fed can be written.
func (x *extraction) archived() bool {
	for _, v := range x.fed.Values {
		if v.Kind() != ort.KindTensor || !inputs.Numpy(v.Element()) {
			return false
		}
	}
	return true
}

// part writes the part of the model that makes what a culprit changes, and leaves it there where it shows the culprit.
func (x *extraction) part(ctx context.Context, at, final string, c *Culprit, parts []int, cut bool) (shown bool,
	err error) {
	a, err := patch.View(ctx, x.model, proto.CloneOf(x.model.Proto()))
	if err != nil {
		return false, err
	}
	s := x.slice(a, c, parts, cut)
	if s == nil {
		return false, nil
	}
	fed, done, err := x.feed(ctx, s)
	if err != nil || fed == nil {
		return false, err
	}
	defer done()
	s.edit(a.Graph.Model(), fed)
	if err := x.model.Write(ctx, a.Graph.Model(), filepath.Join(at, modelFile), model.WriteOptions{}); err != nil {
		return false, err
	}
	e := &Extract{Nodes: len(s.nodes), fed: true}
	if err := inputs.WriteNPZ(filepath.Join(at, inputsFile), fed); err != nil {
		return false, err
	}
	sides, err := x.candidates(at, c)
	if err != nil {
		return false, err
	}
	for _, side := range sides {
		if shown, err := x.try(ctx, at, final, e, c, side); err != nil || shown {
			c.Extract = e
			return shown, err
		}
	}
	return false, empty(at)
}

// slice is the part that makes the first tensor, or else what the culprit's blocks make; nil where that is not known.
func (x *extraction) slice(a *patch.Analysis, c *Culprit, parts []int, cut bool) *slice {
	inside, after := x.region(a.Graph, parts)
	for _, v := range after {
		inside[v.Producer] = true
	}
	var outputs []*graph.Value
	if c.First != nil {
		outputs = append(outputs, a.Graph.Lookup(c.First.Name))
	}
	for _, i := range parts {
		for _, u := range x.units[i].choices {
			if c.First != nil && len(c.Blocks) == 1 {
				break // others take every block
			}
			for _, name := range u.Outputs {
				v := a.Graph.Lookup(name)
				if v != nil && v.Producer != nil && (len(v.Uses) > 0 || v.IsOutput) && !slices.Contains(outputs, v) {
					outputs = append(outputs, v)
				}
			}
		}
	}
	if len(outputs) == 0 {
		return nil
	}
	return sliceOf(a.Graph, a.Shapes, inside, outputs, cut)
}

// feed is what a part was fed in a run of the model as it is; nil where numpy has no type for it.
func (x *extraction) feed(ctx context.Context, s *slice) (fed map[string]*ort.Value, done func(), err error) {
	fed, done = map[string]*ort.Value{}, func() {}
	var names []string
	for _, v := range s.cut {
		names = append(names, v.Name)
	}
	if len(names) > 0 {
		at, err := instrument(ctx, x.library, nil, x.model, "none", x.Options, names)
		if err != nil {
			return nil, done, err
		}
		defer at.session.Close()
		values, err := at.values(ctx, x.fed, names)
		if err != nil {
			return nil, done, err
		}
		done = func() { closeAll(values) }
		for i, name := range names {
			fed[name] = values[i]
		}
	}
	for _, v := range s.inputs {
		if fed[v.Name] == nil {
			fed[v.Name] = x.fed.Values[v.Name]
		}
		if given := fed[v.Name]; given == nil || given.Kind() != ort.KindTensor || !inputs.Numpy(given.Element()) {
			done()
			return nil, done, nil
		}
	}
	return fed, done, nil
}

// candidate is a pair of sides; "" is the plan file for it in the extract's folder.
type candidate struct {
	a, b  string
	force bool
}

// candidates are pairs of sides that may show a culprit in a part of the model, the plainest first.
func (x *extraction) candidates(at string, c *Culprit) ([]candidate, error) {
	var list []candidate
	a, before, chosen, plugins := "none", map[string]string{}, map[string]string{}, map[string]bool{}
	for _, b := range c.Blocks {
		if b.OperatorA != "" {
			a, before[b.Node] = "", b.OperatorA
		}
		if b.Operator != "" {
			chosen[b.Node], plugins[b.Plugin] = b.Operator, true
		}
	}
	if len(before) > 0 {
		if err := write(filepath.Join(at, planFileA), before); err != nil {
			return nil, err
		}
	}
	if len(chosen) == 0 {
		return []candidate{{a: a, b: "none"}}, nil
	}
	for name := range plugins {
		if len(plugins) == 1 {
			list = append(list, candidate{a: a, b: name}, candidate{a: a, b: name, force: true})
		}
	}
	return append(list, candidate{a: a}), write(filepath.Join(at, planFile), chosen)
}

// empty removes what did not show a culprit.
func empty(folder string) error {
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		if err == nil {
			err = os.RemoveAll(filepath.Join(folder, e.Name()))
		}
	}
	return err
}

// try runs the comparison of a command, and notes the command as it will be once at has become final.
func (x *extraction) try(ctx context.Context, at, final string, e *Extract, c *Culprit, side candidate) (shown bool,
	err error) {
	j := x.comparison(x.sides(at, e, side))
	if j.Model = filepath.Join(at, modelFile); e.Whole {
		j.Model = x.Model
	}
	if e.Outcome, err = x.compare(ctx, j); err != nil {
		return false, err
	}
	if e.Shown = e.Outcome.How == c.Outcome.How; !e.Shown && !e.Whole {
		return false, nil
	}
	if e.Model = x.Model; !e.Whole {
		e.Model = filepath.Join(final, modelFile)
	}
	if side.b == "" {
		e.Plan = filepath.Join(final, planFile)
	} else if err := os.Remove(filepath.Join(at, planFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	o := x.sides(final, e, side)
	if e.fed {
		e.Inputs = o.Inputs.File
	}
	e.Arguments = x.arguments(e, o)
	quoted := []string{"graft"}
	for _, a := range e.Arguments {
		quoted = append(quoted, diagnostic.Quote(a))
	}
	e.Command = strings.Join(quoted, " ")
	return true, nil
}

// sides are the options of a comparison of a candidate, with the extract's files in a folder.
func (x *extraction) sides(folder string, e *Extract, side candidate) comparison.Options {
	o := x.Options
	o.Step, o.Progress, o.Force = nil, nil, side.force
	if o.A = side.a; o.A == "" {
		o.A = filepath.Join(folder, planFileA)
	}
	if o.B = side.b; o.B == "" {
		o.B = filepath.Join(folder, planFile)
	}
	if e.fed {
		o.Inputs.Dims, o.Inputs.File = nil, filepath.Join(folder, inputsFile)
	}
	return o
}

// arguments are those of the command that does what a comparison did.
func (x *extraction) arguments(e *Extract, o comparison.Options) []string {
	args := []string{"ab", e.Model}
	flag := func(given bool, name string, value any) {
		if given {
			args = append(args, "--"+name, fmt.Sprint(value))
		}
	}
	flag(o.A != "none", "a", o.A)
	flag(true, "b", o.B)
	flag(e.Inputs != "", "inputs", e.Inputs)
	if o.Force {
		args = append(args, "--force")
	}
	if o.QuantizationNoise {
		args = append(args, "--accept-quantization-noise")
	}
	flag(o.Padding != plan.ExactPadding, "padding", o.Padding)
	flag(o.Absolute > 0, "absolute", o.Absolute)
	flag(o.Relative > 0, "relative", o.Relative)
	flag(o.Threads > 0, "threads", o.Threads)
	if e.Inputs == "" {
		flag(o.Inputs.File != "", "inputs", o.Inputs.File)
		flag(true, "seed", o.Inputs.Seed)
		for _, name := range slices.Sorted(maps.Keys(o.Inputs.Dims)) {
			flag(true, "dim", fmt.Sprintf("%s=%d", name, o.Inputs.Dims[name]))
		}
	}
	flag(e.Outcome.How == Hangs, "deadline", x.Deadline)
	for _, folder := range x.Folders {
		flag(true, "plugins-dir", folder)
	}
	flag(x.Runtime != "", "onnxruntime", x.Runtime)
	return args
}
