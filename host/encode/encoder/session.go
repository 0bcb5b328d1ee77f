package encoder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/half"
	"github.com/opgraft/graft/host/encode/folder"
	"github.com/opgraft/graft/host/generate/text"
	"github.com/opgraft/graft/host/meaning/padding"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/host/session/sessions"
)

// Row is a text, or a pair of texts, as tokens.
type Row struct {
	IDs, Types []int64
	prompt     int // the first tokens that are the prompt's
	expanded   int // the last tokens that fill a query up
	hidden     int // of these, those that no other token sees
	of         *route
	task       folder.Task
	text       string
	tokens     []text.Token // of a text of which tokens are labelled, with their places in it
}

// Length is the number of tokens.
func (r Row) Length() int { return len(r.IDs) }

// input is one of a model's inputs.
type input struct {
	name    string
	role    roles.Input
	element ort.ElementType
	past    []int64 // of a past the axes: ofBatch, 0 for the tokens before, and what the model needs
}

// ofBatch is the length of an axis that counts rows.
const ofBatch = -1

// meant is what an input holds, and what its axes count.
type meant struct {
	role roles.Input
	axes []roles.Axis
}

// A runner runs an encoder over rows.
type runner struct {
	path      string
	library   *ort.Library
	inputs    []input
	masked    bool   // padding can be hidden
	mixes     string // which node reads hidden tokens all the same
	positions int    // that the model's tables have; 0 for no limit
	outputs   []ort.ValueInfo
	pad       int64
	made      session.Options // what sessions are made with, patched or not
	logger    *slog.Logger
	told      func(string)

	native   *session.Session
	patched  bool // by graft's operators
	unpadded bool // hidden tokens cost nothing
	files    *model.Files
	plain    func() *session.Session // without them, of the same files; made once
	second   atomic.Pointer[session.Session]
	reverted atomic.Bool // plain runs
}

// openSession opens a graph. Which input is which is decided by what the graph does with it. The model is read and
// recognised once, for that and for the plan.
func openSession(ctx context.Context, path string, o Options) (s *runner, err error) {
	s = &runner{path: path, library: o.Library, logger: o.Logger, told: o.Note,
		made: session.Options{IntraOpThreads: o.Threads, LogSeverity: session.LogError, Config: o.Config}}
	m, err := model.Open(path)
	if err != nil {
		return nil, err
	}
	view, err := s.recognise(ctx, m)
	if err != nil {
		m.Close()
		return nil, err
	}
	meaning, padded, err := s.meaning(ctx, view)
	if err != nil {
		m.Close()
		return nil, err
	}
	if o.Plugins == nil || len(o.Plugins.Plugins) == 0 {
		m.Close()
	} else if err := s.openPatched(ctx, view, padded, o); err != nil {
		return nil, err
	}
	if s.native == nil {
		options := s.made
		options.Unpatched, s.patched, s.unpadded = true, false, false
		if s.native, err = session.OpenContext(ctx, o.Library, path, options); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	s.plain = sync.OnceValue(s.makePlain)
	err = s.describe(meaning)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.native.Close()
		return nil, err
	}
	return s, nil
}

// recognise views a model as a session on the CPU needs it.
func (s *runner) recognise(ctx context.Context, m *model.Model) (view *patch.Analysis, err error) {
	if s.files, err = m.Files(); err != nil {
		return nil, err
	}
	return patch.ViewFor(ctx, m, plan.Options{})
}

// meaning says what the inputs hold, and whether what is computed for padding would be read outside of this package's
// way: where it is not, it can be left out.
func (s *runner) meaning(ctx context.Context, view *patch.Analysis) (inputs map[string]meant,
	padded plan.Padding, err error) {
	inputs = map[string]meant{}
	err = view.Within(ctx, func() error {
		r := roles.Find(view.Graph, view.Shapes, view.Report)
		for _, v := range view.Graph.Inputs {
			m := meant{role: r.Of(v)}
			for axis := range view.Shapes.Of(v).Rank {
				m.axes = append(m.axes, r.Axis(v, axis))
			}
			inputs[v.Name] = m
		}
		s.positions = int(min(r.Positions, 1<<30))
		only := func(in roles.Input) *graph.Value {
			i := slices.IndexFunc(view.Graph.Inputs, func(v *graph.Value) bool { return r.Of(v) == in })
			if i < 0 {
				return nil
			}
			return view.Graph.Inputs[i]
		}
		if tokens, mask := only(roles.Tokens), only(roles.Mask); tokens != nil && mask != nil {
			s.mixes = padding.Mixes(view.Graph, view.Shapes, view.Report, tokens, mask)
		}
		return nil
	})
	if err != nil {
		return nil, padded, err
	}
	err = view.Within(ctx, func() error {
		if facts, _ := padding.Find(view.Graph, view.Shapes, view.Report); facts != nil && !facts.Rounds {
			padded = plan.IgnorePadding // nothing here reads what is computed for padding
		}
		return nil
	})
	if err != nil && ctx.Err() == nil { // the model runs all the same, padding and all
		if s.logger != nil {
			s.logger.Warn("padding is computed as well", "reason", err)
		}
		return inputs, plan.ExactPadding, nil
	}
	return inputs, padded, err
}

// openPatched makes the session with graft's operators. Where there cannot be one, native stays nil, and a warning says
// why. The view's model is closed.
func (s *runner) openPatched(ctx context.Context, view *patch.Analysis, padded plan.Padding, o Options) (err error) {
	if o.Plan.Padding == plan.ExactPadding && !o.readsHidden {
		o.Plan.Padding = padded
	}
	patcher := &sessions.Patcher{Plugins: o.Plugins.Plugins, Options: o.Plugins.Plan(o.Plan), Logger: o.Logger,
		MapWeights: o.MapWeights, Share: o.Share}
	options := s.made
	options.Patcher = func(r session.Request) (*session.Patch, error) {
		p, err := patcher.PlanViewed(ctx, r, view)
		if view = nil; p == nil || err != nil {
			return nil, err
		}
		s.patched = p.Analysis.Plan.Replaced() > 0
		s.unpadded = p.Analysis.Plan.Rows() == plan.VisibleRows
		return p.Patch()
	}
	s.native, err = session.OpenContext(ctx, o.Library, s.path, options)
	if view != nil {
		view.Model.Close()
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, model.ErrInUse):
		return err
	}
	s.warn("the model runs without graft's operators", err)
	return nil
}

func (s *runner) warn(what string, err error) {
	if s.logger != nil {
		s.logger.Warn("graft: "+what, "model", s.path, "reason", err)
	}
}

// note tells a user, or a program's log.
func (s *runner) note(what, why string) {
	if s.told != nil {
		s.told(what + ": " + why)
	} else if s.logger != nil {
		s.logger.Info("graft: "+what, "model", s.path, "reason", why)
	}
}

// describe reads what a session takes and gives.
func (s *runner) describe(meaning map[string]meant) error {
	tokens := ""
	for _, in := range s.native.Inputs() {
		role, past := meaning[in.Name].role, []int64(nil)
		ok := in.Kind == ort.KindTensor && len(in.Shape) == 2
		switch role {
		case roles.Tokens:
			if tokens != "" {
				return &diagnostic.Error{Path: s.path, Found: "two inputs of token ids, " + tokens + " and " + in.Name +
					": an encoder with its decoder", Needed: "an encoder alone",
					Fix: "export the encoder alone, or name its graph, such as encoder_model.onnx (ModelFile, --model-file)"}
			}
			tokens = in.Name
			ok = ok && (in.Element == ort.Int64 || in.Element == ort.Int32)
		case roles.Types, roles.Positions:
			ok = ok && (in.Element == ort.Int64 || in.Element == ort.Int32)
		case roles.Mask:
			s.masked = s.mixes == ""
			ok = ok && slices.Contains([]ort.ElementType{ort.Int64, ort.Int32, ort.Float32, ort.Bool}, in.Element)
		case roles.Past:
			past, ok = emptyPast(in, meaning[in.Name].axes)
		default:
			ok = false
		}
		if !ok {
			return &diagnostic.Error{Path: s.path, Found: fmt.Sprintf("the input %s, %s", in, described(role)),
				Needed: "inputs of token ids, their mask, types and positions alone, [batch, sequence], and a past " +
					"that may be empty"}
		}
		s.inputs = append(s.inputs, input{in.Name, role, in.Element, past})
	}
	if tokens == "" {
		return &diagnostic.Error{Path: s.path, Found: "no input of token ids", Needed: "an encoder of text"}
	}
	s.outputs = s.native.Outputs()
	s.unpadded = s.unpadded || !s.masked // no token is hidden
	if s.mixes != "" {
		s.note("texts of one length run together, so that each has the answer that it has alone", s.mixes)
	}
	return nil
}

// emptyPast is the shape of a past of no tokens; ok is false for an input that cannot be one.
func emptyPast(in ort.ValueInfo, axes []roles.Axis) (shape []int64, ok bool) {
	if in.Kind != ort.KindTensor || len(axes) != len(in.Shape) ||
		!slices.Contains([]ort.ElementType{ort.Float32, ort.Float16, ort.BFloat16}, in.Element) {
		return nil, false
	}
	empty := false
	for i, n := range in.Shape {
		switch a := axes[i]; {
		case a.Length == roles.Cached && n < 0:
			shape, empty = append(shape, 0), true
		case a.Length == roles.Batch && n < 0:
			shape = append(shape, ofBatch)
		case n > 0:
			shape = append(shape, n)
		case a.Fixed > 0:
			shape = append(shape, a.Fixed)
		default:
			return nil, false
		}
	}
	return shape, empty
}

func described(r roles.Input) string {
	if r == roles.Other {
		return "of unknown meaning"
	}
	return "which holds " + string(r)
}

// output finds an output: the first of these names, else the only one of that rank. ok is false where there is none.
func (s *runner) output(rank int, names ...string) (ort.ValueInfo, bool) {
	var fit []ort.ValueInfo
	for _, v := range s.outputs {
		if v.Kind == ort.KindTensor && len(v.Shape) == rank &&
			slices.Contains([]ort.ElementType{ort.Float32, ort.Float16, ort.BFloat16}, v.Element) {
			fit = append(fit, v)
		}
	}
	for _, name := range names {
		for _, v := range fit {
			if v.Name == name {
				return v, true
			}
		}
	}
	if len(fit) == 1 && len(names) > 0 && fit[0].Name != "logits" { // which are taken where they are asked for alone
		return fit[0], true
	}
	return ort.ValueInfo{}, false
}

// named finds an output of a name and a rank.
func (s *runner) named(name string, rank int) (ort.ValueInfo, bool) {
	v, ok := s.output(rank, name)
	return v, ok && v.Name == name
}

// listed are the outputs, for a message.
func (s *runner) listed() string {
	var list []string
	for _, v := range s.outputs {
		list = append(list, v.String())
	}
	return diagnostic.Clip(strings.Join(list, ", "))
}

// output is one of a model's outputs, which may have nothing for the first tokens.
type output struct {
	ort.ValueInfo
	skips int
}

// run computes outputs of rows, which are padded to the longest, and hands each row its part of each: states of the
// padded length times a width, or one vector. Where padding would change answers, rows of one length run together.
func (s *runner) run(ctx context.Context, rows []Row, outputs []output,
	each func(row, output int, values []float32, width int) error) error {
	if s.masked {
		all := make([]int, len(rows))
		for i := range all {
			all[i] = i
		}
		return s.padded(ctx, rows, all, outputs, each)
	}
	groups := map[int][]int{}
	for i, r := range rows {
		groups[r.Length()] = append(groups[r.Length()], i)
	}
	for _, group := range groups {
		if err := s.padded(ctx, rows, group, outputs, each); err != nil {
			return err
		}
	}
	return nil
}

func (s *runner) padded(ctx context.Context, all []Row, numbers []int, outputs []output,
	each func(int, int, []float32, int) error) error {
	rows, length := make([]Row, len(numbers)), 0
	for k, i := range numbers {
		rows[k] = all[i]
		length = max(length, rows[k].Length())
	}
	values := map[string]*ort.Value{}
	defer func() {
		for _, v := range values {
			v.Close()
		}
	}()
	for _, in := range s.inputs {
		v, err := s.tensor(in, rows, length)
		if err != nil {
			return err
		}
		values[in.name] = v
	}
	names := make([]string, len(outputs))
	for i, o := range outputs {
		names[i] = o.Name
	}
	results, err := s.once(ctx, values, names...)
	if err != nil {
		return err
	}
	defer func() {
		for _, r := range results {
			r.Close()
		}
	}()
	for o, result := range results {
		shape := result.Shape()
		if len(shape) < 2 || shape[0] != int64(len(rows)) ||
			len(shape) == 3 && shape[1] != int64(length-outputs[o].skips) {
			return &diagnostic.Error{Path: s.path, Found: fmt.Sprintf("the output %s of shape %v", names[o], shape),
				Needed: fmt.Sprintf("a row for each of %d texts, of %d tokens", len(rows), length-outputs[o].skips)}
		}
		data, err := floatsOf(result)
		if err != nil {
			return err
		}
		width, part := int(shape[len(shape)-1]), len(data)/len(rows)
		for k, i := range numbers {
			if err := each(i, o, data[k*part:(k+1)*part], width); err != nil {
				return err
			}
		}
	}
	return nil
}

// once runs. Where graft's operators fail and the model itself does not, it runs without them from then on. What the
// model itself refuses too is the caller's error, in ONNX Runtime's words.
func (s *runner) once(ctx context.Context, inputs map[string]*ort.Value,
	outputs ...string) ([]*ort.Value, error) {
	if s.reverted.Load() {
		return s.plain().Run(ctx, inputs, outputs...)
	}
	results, err := s.native.Run(ctx, inputs, outputs...)
	if err == nil || !s.patched || ctx.Err() != nil {
		return results, err
	}
	plain := s.plain()
	if plain == nil {
		return nil, err
	}
	results, again := plain.Run(ctx, inputs, outputs...)
	if again == nil && !s.reverted.Swap(true) {
		s.warn("an operator failed; the model runs without graft's operators from now on", err)
	}
	return results, again
}

// makePlain is a session of the model without graft's operators, made when a run failed. It is nil where there is none:
// the files are not what they were.
func (s *runner) makePlain() *session.Session {
	if s.files.Unchanged() != nil {
		return nil
	}
	options := s.made
	options.Unpatched = true
	plain, err := session.Open(s.library, s.path, options)
	if err == nil {
		err = s.files.Unchanged()
	}
	if err != nil {
		plain.Close()
		return nil
	}
	s.second.Store(plain)
	return plain
}

// tensor makes an input of rows that are filled up to a length.
func (s *runner) tensor(in input, rows []Row, length int) (*ort.Value, error) {
	if in.role == roles.Past {
		shape := slices.Clone(in.past)
		for i, n := range shape {
			if n == ofBatch {
				shape[i] = int64(len(rows))
			}
		}
		return s.library.NewTensorBytes(in.element, shape, nil)
	}
	data := make([]int64, 0, len(rows)*length)
	for _, r := range rows {
		n := r.Length()
		for t := range length {
			v := int64(0)
			switch {
			case in.role == roles.Positions:
				v = int64(t)
			case in.role == roles.Tokens && t < n:
				v = r.IDs[t]
			case in.role == roles.Tokens:
				v = s.pad
			case in.role == roles.Types && t < n && t < len(r.Types):
				v = r.Types[t]
			case in.role == roles.Mask && t < n-r.hidden:
				v = 1
			}
			data = append(data, v)
		}
	}
	shape := []int64{int64(len(rows)), int64(length)}
	switch in.element {
	case ort.Int32:
		return ort.NewTensor(s.library, shape, as[int32](data))
	case ort.Float32:
		return ort.NewTensor(s.library, shape, as[float32](data))
	case ort.Bool:
		return s.library.NewTensorBytes(ort.Bool, shape, as[byte](data))
	}
	return ort.NewTensor(s.library, shape, data)
}

func as[T int32 | float32 | byte](data []int64) []T {
	out := make([]T, len(data))
	for i, v := range data {
		out[i] = T(v)
	}
	return out
}

// floatsOf are the elements of a tensor, a view where they are float32.
func floatsOf(v *ort.Value) ([]float32, error) {
	widen := half.ToFloat
	switch v.Element() {
	case ort.Float32:
		return ort.Data[float32](v)
	case ort.BFloat16:
		widen = half.BFloatToFloat
	}
	bits, err := ort.Data[uint16](v)
	if err != nil {
		return nil, err
	}
	out := make([]float32, len(bits))
	for i, b := range bits {
		out[i] = float32(widen(b))
	}
	return out, nil
}

// close ends the session. Nothing may run.
func (s *runner) close() {
	s.native.Close()
	s.second.Load().Close()
}
