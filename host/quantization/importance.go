package quantization

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/diagnostic"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/limit"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/roles"
)

// importance are the mean squares of what weights are multiplied with, a number for each position along the depth, by a hash of the weights' numbers.
type importance map[[sha256.Size]byte][]float64

// Calibration is over which texts the mean squares are taken.
type Calibration struct {
	Library *ort.Library
	Threads int
	Texts   [][]int32 // tokens
	Tokens  int       // maximum, of all texts together; 0 is 4,096
}

// Bounds of what is read: tokens in all, and at once.
const (
	calibrationTokens = 4096
	calibrationWindow = 512
)

// observed is a value that weights are multiplied with.
type observed struct {
	output string // what the graph gives of it, [depth]
	sums   []float64
	read   [][sha256.Size]byte
}

// Calibrate reads texts with a model in float32, an encoder or a decoder alone, and notes what is multiplied with its weights. Folder and File then choose scales of
// four bits by it.
func (o *Options) Calibrate(ctx context.Context, path string, c Calibration) error {
	o.step("reading texts with the model as exported")
	x, err := read(path, filepath.Base(path), *o)
	if err != nil {
		return err
	}
	defer x.close()
	list, err := x.observe()
	if err != nil {
		return modelError(path, err)
	}
	s, err := x.session(c)
	if err != nil {
		return modelError(path, err)
	}
	defer s.Close()
	most := c.Tokens
	if most == 0 {
		most = calibrationTokens
	}
	rows := 0
	for _, text := range c.Texts {
		for len(text) > 0 && rows < most {
			n := min(len(text), most-rows, calibrationWindow)
			if err := run(ctx, c.Library, s, text[:n], list); err != nil {
				return modelError(path, err)
			}
			text, rows = text[n:], rows+n
			o.progress(int64(rows), int64(most))
		}
	}
	if rows == 0 {
		return &diagnostic.Error{Path: path, Found: "the texts have no tokens", Needed: "texts to calibrate with", Fix: "give others"}
	}
	o.important = importance{}
	for _, v := range list {
		for i := range v.sums {
			v.sums[i] /= float64(rows)
		}
		for _, sum := range v.read {
			o.important[sum] = v.sums
		}
	}
	return nil
}

// observe adds outputs to the graph: the sums of squares over all rows of what each weight is multiplied with.
func (x *export) observe() ([]*observed, error) {
	g := x.graph
	known := map[*graph.Value]*observed{}
	var list []*observed
	for _, m := range x.chosen {
		sum, err := x.sum(m)
		if err != nil {
			return nil, err
		}
		for _, n := range m.nodes {
			if n.Graph != g {
				return nil, &diagnostic.Error{Path: x.path, Found: "a graph whose layers lie in branches", Needed: "an encoder, or a decoder alone that was exported without merging", Fix: "leave --calibrate out"}
			}
			in := n.In[0]
			if known[in] == nil {
				v := &observed{output: g.FreshName("graft.squares")}
				if err := squares(g, in, m.depth, v.output); err != nil {
					return nil, err
				}
				known[in], list = v, append(list, v)
			}
			known[in].read = append(known[in].read, sum)
		}
	}
	return list, g.Commit()
}

// squares adds nodes that sum the squares of rows up.
func squares(g *graph.Graph, in *graph.Value, depth int64, output string) error {
	shape := g.AddInitializer(graph.Int64Tensor("graft.rows", []int64{2}, -1, depth))
	rows, err := g.AddNode(&onnx.Node{OpType: proto.String("Reshape")}, []*graph.Value{in, shape}, []string{g.FreshName("graft.rows")})
	if err != nil {
		return err
	}
	p := &onnx.Node{OpType: proto.String("ReduceSumSquare"), Attribute: []*onnx.Attribute{{Name: proto.String("keepdims"), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(0)}}}
	operands := []*graph.Value{rows.Out[0]}
	if g.Opset("") >= 18 {
		operands = append(operands, g.AddInitializer(graph.Int64Tensor("graft.axis", []int64{1}, 0)))
	} else {
		p.Attribute = append(p.Attribute, &onnx.Attribute{Name: proto.String("axes"), Type: onnx.Attribute_INTS.Enum(), Ints: []int64{0}})
	}
	n, err := g.AddNode(p, operands, []string{output})
	if err != nil {
		return err
	}
	g.AddOutput(n.Out[0], graph.TensorType(onnx.Tensor_FLOAT, int(depth)))
	return nil
}

// session opens the graph as it is now, unpatched. Its weights are read from the file.
func (x *export) session(c Calibration) (*ort.Session, error) {
	out, err := x.model.Serialize(x.model.Proto(), model.SerializeOptions{})
	if err != nil {
		return nil, err
	}
	o := ort.SessionOptions{Unpatched: true, IntraOpThreads: c.Threads, Config: map[string]string{}}
	if out.Folder != "" {
		o.Config[ort.ConfigExternalFolder] = out.Folder
	}
	return c.Library.NewSessionFromBytes(out.Bytes, o)
}

// run feeds tokens without a past, and adds up.
func run(ctx context.Context, l *ort.Library, s *ort.Session, tokens []int32, list []*observed) error {
	n := int64(len(tokens))
	ids := make([]int64, n)
	ones, zeros, order := make([]int64, n), make([]int64, n), make([]int64, n)
	for i, t := range tokens {
		if t < 0 || int64(t) >= limit.Tokens {
			return fmt.Errorf("token %d is %d", i, t)
		}
		ids[i], ones[i], order[i] = int64(t), 1, int64(i)
	}
	fed := map[string]*ort.Value{}
	defer func() {
		for _, v := range fed {
			v.Close()
		}
	}()
	for _, in := range s.Inputs() {
		var err error
		switch is := roles.ByName(in.Name); {
		case is == roles.Tokens:
			fed[in.Name], err = ort.NewTensor(l, []int64{1, n}, ids)
		case is == roles.Mask:
			fed[in.Name], err = ort.NewTensor(l, []int64{1, n}, ones)
		case is == roles.Types:
			fed[in.Name], err = ort.NewTensor(l, []int64{1, n}, zeros)
		case is == roles.Positions:
			fed[in.Name], err = ort.NewTensor(l, []int64{1, n}, order)
		case len(in.Shape) == 4 && in.Element == ort.Float32:
			fed[in.Name], err = ort.NewTensor(l, []int64{1, in.Shape[1], 0, in.Shape[3]}, []float32{})
		default:
			err = &diagnostic.Error{Found: fmt.Sprintf("an input %s of which it is not known what to feed", in.Name), Needed: "an encoder of tokens, or a decoder alone", Fix: "leave --calibrate out"}
		}
		if err != nil {
			return err
		}
	}
	var names []string
	for _, v := range list {
		names = append(names, v.output)
	}
	results, err := s.Run(ctx, fed, names...)
	if err != nil {
		return err
	}
	for i, r := range results {
		data, err := ort.Data[float32](r)
		if err == nil && list[i].sums == nil {
			list[i].sums = make([]float64, len(data))
		}
		for k, x := range data {
			list[i].sums[k] += float64(x)
		}
		r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
