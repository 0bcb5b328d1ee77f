package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/comparison"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/inputs"
	"github.com/opgraft/graft/host/loaded"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/patch"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/roles"
	"github.com/opgraft/graft/host/storage"
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
	s, err := v.library.NewSession(v.path, ort.SessionOptions{Unpatched: true})
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
		return v.python(ctx, python, ran[len(ran)-1])
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

// lengths are those to run at: what host/inputs takes by default, and for models whose lengths are left open ones that
// fit small images, long lines of text and short texts. ONNX Runtime decides which of them a model can be run at.
func lengths(a *patch.Analysis) []map[string]int64 {
	r := roles.Find(a.Graph, a.Shapes, a.Report)
	list := []map[string]int64{{}}
	for _, at := range []struct{ batch, tokens, height, width int64 }{{3, 7, 64, 96}, {1, 1, 48, 320}, {1, 33, 224, 224}, {1, 512, 32, 100}} {
		dims := map[string]int64{}
		for _, in := range a.Graph.Inputs {
			known := a.Shapes.Of(in).Dims
			for i, d := range known {
				if _, fixed := d.Const(); fixed {
					continue
				}
				name := fmt.Sprintf("%s.%d", in.Name, i)
				switch l := r.Axis(in, i).Length; {
				case l == roles.Batch || l == roles.Unknown && i == 0 && len(known) > 1:
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

// enough is at how many lengths a file is run.
const enough = 2

// sessions runs the file by default and under force, and returns the lengths at which ONNX Runtime alone runs it.
func (v *visit) sessions(ctx context.Context) (ran []map[string]int64, err error) {
	whole := []run{{How: "default"}, {How: "forced"}}
	why := ""
	for _, dims := range v.shapes {
		if len(ran) == enough {
			break
		}
		plain := comparison.Options{A: "none", B: "none", Inputs: inputs.Options{Seed: 1, Dims: dims, LooseDims: true}}
		if batch, err := inputs.Make(v.library, v.path, plain.Inputs); err != nil {
			why = err.Error()
			continue
		} else {
			batch.Close()
		}
		r, err := comparison.Answers(ctx, v.library, v.set, v.path, plain)
		if err != nil {
			why = err.Error()
			continue
		}
		if !r.Parity.OK {
			why = "ONNX Runtime's own answers differ from run to run"
			continue
		}
		ran = append(ran, dims)
		for i := range whole {
			v.compare(ctx, &whole[i], dims)
		}
	}
	if len(ran) == 0 {
		v.worse(untried, why)
		return nil, ctx.Err()
	}
	v.row.Runs = append(v.row.Runs, whole...)
	return ran, ctx.Err()
}

// compare runs the file patched and alone.
func (v *visit) compare(ctx context.Context, to *run, dims map[string]int64) {
	r, err := comparison.Answers(ctx, v.library, v.set, v.path, comparison.Options{A: "none", B: "auto", Force: to.How == "forced",
		Inputs: inputs.Options{Seed: 1, Dims: dims, LooseDims: true}})
	if err != nil {
		to.Problem = err.Error()
		v.worse(broken, to.How+": "+to.Problem)
		return
	}
	shape := ""
	for _, in := range r.Inputs {
		shape += fmt.Sprintf("%s%v ", in.Name, in.Shape)
	}
	to.Shapes = append(to.Shapes, strings.TrimSpace(shape))
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
			to.Problem = fmt.Sprintf("output %s of %s: %d elements differ, by %g at most %s", out.Name, to.Shapes[len(to.Shapes)-1], out.Disagree, out.MaxAbsolute, out.Problem)
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
	patched, err := graft.Patch(ctx, v.path, out, graft.Force(), graft.AcceptUnverified())
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
	j := job{Name: filepath.Base(v.path), Model: v.path, Patched: out, Libraries: patched.Libraries, Inputs: map[string]string{}}
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
			to.Problem = fmt.Sprintf("output %s: %d elements differ, by %g at most %s", o.Name, o.Disagree, o.MaxAbsolute, o.Problem)
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
