package prepare

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
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
	Length  int  // of tokens: the one length that the graph is for; 0 for any
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
	} else if f.Encoder != "" {
		r.encoded(with)
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
		case held.Is == roles.Other && len(v.Uses) == 0 && x.Shapes.Of(v).Rank == 2:
			held.Is = roles.Positions // nothing reads it, so that any numbers do
		case held.Is == roles.State:
		case held.Is == roles.Tokens:
			if n, one := x.Shapes.Of(v).Dim(-1).Const(); one {
				held.Length = int(n)
			}
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
		out := of.Present(v)
		if out == nil {
			continue
		}
		r.x.Decoder.Next[out.Name] = v.Name
		if held := r.x.Decoder.Inputs[v.Name]; held.Is == roles.Other {
			if held.Axis = longer(x.Shapes.Of(v).Dims, x.Shapes.Of(out).Dims); held.Axis > 0 {
				held.Is = roles.Past // such as that of latent attention
			}
			r.x.Decoder.Inputs[v.Name] = held
		}
	}
}

// encoded finds the encoder's output among the inputs of a decoder that reads its length alone, or nothing of it: the
// one of rank 3 that holds nothing else.
func (r *exportedReader) encoded(x *patch.Analysis) {
	var found []string
	for _, v := range x.Graph.Inputs {
		f := x.Shapes.Of(v)
		if r.x.Decoder.Inputs[v.Name].Is == roles.Other && f.DType == onnx.Tensor_FLOAT && f.Rank == 3 {
			found = append(found, v.Name)
		}
	}
	if len(found) == 1 {
		r.x.Decoder.Inputs[found[0]] = Held{Is: roles.EncoderOutput, Axis: -1}
	}
}

// longer is the one axis that has tokens joined to it; -1 for none.
func longer(past, present []graph.Dim) int {
	axis := -1
	for i, d := range past {
		if n, known := d.Const(); i == 0 || d.Equal(present[i]) || known && n > 0 {
			continue
		}
		if axis > 0 || len(d.Symbols()) == 0 || !slices.Contains(present[i].Symbols(), d.Symbols()[0]) {
			return -1
		}
		axis = i
	}
	return axis
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
