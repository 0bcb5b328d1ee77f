package quantization

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
)

// reader reads whole texts with the graphs of a model as exported, unpatched and without a past, and with what is
// added to these.
type reader struct {
	library *ort.Library
	threads int
	encoder *reading // of an encoder-decoder; nil for others
	main    *reading // the decoder without a past, or the one graph that there is
}

// reading is one of the graphs.
type reading struct {
	*export
	hidden  string   // its first output
	outputs []string // those that are asked for
	given   map[string]*ort.Value
	session *session.Session
}

// newReader opens graphs: encoder is "" where there is none.
func newReader(l *ort.Library, threads int, encoder, main string, o Options) (_ *reader, err error) {
	r := &reader{library: l, threads: threads}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if encoder != "" {
		if r.encoder, err = newReading(encoder, o); err != nil {
			return nil, err
		}
	}
	r.main, err = newReading(main, o)
	return r, err
}

func newReading(path string, o Options) (*reading, error) {
	x, err := readAs(path, filepath.Base(path), o, func(m *model.Model) error { return prepare.WithoutPast(m.Proto()) })
	if err != nil {
		return nil, err
	}
	refuse := func(found string) (*reading, error) {
		x.close()
		return nil, &diagnostic.Error{Path: path, Found: found,
			Needed: "an encoder, a decoder, or both, as exporters write them", Fix: "leave --calibrate out", Cause: errOther}
	}
	for _, m := range x.chosen {
		for _, n := range m.nodes {
			if n.Graph != x.graph {
				return refuse("a graph whose layers lie in branches")
			}
		}
	}
	if len(x.graph.Outputs) == 0 {
		return refuse("a graph without outputs")
	}
	return &reading{export: x, hidden: x.graph.Outputs[0].Name, given: map[string]*ort.Value{}}, nil
}

// graphs are those that there are, in the order in which they run.
func (r *reader) graphs() []*reading {
	if r.encoder == nil {
		return []*reading{r.main}
	}
	return []*reading{r.encoder, r.main}
}

// start makes sessions of the graphs as they are now. Weights are read from the files.
func (r *reader) start() error {
	for _, x := range r.graphs() {
		if err := x.graph.Commit(); err != nil {
			return modelError(x.path, err)
		}
		out, err := x.model.Serialize(x.model.Proto(), model.SerializeOptions{})
		if err != nil {
			return modelError(x.path, err)
		}
		o := session.Options{Unpatched: true, IntraOpThreads: r.threads, Config: map[string]string{}}
		if out.Folder != "" {
			o.Config[session.ConfigExternalFolder] = out.Folder
		}
		if x.session, err = session.FromBytes(r.library, out.Bytes, o); err != nil {
			return modelError(x.path, err)
		}
	}
	return nil
}

func (r *reader) close() {
	for _, x := range []*reading{r.encoder, r.main} {
		if x == nil {
			continue
		}
		if x.session != nil {
			x.session.Close()
		}
		x.export.close()
	}
}

// errOther is the kind of errors of graphs that a reader cannot run.
var errOther = errors.New("another graph")

// run reads a text: tokens, and those that an encoder reads beside it. use is told of what each graph gives, which is
// valid until it returns.
func (r *reader) run(ctx context.Context, encoder, tokens []int32,
	use func(x *reading, results []*ort.Value) error) error {
	var hidden *ort.Value
	if r.encoder != nil {
		results, err := r.encoder.run(ctx, r.library, encoder, nil, 0,
			append([]string{r.encoder.hidden}, r.encoder.outputs...))
		defer closeAll(results)
		if err == nil {
			err = use(r.encoder, results[1:])
		}
		if err != nil {
			return modelError(r.encoder.path, err)
		}
		hidden = results[0]
	}
	results, err := r.main.run(ctx, r.library, tokens, hidden, int64(len(encoder)), r.main.outputs)
	defer closeAll(results)
	if err == nil {
		err = use(r.main, results)
	}
	if err != nil {
		return modelError(r.main.path, err)
	}
	return nil
}

func closeAll(list []*ort.Value) {
	for _, v := range list {
		if v != nil {
			v.Close()
		}
	}
}

// run feeds tokens, what an encoder made of others, and what was added.
func (x *reading) run(ctx context.Context, l *ort.Library, tokens []int32, hidden *ort.Value, read int64,
	outputs []string) ([]*ort.Value, error) {
	n := int64(len(tokens))
	ids, order := make([]int64, n), make([]int64, n)
	for i, t := range tokens {
		if t < 0 || int64(t) >= limit.Tokens {
			return nil, fmt.Errorf("token %d is %d", i, t)
		}
		ids[i], order[i] = int64(t), int64(i)
	}
	fed := map[string]*ort.Value{}
	var made []*ort.Value
	defer func() { closeAll(made) }()
	for _, in := range x.session.Inputs() {
		var v *ort.Value
		var err error
		switch is := roles.ByName(in.Name); {
		case x.given[in.Name] != nil:
			fed[in.Name] = x.given[in.Name]
			continue
		case is == roles.EncoderOutput && hidden != nil:
			fed[in.Name] = hidden
			continue
		case is == roles.Tokens:
			v, err = ort.NewTensor(l, []int64{1, n}, ids)
		case is == roles.Mask && roles.Named(in.Name) == roles.Encoder && hidden != nil:
			v, err = ort.NewTensor(l, []int64{1, read}, ones(read))
		case is == roles.Mask:
			v, err = ort.NewTensor(l, []int64{1, n}, ones(n))
		case is == roles.Types:
			v, err = ort.NewTensor(l, []int64{1, n}, make([]int64, n))
		case is == roles.Positions:
			v, err = ort.NewTensor(l, []int64{1, n}, order)
		case is == roles.UseCacheBranch:
			v, err = ort.NewTensor(l, []int64{1}, []bool{false})
		case len(in.Shape) == 4 && in.Element == ort.Float32:
			v, err = ort.NewTensor(l, []int64{1, in.Shape[1], 0, in.Shape[3]}, []float32{})
		default:
			err = &diagnostic.Error{Path: x.path,
				Found:  fmt.Sprintf("an input %s of which it is not known what to feed", in.Name),
				Needed: "an encoder of tokens, a decoder, or both",
				Fix:    "leave --calibrate out", Cause: errOther}
		}
		if err != nil {
			return nil, err
		}
		made = append(made, v)
		fed[in.Name] = v
	}
	return x.session.Run(ctx, fed, outputs...)
}

func ones(n int64) []int64 {
	list := make([]int64, n)
	for i := range list {
		list[i] = 1
	}
	return list
}
