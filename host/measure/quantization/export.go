package quantization

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// export is a file of a model, and what is to become of its weights.
type export struct {
	path, file string // file is its name in reports
	model      *model.Model
	graph      *graph.Graph
	size       int64    // of its files
	data       []string // paths of them, links resolved
	logits     string   // the output of these, "" where there is none
	chosen     []*matrix
	left       map[*graph.Value]string // why weights of linear layers stay as they are
	buffer     []byte                  // for a weight as stored
}

// read opens a file and chooses the types of its weights.
func read(path, file string, o Options) (*export, error) { return readAs(path, file, o, nil) }

// readAs is read of what a function makes of the model, which may be nil.
func readAs(path, file string, o Options, change func(*model.Model) error) (_ *export, err error) {
	x := &export{path: path, file: file, left: map[*graph.Value]string{}}
	if x.model, err = model.Open(path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	if x.size, x.data, err = filesOf(x.model); err != nil {
		return nil, err
	}
	if change != nil {
		if err := change(x.model); err != nil {
			return nil, modelError(path, err)
		}
	}
	if x.graph, err = graph.New(x.model.Proto(), x.model); err != nil {
		return nil, modelError(path, err)
	}
	if err := x.choose(o); err != nil {
		return nil, modelError(path, err)
	}
	return x, nil
}

// filesOf are the bytes of a model's files, and their paths.
func filesOf(m *model.Model) (size int64, paths []string, err error) {
	files, err := m.Files()
	if err != nil {
		return 0, nil, err
	}
	paths = files.Paths()
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return 0, nil, &diagnostic.Error{Path: p, Found: "cannot look at the file: " + diagnostic.Cause(err), Cause: err}
		}
		size += info.Size()
	}
	return size, paths, nil
}

func (x *export) close() {
	if x.model != nil {
		_ = x.model.Close() // it was only read
	}
	x.model, x.graph, x.buffer = nil, nil, nil
	x.chosen = nil
}

// modelError names the file that an error is about.
func modelError(path string, err error) error {
	var d *diagnostic.Error
	if errors.As(err, &d) {
		return err
	}
	return &diagnostic.Error{Path: path, Found: err.Error(), Cause: err}
}

// constantOf is the constant that a value is, maybe transposed, through the nodes that exporters put between.
func constantOf(v *graph.Value) (of *graph.Value, transposed bool) {
	for v != nil && v.Tensor == nil {
		n := v.Producer
		switch {
		case n == nil || !n.Is("Identity", "Transpose"):
			return nil, false
		case n.Is("Transpose"):
			if perm, ok := n.Ints("perm"); ok && !slices.Equal(perm, []int64{1, 0}) {
				return nil, false
			}
			transposed = !transposed
		}
		v = n.Input(0)
	}
	return v, transposed
}

// layerOf is the weight of a node, and whether it lies transposed; nil where the node is no linear layer.
func layerOf(n *graph.Node) (weight *graph.Value, transposed bool) {
	switch {
	case n.Is("MatMul"):
	case n.Is("Gemm"):
		if n.Float("alpha", 1) != 1 || n.Float("beta", 1) != 1 || n.Int("transA", 0) != 0 {
			return nil, false
		}
	default:
		return nil, false
	}
	weight, transposed = constantOf(n.Input(1))
	if weight == nil || len(weight.Tensor.Dims) != 2 || slices.Contains(weight.Tensor.Dims, 0) {
		return nil, false
	}
	return weight, transposed != (n.Is("Gemm") && n.Int("transB", 0) == 1)
}

// choose finds the linear layers, and what their weights are to become.
func (x *export) choose(o Options) error {
	type key struct {
		value      *graph.Value
		transposed bool
	}
	found := map[key]*matrix{}
	var list []*matrix
	of := map[*graph.Node]*matrix{}
	x.graph.Walk(func(n *graph.Node) {
		v, transposed := layerOf(n)
		if v == nil {
			return
		}
		if kind := onnx.Tensor_DataType(v.Tensor.GetDataType()); kind != onnx.Tensor_FLOAT {
			x.left[v] = "linear layers of " + model.TypeName(kind)
			return
		}
		k := key{v, transposed}
		m := found[k]
		if m == nil {
			m = &matrix{value: v, transposed: transposed, depth: v.Tensor.Dims[0], columns: v.Tensor.Dims[1],
				group: o.Weights.GroupSize(), weights: o.Weights}
			if transposed {
				m.depth, m.columns = m.columns, m.depth
			}
			found[k], list = m, append(list, m)
		}
		m.nodes = append(m.nodes, n)
		of[n] = m
	})
	x.findLogits(of)
	for _, m := range list {
		m.as = o.Weights.Of(m.last)
		if o.of != nil {
			sum, err := x.sum(m)
			if err != nil {
				return err
			}
			m.as = o.of(sum, m.as)
		}
		switch {
		case m.as == prepare.Float32Weights:
			x.left[m.value] = whyAsked
		case m.bytes() >= m.float32Bytes():
			x.left[m.value] = whySmall
		default:
			x.chosen = append(x.chosen, m)
		}
	}
	for _, m := range x.chosen { // one that is read in two ways may be so
		delete(x.left, m.value)
	}
	return nil
}

// findLogits finds the output that exporters call logits, or else the only one whose last linear layer has a column for
// each row of a table of embeddings, and marks the layers that make it.
func (x *export) findLogits(layers map[*graph.Node]*matrix) {
	words := map[int64]bool{}
	x.graph.Walk(func(n *graph.Node) {
		if t := n.Input(0); n.Is("Gather") && t != nil && t.Tensor != nil && len(t.Tensor.Dims) == 2 {
			words[t.Tensor.Dims[0]] = true
		}
	})
	found := map[string][]*graph.Node{}
	for _, v := range x.graph.Outputs {
		last := prepare.LastLinear(x.graph, v.Name, func(n *graph.Node) bool { return layers[n] != nil })
		if v.Name == "logits" {
			found = map[string][]*graph.Node{v.Name: last}
			break
		}
		if len(last) > 0 && !slices.ContainsFunc(last, func(n *graph.Node) bool { return !words[layers[n].columns] }) {
			found[v.Name] = last
		}
	}
	if len(found) != 1 {
		return
	}
	for name, last := range found {
		x.logits = name
		for _, n := range last {
			layers[n].last = true
		}
	}
}

// Why weights stay as they are.
const (
	whyAsked    = "linear layers that were to stay float32"
	whySmall    = "linear layers that are too small to take fewer bytes"
	whyGathered = "tables of which rows are looked up, as those of embeddings"
	whyOther    = "biases, scales and other constants"
)

// float32 are the constants that stay as they are, of float32 and weights of linear layers of other types, by reason,
// the most bytes first.
func (x *export) float32() []engine.Float32Weights {
	list := []engine.Float32Weights{}
	seen := map[*graph.Value]bool{}
	x.graph.Walk(func(n *graph.Node) {
		for i, v := range n.In {
			if v == nil || v.Tensor == nil || seen[v] {
				continue
			}
			seen[v] = true
			why := x.left[v]
			if why == "" {
				if onnx.Tensor_DataType(v.Tensor.GetDataType()) != onnx.Tensor_FLOAT ||
					slices.ContainsFunc(x.chosen, func(m *matrix) bool { return m.scales == v }) {
					continue
				}
				why = whyFloat32(n, i)
			}
			bytes, err := model.ByteSize(v.Tensor)
			if err != nil {
				continue // writing the model says so
			}
			at := slices.IndexFunc(list, func(f engine.Float32Weights) bool { return f.Reason == why })
			if at < 0 {
				at, list = len(list), append(list, engine.Float32Weights{Reason: why})
			}
			list[at].Tensors, list[at].Bytes = list[at].Tensors+1, list[at].Bytes+bytes
		}
	})
	slices.SortStableFunc(list, func(a, b engine.Float32Weights) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return list
}

// whyFloat32 says why what a node reads at a position is no linear layer's weight.
func whyFloat32(n *graph.Node, at int) string {
	switch {
	case n.Is("Gather", "GatherND", "com.microsoft.EmbedLayerNormalization") && at == 0:
		return whyGathered
	case n.Is("MatMul", "Gemm") && at < 2:
		return fmt.Sprintf("what %s multiplies in a way of its own", n.Op())
	case n.Is("Conv", "ConvTranspose") && at == 1,
		n.Is("Einsum", "com.microsoft.Attention", "com.microsoft.FusedMatMul", "com.microsoft.FusedGemm") && at < 2:
		return fmt.Sprintf("weights of %s, which is no MatMul or Gemm", n.Op())
	}
	return whyOther
}
