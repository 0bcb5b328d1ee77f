package quantization

import (
	"context"
	"crypto/sha256"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
)

// importance are the sums of squares of what weights are multiplied with, a number for each position along the depth,
// by a hash of the weights' numbers.
type importance map[[sha256.Size]byte][]float64

// Calibration is over which texts the squares are summed up.
type Calibration struct {
	Library *ort.Library
	Threads int
	Encoder string // path of an encoder-decoder's encoder; "" for one graph alone
	Path    string // of the graph alone, or of the decoder without a past, which may be merged
	Texts   []Text
	Tokens  int // maximum, of all texts together; 0 is 4,096
	Window  int // maximum that is read at once; 0 is 512
}

// Text is what a model reads: tokens, and beside an encoder those that the encoder reads.
type Text struct{ Encoder, Tokens []int32 }

// Bounds of what is read: tokens in all, and at once.
const (
	calibrationTokens = 4096
	calibrationWindow = 512
)

// observed is a value that weights are multiplied with.
type observed struct {
	sums []float64
	read [][sha256.Size]byte
}

// Calibrate reads texts with a model in float32 and notes what is multiplied with its weights. Folder and File then
// choose scales of four bits, and zero points where there are any, by it.
func (o *Options) Calibrate(ctx context.Context, c Calibration) error {
	o.step("reading texts with the model as exported")
	r, err := newReader(c.Library, c.Threads, c.Encoder, c.Path, *o)
	if err != nil {
		return err
	}
	defer r.close()
	seen := map[*reading][]*observed{}
	for _, x := range r.graphs() {
		if seen[x], err = x.observe(); err != nil {
			return modelError(x.path, err)
		}
	}
	if err := r.start(); err != nil {
		return err
	}
	most, window := c.Tokens, c.Window
	if most == 0 {
		most = calibrationTokens
	}
	if window == 0 {
		window = calibrationWindow
	}
	tokens := 0
	for _, text := range c.Texts {
		for len(text.Tokens) > 0 && tokens < most {
			n := min(len(text.Tokens), window, max(most-tokens-len(text.Encoder), 1))
			if err := r.run(ctx, text.Encoder, text.Tokens[:n],
				func(x *reading, results []*ort.Value) error { return add(seen[x], results) }); err != nil {
				return err
			}
			tokens += len(text.Encoder) + n
			if text.Tokens = text.Tokens[n:]; r.encoder != nil {
				text.Tokens = nil // what an encoder read is read once
			}
			o.progress(int64(min(tokens, most)), int64(most))
		}
	}
	if tokens == 0 {
		return &diagnostic.Error{Path: c.Path, Found: "the texts have no tokens", Needed: "texts to calibrate with",
			Fix: "give others"}
	}
	o.important = importance{}
	for _, list := range seen {
		for _, v := range list {
			for _, sum := range v.read {
				o.important.add(sum, v.sums)
			}
		}
	}
	return nil
}

// add notes what a weight is multiplied with in one more place.
func (m importance) add(sum [sha256.Size]byte, squares []float64) {
	before := m[sum]
	if before == nil {
		m[sum] = slices.Clone(squares)
		return
	}
	for i, x := range squares {
		before[i] += x
	}
}

// add adds up what a run gave.
func add(list []*observed, results []*ort.Value) error {
	for i, r := range results {
		data, err := ort.Data[float32](r)
		if err != nil {
			return err
		}
		if list[i].sums == nil {
			list[i].sums = make([]float64, len(data))
		}
		for k, x := range data {
			list[i].sums[k] += float64(x)
		}
	}
	return nil
}

// observe adds outputs to the graph: the sums of squares over all rows of what each weight is multiplied with.
func (x *reading) observe() ([]*observed, error) {
	known := map[*graph.Value]*observed{}
	var list []*observed
	for _, m := range x.chosen {
		sum, err := x.sum(m)
		if err != nil {
			return nil, err
		}
		for _, n := range m.nodes {
			in := n.In[0]
			if known[in] == nil {
				output := x.graph.FreshName("graft.squares")
				if err := squares(x.graph, in, m.depth, output); err != nil {
					return nil, err
				}
				known[in] = &observed{}
				list, x.outputs = append(list, known[in]), append(x.outputs, output)
			}
			known[in].read = append(known[in].read, sum)
		}
	}
	return list, nil
}

// squares adds nodes that sum the squares of rows up.
func squares(g *graph.Graph, in *graph.Value, depth int64, output string) error {
	shape := g.AddInitializer(graph.Int64Tensor("graft.rows", []int64{2}, -1, depth))
	rows, err := g.AddNode(&onnx.Node{OpType: proto.String("Reshape")}, []*graph.Value{in, shape},
		[]string{g.FreshName("graft.rows")})
	if err != nil {
		return err
	}
	p := &onnx.Node{OpType: proto.String("ReduceSumSquare"),
		Attribute: []*onnx.Attribute{{Name: proto.String("keepdims"), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(0)}}}
	operands := []*graph.Value{rows.Out[0]}
	if g.Opset("") >= 18 {
		operands = append(operands, g.AddInitializer(graph.Int64Tensor("graft.axis", []int64{1}, 0)))
	} else {
		p.Attribute = append(p.Attribute,
			&onnx.Attribute{Name: proto.String("axes"), Type: onnx.Attribute_INTS.Enum(), Ints: []int64{0}})
	}
	n, err := g.AddNode(p, operands, []string{output})
	if err != nil {
		return err
	}
	g.AddOutput(n.Out[0], graph.TensorType(onnx.Tensor_FLOAT, int(depth)))
	return nil
}
