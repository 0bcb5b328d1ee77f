package prepare

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/session/patch"
)

// Exported says what the graphs of a model folder take and make as they were exported, for a loop that runs them so.
type Exported struct {
	Encoder Ends
	Decoder Ends
	First   Ends // of the decoder without a past, or of the merged one's branch; as Decoder where there is none
}

// Ends are the inputs and outputs of a graph.
type Ends struct {
	Inputs map[string]Held
	Logits string // the output of logits; "" where there is none
	// Next says which input of the decoder takes an output in the next step.
	Next map[string]string
}

// Held is what an input holds.
type Held struct {
	Is      roles.Input
	Encoder bool // of a mask: it is over what the encoder read
	Axis    int  // of a past: the axis of tokens; -1 of a state
}

// ReadExported reads a folder's graphs. Where neither the graph nor a name says what comes back as an input, nothing
// is next for it.
func ReadExported(ctx context.Context, f *modeldir.Files, vocab int) (x *Exported, err error) {
	r := &exportedReader{x: &Exported{}, vocab: vocab}
	defer r.close()
	if f.Encoder != "" {
		encoder, err := r.open(ctx, f.Encoder, nil)
		if err != nil {
			return nil, err
		}
		r.x.Encoder = r.ends(encoder)
	}
	past, without := true, false
	with, err := r.open(ctx, f.Decoder, &past)
	if err != nil {
		return nil, err
	}
	r.x.Decoder = r.ends(with)
	if err := with.Within(ctx, func() error { r.presents(with); return nil }); err != nil {
		return nil, err
	}
	r.x.First = r.x.Decoder
	if f.First == "" {
		return r.x, nil
	}
	first, err := r.open(ctx, f.First, &without)
	if err != nil {
		return nil, err
	}
	r.x.First = r.ends(first)
	if f.First == f.Decoder {
		r.merge()
	}
	return r.x, with.Within(ctx, func() error {
		return first.Within(ctx, func() error {
			for in, out := range roles.Sources(viewOf(with, vocab), viewOf(first, vocab)) {
				r.x.First.Next[out] = in
			}
			return nil
		})
	})
}

// exportedReader reads graphs for Exported.
type exportedReader struct {
	x      *Exported
	vocab  int
	models []*model.Model
	branch string // the input that chooses the branch of a merged decoder
}

func (r *exportedReader) close() {
	for _, m := range r.models {
		_ = m.Close() // it was only read
	}
}

// open views a graph, of a merged decoder the branch with a past or without.
func (r *exportedReader) open(ctx context.Context, path string, past *bool) (*patch.Analysis, error) {
	m, err := model.Open(path)
	if err != nil {
		return nil, modeldir.About(path, err)
	}
	r.models = append(r.models, m)
	p := proto.Clone(m.Proto()).(*onnx.Model)
	keepDefaults(p)
	if past != nil {
		if i := branches(p.GetGraph()); i >= 0 {
			r.branch = p.Graph.Node[i].Input[0]
		}
		if err := takeBranch(p, *past); err != nil {
			return nil, modeldir.About(path, err)
		}
	}
	return patch.View(ctx, m, p)
}

// ends are those of a graph, without what is next.
func (r *exportedReader) ends(x *patch.Analysis) Ends {
	e := Ends{Inputs: map[string]Held{}, Logits: LogitsOf(x.Graph, x.Shapes, r.vocab), Next: map[string]string{}}
	of := roles.Find(x.Graph, x.Shapes, x.Report)
	pasts := roles.Pasts(x.Report)
	for _, v := range x.Graph.Inputs {
		held := Held{Is: of.Of(v), Axis: -1}
		switch axis, known := pasts[v]; {
		case v.Name == r.branch:
			held.Is = roles.UseCacheBranch
		case held.Is == roles.Mask:
			held.Encoder = of.Axis(v, x.Shapes.Of(v).Rank-1).Length == roles.Encoder
		case held.Is == roles.State:
		case known && axis >= 0:
			held.Axis = axis
		case held.Is == roles.Past || held.Is == roles.EncoderPast:
			held.Axis = max(x.Shapes.Of(v).Rank-2, 0)
		}
		e.Inputs[v.Name] = held
	}
	return e
}

// presents notes what the decoder's own outputs are next.
func (r *exportedReader) presents(x *patch.Analysis) {
	of := roles.Find(x.Graph, x.Shapes, x.Report)
	for _, v := range x.Graph.Inputs {
		if out := of.Present(v); out != nil {
			r.x.Decoder.Next[out.Name] = v.Name
		}
	}
}

// merge lets both branches of a merged decoder have the inputs of both: what one does not read, the other tells.
func (r *exportedReader) merge() {
	for name, held := range r.x.Decoder.Inputs {
		if other := r.x.First.Inputs[name]; held.Is == roles.Other {
			r.x.Decoder.Inputs[name] = other
		}
	}
	r.x.First.Inputs = r.x.Decoder.Inputs
}

// Takes reports a graph that takes what an earlier run made: keys and values, or states.
func (e *Ends) Takes() bool {
	for _, held := range e.Inputs {
		if slices.Contains([]roles.Input{roles.Past, roles.EncoderPast, roles.State}, held.Is) {
			return true
		}
	}
	return false
}

// Present is the output as which an input comes back; "" for none.
func (e *Ends) Present(input string) string {
	for out, in := range e.Next {
		if in == input {
			return out
		}
	}
	return ""
}
