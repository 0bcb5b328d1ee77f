package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// shortMask is an Attention whose mask has fewer columns than there are keys.
type shortMask struct {
	heads, kvHeads, queries, past, fresh, columns int64
	boolean, perHead, causal                      bool
	scores                                        int64 // qk_matmul_output_mode, -1 for no scores
}

// TestShortMask compares Attention with a mask of fewer columns than keys, under
// Force, with ONNX Runtime on the mask that ONNX says it stands for: filled up
// with -inf, or with false.
func TestShortMask(t *testing.T) {
	for _, c := range []shortMask{
		{heads: 4, kvHeads: 4, queries: 1, past: 37, fresh: 1, columns: 30, scores: -1},
		{heads: 4, kvHeads: 2, queries: 3, past: 70, fresh: 3, columns: 71, boolean: true, scores: -1},
		{heads: 4, kvHeads: 2, queries: 3, past: 70, fresh: 3, columns: 65, boolean: true, perHead: true, causal: true,
			scores: -1},
		{heads: 2, kvHeads: 2, queries: 40, fresh: 130, columns: 2, scores: -1},
		{heads: 2, kvHeads: 1, queries: 40, fresh: 130, columns: 129, perHead: true, causal: true, scores: -1},
		{heads: 2, kvHeads: 2, queries: 5, past: 9, fresh: 40, columns: 33, scores: 0},
		{heads: 2, kvHeads: 2, queries: 5, past: 9, fresh: 40, columns: 33, boolean: true, scores: 3},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			short, inputs, err := c.build(c.columns)
			must.Succeed(t, err)
			defer closeAll(inputs)
			whole, padded, err := c.build(c.past + c.fresh)
			must.Succeed(t, err)
			defer closeAll(padded)
			o := options()
			o.Unpatched = true
			unpatched := must.Value(newSession(t, whole, o))(t)
			want := must.Value(run(unpatched, padded))(t)
			defer closeAll(want)
			path := filepath.Join(t.TempDir(), "model.onnx")
			must.Succeed(t, write(path, short))
			o = options()
			o.Config = map[string]string{configForce: "1"}
			s := must.Value(session.Open(library, path, o))(t)
			defer s.Close()
			must.Succeed(t, replaced(testCase{path: path}))
			found := must.Value(run(s, inputs))(t)
			defer closeAll(found)
			must.Succeed(t, differences(short, want, found, comparison.CompareValues))
		})
	}
}

func newSession(t *testing.T, m *onnx.Model, o session.Options) (*session.Session, error) {
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	s, err := session.FromBytes(library, data, o)
	if err == nil {
		t.Cleanup(s.Close)
	}
	return s, err
}

func write(path string, m *onnx.Model) error {
	data, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// build makes the model and its inputs with a mask of some columns. Every call
// makes the same numbers; columns from c.columns on are hidden.
func (c shortMask) build(columns int64) (*onnx.Model, map[string]*ort.Value, error) {
	const batch, size = 2, 16
	random := rand.New(rand.NewPCG(7, 7))
	values := map[string]*ort.Value{}
	g := &onnx.Graph{Name: proto.String("attention")}
	input := func(name string, dims ...int64) error {
		n := int64(1)
		for _, d := range dims {
			n *= d
		}
		data := make([]float32, n)
		for i := range data {
			data[i] = float32(random.NormFloat64())
		}
		v, err := ort.NewTensor(library, dims, data)
		values[name] = v
		g.Input = append(g.Input, tensorInfo(name, onnx.Tensor_FLOAT, dims...))
		return err
	}
	for _, in := range []struct {
		name string
		dims []int64
	}{
		{"query", []int64{batch, c.heads, c.queries, size}},
		{"key", []int64{batch, c.kvHeads, c.fresh, size}}, {"value", []int64{batch, c.kvHeads, c.fresh, size}},
		{"past_key", []int64{batch, c.kvHeads, c.past, size}}, {"past_value", []int64{batch, c.kvHeads, c.past, size}},
	} {
		if err := input(in.name, in.dims...); err != nil {
			return nil, nil, err
		}
	}
	mask, err := c.mask(random, columns)
	if err != nil {
		return nil, nil, err
	}
	values["mask"] = mask
	element := onnx.Tensor_FLOAT
	if c.boolean {
		element = onnx.Tensor_BOOL
	}
	g.Input = append(g.Input, tensorInfo("mask", element, mask.Shape()...))
	n := &onnx.Node{OpType: proto.String("Attention"),
		Input:  []string{"query", "key", "value", "mask", "past_key", "past_value"},
		Output: []string{"output", "present_key", "present_value"}}
	keys := c.past + c.fresh
	g.Output = []*onnx.ValueInfo{tensorInfo("output", onnx.Tensor_FLOAT, batch, c.heads, c.queries, size),
		tensorInfo("present_key", onnx.Tensor_FLOAT, batch, c.kvHeads, keys, size),
		tensorInfo("present_value", onnx.Tensor_FLOAT, batch, c.kvHeads, keys, size)}
	integer := func(name string, v int64) {
		n.Attribute = append(n.Attribute,
			&onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(v)})
	}
	if c.causal {
		integer("is_causal", 1)
	}
	if c.scores >= 0 {
		integer("qk_matmul_output_mode", c.scores)
		n.Output = append(n.Output, "scores")
		g.Output = append(g.Output, tensorInfo("scores", onnx.Tensor_FLOAT, batch, c.heads, c.queries, keys))
	}
	g.Node = []*onnx.Node{n}
	return &onnx.Model{IrVersion: proto.Int64(11), OpsetImport: []*onnx.OperatorSet{{Version: proto.Int64(24)}}, Graph: g},
		values, nil
}

// mask is the mask in a number of columns. Column 0 is always seen, because a row
// without visible keys has no answer that ONNX agrees on.
func (c shortMask) mask(random *rand.Rand, columns int64) (*ort.Value, error) {
	dims := []int64{c.queries, columns}
	rows := c.queries
	if c.perHead {
		dims = []int64{1, c.heads, c.queries, columns}
		rows *= c.heads
	}
	keep, bias := make([]bool, rows*columns), make([]float32, rows*columns)
	for r := range rows {
		for j := range c.columns {
			at := r*columns + j
			keep[at] = random.IntN(4) > 0 || j == 0
			bias[at] = float32(random.NormFloat64())
		}
		for j := c.columns; j < columns; j++ {
			bias[r*columns+j] = float32(math.Inf(-1))
		}
	}
	if c.boolean {
		return ort.NewTensor(library, dims, keep)
	}
	return ort.NewTensor(library, dims, bias)
}

func tensorInfo(name string, e onnx.Tensor_DataType, dims ...int64) *onnx.ValueInfo {
	shape := &onnx.Shape{}
	for _, d := range dims {
		shape.Dim = append(shape.Dim, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: d}})
	}
	return &onnx.ValueInfo{Name: proto.String(name), Type: &onnx.Type{Value: &onnx.Type_TensorType_{
		TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(int32(e)), Shape: shape}}}}
}
