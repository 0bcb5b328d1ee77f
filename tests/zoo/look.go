package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
)

// visit is one file being looked at.
type visit struct {
	path    string
	library *ort.Library
	set     *loaded.Set
	shapes  []map[string]int64 // lengths to try, by INPUT.AXIS
	row     row
}

// look takes a file the whole way.
func look(ctx context.Context, path, python string) row {
	v := &visit{path: path, row: row{Path: path, Verdict: right, Reasons: map[string]int{}}}
	if err := v.all(ctx, python); err != nil {
		v.worse(broken, err.Error())
	}
	return v.row
}

func (v *visit) all(ctx context.Context, python string) (err error) {
	if v.library, err = ort.FindAndOpen(""); err != nil {
		return err
	}
	if v.set, err = loaded.Load(nil, true); err != nil {
		return err
	}
	s, err := session.Open(v.library, v.path, session.Options{Unpatched: true})
	if err != nil {
		v.worse(refused, err.Error())
		return nil
	}
	s.Close()
	if err := v.inspect(ctx); err != nil {
		return err
	}
	ran, err := v.sessions(ctx)
	if err != nil || len(ran) == 0 {
		return err
	}
	if v.row.Forced > 0 && python != "" {
		return v.python(ctx, python, ran[min(enough, len(ran))-1])
	}
	return nil
}

// worse says a verdict where nothing worse was said before.
func (v *visit) worse(verdict, problem string) {
	order := map[string]int{right: 0, refused: 1, untried: 2, different: 3, broken: 4}
	if order[verdict] > order[v.row.Verdict] {
		v.row.Verdict, v.row.Problem = verdict, problem
	}
}

// inspect recognises and plans, by default and under force, and chooses lengths to run at.
func (v *visit) inspect(ctx context.Context) error {
	for _, force := range []bool{false, true} {
		m, err := model.Open(v.path)
		if err != nil {
			return err
		}
		defer m.Close()
		a, err := patch.Analyse(ctx, m, v.set.Manifests(), v.set.Plan(plan.Options{Force: force}))
		if err != nil {
			return err
		}
		if !force {
			v.row.Default = a.Plan.Replaced()
			continue
		}
		p := m.Proto()
		v.row.Producer = strings.TrimSpace(p.GetProducerName() + " " + p.GetProducerVersion())
		a.Graph.Walk(func(*graph.Node) { v.row.Nodes++ })
		v.row.Recognised, v.row.Forced = len(a.Plan.Choices), a.Plan.Replaced()
		for _, c := range a.Plan.Choices {
			if c.Operator == nil {
				v.row.Reasons[c.Reason]++
			}
		}
		for _, u := range a.Report.Unrecognised {
			v.row.Reasons[u.Op+" is in no block: "+u.Reason]++
		}
		v.shapes = lengths(a)
	}
	return nil
}

// sizes are those to run at after what host/measure/inputs takes by default, where a model leaves a length open:
// small images, long lines of text, short and long texts, many rows; windows of sound, of a number of rows. There are
// more of them than are run, because not every model takes every one.
var sizes = []struct{ batch, tokens, height, width int64 }{
	{3, 7, 64, 96}, {1, 1, 48, 320}, {1, 33, 224, 224}, {1, 512, 32, 100}, {2, 16, 64, 64}, {4, 9, 96, 32},
	{5, 3, 32, 160}, {1, 64, 128, 192},
	{6, 5, 48, 192}, {1, 128, 256, 192}, {7, 2, 32, 320}, {2, 100, 160, 224}, {8, 12, 64, 32}, {1, 255, 192, 64},
	{9, 4, 32, 64}, {2, 31, 320, 256},
	{10, 6, 32, 32}, {1, 17, 288, 96}, {11, 8, 96, 64}, {1, 300, 64, 480}, {12, 10, 64, 128},
	{2, 512, 64, 256}, {3, 512, 64, 352}, {4, 512, 32, 32}, {5, 512, 32, 96}, {6, 512, 48, 48}, {7, 512, 96, 96},
	{8, 512, 128, 128},
	{9, 512, 32, 128}, {10, 512, 128, 64}, {2, 256, 64, 384}, {3, 256, 96, 128}, {4, 256, 160, 96}, {5, 256, 32, 224},
	{6, 256, 64, 160}, {7, 256, 192, 96},
	{8, 256, 32, 288}, {1, 1024, 64, 416}, {2, 1536, 160, 160}, {1, 1536, 192, 192}, {3, 768, 224, 224},
}

// lengths are those to run at, sizes as a model's inputs have them. ONNX Runtime decides which of them a model can be
// run at.
func lengths(a *patch.Analysis) []map[string]int64 {
	r := roles.Find(a.Graph, a.Shapes, a.Report)
	list := []map[string]int64{{}}
	for _, at := range sizes {
		dims := map[string]int64{}
		for _, in := range a.Graph.Inputs {
			known := a.Shapes.Of(in).Dims
			for i, d := range known {
				if _, fixed := d.Const(); fixed {
					continue
				}
				name := fmt.Sprintf("%s.%d", in.Name, i)
				switch l := r.Axis(in, i).Length; {
				case l == roles.Batch || l == roles.Unknown && (i == 0 && len(known) > 1 || i == 1 && state(known)):
					dims[name] = at.batch
				case l == roles.New:
					dims[name] = at.tokens
				case l == roles.Unknown && len(known) == 4 && i == 2:
					dims[name] = at.height
				case l == roles.Unknown && len(known) == 4 && i == 3:
					dims[name] = at.width
				case l == roles.Unknown && len(known) < 4:
					dims[name] = at.tokens
				}
			}
		}
		if len(dims) > 0 {
			list = append(list, dims)
		}
	}
	return list
}

// state is true of the shape of what a recurrent layer goes on from: directions or layers, rows, features.
func state(dims []graph.Dim) bool {
	if len(dims) != 3 {
		return false
	}
	_, layers := dims[0].Const()
	_, features := dims[2].Const()
	return layers && features
}

// most is at how many shapes a file is run patched as it is by default, enough at how many with every operator forced
// too.
const (
	most   = 12
	enough = 2
)

// sessions runs the file by default and under force, and returns the lengths at which ONNX Runtime alone runs it.
func (v *visit) sessions(ctx context.Context) (ran []map[string]int64, err error) {
	whole := []run{{How: "default"}, {How: "forced"}}
	why := ""
	for _, dims := range v.shapes {
		if len(ran) == most || ctx.Err() != nil {
			break
		}
		shape, err := v.shape(dims)
		if err != nil {
			why = err.Error()
			continue
		}
		if slices.Contains(whole[0].Shapes, shape) {
			continue
		}
		r, failed := v.answers(ctx, dims, "auto", false)
		if failed != nil || !r.Parity.OK {
			if why = v.alone(ctx, dims); why != "" {
				continue
			}
		}
		v.record(&whole[0], shape, r, failed)
		if len(ran) < enough {
			r, failed = v.answers(ctx, dims, "auto", true)
			v.record(&whole[1], shape, r, failed)
		}
		ran = append(ran, dims)
	}
	if len(ran) == 0 {
		v.worse(untried, why)
		return nil, ctx.Err()
	}
	v.row.Shapes, v.row.Runs = len(whole[0].Shapes), append(v.row.Runs, whole...)
	return ran, ctx.Err()
}

// shape is that of the inputs at lengths, in words.
func (v *visit) shape(dims map[string]int64) (string, error) {
	batch, err := inputs.Make(v.library, v.path, inputs.Options{Seed: 1, Dims: dims, LooseDims: true})
	if err != nil {
		return "", err
	}
	defer batch.Close()
	said := ""
	for _, in := range batch.Infos {
		said += fmt.Sprintf("%s%v ", in.Name, in.Shape)
	}
	return strings.TrimSpace(said), nil
}

// answers are those of the file alone, and with operators as b says.
func (v *visit) answers(ctx context.Context, dims map[string]int64, b string, force bool) (*comparison.Result, error) {
	return comparison.Answers(ctx, v.library, v.set, v.path, comparison.Options{A: "none", B: b, Force: force,
		Inputs: inputs.Options{Seed: 1, Dims: dims, LooseDims: true}})
}

// alone says why ONNX Runtime alone gives no answer at lengths that another could be held to, or nothing.
func (v *visit) alone(ctx context.Context, dims map[string]int64) string {
	switch r, err := v.answers(ctx, dims, "none", false); {
	case err != nil:
		return err.Error()
	case !r.Parity.OK:
		return "ONNX Runtime's own answers differ from run to run"
	}
	return ""
}

// record takes what a run of the file patched and alone said.
func (v *visit) record(to *run, shape string, r *comparison.Result, err error) {
	if err != nil {
		to.Problem = shape + ": " + err.Error()
		v.worse(broken, to.How+": "+to.Problem)
		return
	}
	to.Shapes = append(to.Shapes, shape)
	want := v.row.Default
	if to.How == "forced" {
		want = v.row.Forced
	}
	if r.B.Replaced != want {
		v.worse(broken, fmt.Sprintf("%s: %d blocks are planned, %d replaced", to.How, want, r.B.Replaced))
	}
	for _, out := range r.Parity.Outputs {
		v.difference(to, out.MaxAbsolute)
		if c := out.Cosine; c != nil && (v.row.Cosine == nil || *c < *v.row.Cosine) {
			v.row.Cosine = c
		}
		if !out.OK {
			to.Problem = fmt.Sprintf("output %s of %s: %d elements differ, by %g at most %s", out.Name, shape, out.Disagree,
				out.MaxAbsolute, out.Problem)
			v.worse(different, to.How+": "+to.Problem)
		}
	}
}

func (v *visit) difference(of *run, by float64) {
	of.Difference = math.Max(of.Difference, by)
	v.row.Difference = math.Max(v.row.Difference, by)
}

// python loads the patched file as a program in Python would, and compares.
func (v *visit) python(ctx context.Context, program string, dims map[string]int64) error {
	folder, err := storage.Temporary("")
	if err != nil {
		return err
	}
	defer folder.Remove()
	out := filepath.Join(folder.Path, "patched.onnx")
	patched, err := graft.Patch(ctx, v.path, out, graft.Options{Common: graft.Common{Force: true, AcceptUnverified: true}})
	if errors.Is(err, graft.ErrNothingReplaced) {
		return fmt.Errorf("%d blocks are planned, patch replaces none", v.row.Forced)
	}
	if err != nil {
		return err
	}
	if patched.Replaced != v.row.Forced {
		return fmt.Errorf("%d blocks are planned, patch replaces %d", v.row.Forced, patched.Replaced)
	}
	batch, err := inputs.Make(v.library, v.path, inputs.Options{Seed: 1, Dims: dims, LooseDims: true})
	if err != nil {
		return err
	}
	defer batch.Close()
	j := job{Name: filepath.Base(v.path), Model: v.path, Patched: out, Libraries: patched.Libraries,
		Inputs: map[string]string{}}
	for name, value := range batch.Values {
		j.Inputs[name] = filepath.Join(folder.Path, fmt.Sprintf("input-%d.pb", len(j.Inputs)))
		if err := write(j.Inputs[name], value); err != nil {
			return err
		}
	}
	a, err := j.run(ctx, program)
	if err != nil {
		return err
	}
	to := run{How: "python"}
	switch {
	case a.Error != "" && a.Stage == "model":
		to.Problem = "Python's onnxruntime does not load it unpatched: " + a.Error
	case a.Error != "":
		to.Problem = a.Error
		v.worse(broken, "python: "+a.Error)
	}
	for _, o := range a.Outputs {
		v.difference(&to, o.MaxAbsolute)
		if o.Problem != "" || o.Disagree > 0 && o.MaxAbsolute > 2*v.allowed() {
			to.Problem = fmt.Sprintf("output %s: %d elements differ, by %g at most %s", o.Name, o.Disagree, o.MaxAbsolute,
				o.Problem)
			v.worse(different, "python: "+to.Problem)
		}
	}
	v.row.Runs = append(v.row.Runs, to)
	return nil
}

// allowed is the difference that the sessions' comparison, which knows ONNX Runtime's own rounding, let pass.
func (v *visit) allowed() (most float64) {
	for _, r := range v.row.Runs {
		if r.Problem == "" {
			most = math.Max(most, r.Difference)
		}
	}
	return most
}
