package sessions

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/session/loaded"
)

// What a plugin does with the bits of nodes of ONNX Runtime, by the outputs of the two small models that compare them.
const (
	geluBits      = "gelu"
	normBits      = "norm"
	attentionBits = "attention"
)

// fusionsOf are what ONNX Runtime fuses in a session's model. Those that operators would take in are among them where
// the operators have the bits of its nodes here: kernels of another version, or for another CPU, round otherwise.
func (s *Patcher) fusionsOf(ctx context.Context, r session.Request) ([]plan.Fusion, error) {
	list, err := fusions(r)
	if err != nil || !slices.ContainsFunc(list, func(f plan.Fusion) bool { return kind(f) != "" }) {
		return list, err
	}
	equal, err := s.equalBits(ctx, r.Library)
	if err != nil && s.Logger != nil {
		s.Logger.Warn("bits of ONNX Runtime's nodes are not known, and nodes between matmuls of integers are left", "reason",
			err)
	}
	return slices.DeleteFunc(list, func(f plan.Fusion) bool { return kind(f) != "" && !equal[kind(f)] }), nil
}

// kind is which bits a fusion rests on, or "".
func kind(f plan.Fusion) string {
	switch {
	case f.Attention != nil:
		return attentionBits
	case f.Gelu != "":
		return geluBits
	case f.Apart:
		return normBits
	}
	return ""
}

// compared are the comparisons that this process made.
var compared sync.Map // of comparedWith to map[string]bool

type comparedWith struct {
	library *ort.Library
	plugin  *plugin.Plugin
}

// equalBits says which kinds have equal bits. It runs two models of a few nodes, once for a library and a plugin.
func (s *Patcher) equalBits(ctx context.Context, l *ort.Library) (map[string]bool, error) {
	p, attends, err := plugin.Provider(s.Plugins, capability.NodewiseAttention,
		func(name string) bool { return s.Options.RulesOut(name) != "" })
	if err != nil {
		return nil, nil // another plugin's fusions
	}
	multiplies := p.Manifest.Providing(capability.IntegerLinear).Name
	key := comparedWith{l, p}
	if known, ok := compared.Load(key); ok {
		return known.(map[string]bool), nil
	}
	equal := map[string]bool{}
	domain, err := loaded.Domain(s.Plugins, []string{p.Manifest.Name}, []string{multiplies, attends}, l)
	if err != nil {
		return nil, err
	}
	sides := make([][]map[string][]byte, 2)
	models := []*onnx.Model{bitsModel("", ""), bitsModel(multiplies, attends)}
	for i, o := range []session.Options{{}, {Domains: []operator.Domain{domain}}} {
		o.IntraOpThreads, o.Unpatched, o.Optimization, o.LogSeverity = 1, true, session.OptimizeNone, session.LogError
		if sides[i], err = bitsOf(ctx, l, o, models[i]); err != nil {
			return nil, fmt.Errorf("the model that compares them: %w", err)
		}
	}
	for _, kind := range []string{geluBits, normBits, attentionBits} {
		equal[kind] = true
		for i := range sides[0] {
			equal[kind] = equal[kind] && bytes.Equal(sides[0][i][kind], sides[1][i][kind])
		}
	}
	compared.Store(key, equal)
	return equal, nil
}

// Sizes of the two models, and of their runs: attention of one block of keys, and of more than one.
const (
	bitsRows, bitsDepth, bitsColumns = 37, 32, 384
	bitsScale                        = 0.17677669
	bitsEpsilon                      = 1e-12
)

var bitsRuns = []struct{ keys, size int64 }{{37, 32}, {300, 64}}

// bitsOf are the outputs of one of the models, for each run.
func bitsOf(ctx context.Context, l *ort.Library, o session.Options,
	m *onnx.Model) (runs []map[string][]byte, err error) {
	model, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	s, err := session.FromBytesContext(ctx, l, model, o)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for _, run := range bitsRuns {
		draw := rand.New(rand.NewPCG(uint64(run.keys), 1))
		fed := map[string]*ort.Value{}
		defer func() {
			for _, v := range fed {
				v.Close()
			}
		}()
		shapes := map[string][]int64{"x": {bitsRows, bitsDepth}, "residual": {bitsRows, bitsColumns},
			"q": {1, 2, run.keys, run.size}, "k": {1, 2, run.size, run.keys},
			"v": {1, 2, run.keys, run.size}, "mask": {1, 1, 1, run.keys}}
		for _, name := range slices.Sorted(maps.Keys(shapes)) {
			if fed[name], err = l.NewTensorBytes(ort.Float32, shapes[name], floats(draw, shapes[name]...)); err != nil {
				return nil, err
			}
		}
		results, err := s.Run(ctx, fed)
		if err != nil {
			return nil, err
		}
		out := map[string][]byte{}
		for i, v := range results {
			var b []byte
			if b, err = v.Bytes(); err == nil {
				out[s.Outputs()[i].Name] = bytes.Clone(b)
			}
			v.Close()
		}
		if err != nil {
			return nil, err
		}
		runs = append(runs, out)
	}
	return runs, nil
}

// floats are normally distributed, of magnitudes from 1/16 to 16: sums in another order have other bits.
func floats(draw *rand.Rand, shape ...int64) (b []byte) {
	count := int64(1)
	for _, n := range shape {
		count *= n
	}
	for range count {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(math.Ldexp(draw.NormFloat64(), draw.IntN(9)-4))))
	}
	return b
}

// bitsModel is what the comparison runs, of operators or, where these are "", of ONNX Runtime's nodes.
func bitsModel(multiplies, attends string) *onnx.Model {
	draw := rand.New(rand.NewPCG(1, 1))
	weight := make([]byte, bitsDepth*bitsColumns)
	for i := range weight {
		weight[i] = byte(draw.IntN(256))
	}
	tensor := func(name string, kind onnx.Tensor_DataType, data []byte, dims ...int64) *onnx.Tensor {
		return &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(kind)), Dims: dims, RawData: data}
	}
	const f32 = onnx.Tensor_FLOAT
	// The scale lets arguments of the GELU reach from where it is 0 to where it is its argument.
	weightScale := binary.LittleEndian.AppendUint32(nil, math.Float32bits(1./1024))
	g := &onnx.Graph{Name: proto.String("bits"),
		Initializer: []*onnx.Tensor{tensor("w", onnx.Tensor_INT8, weight, bitsDepth, bitsColumns),
			tensor("w_scale", f32, weightScale, 1), tensor("w_zero", onnx.Tensor_INT8, []byte{0}),
			tensor("b", f32, floats(draw, bitsColumns), bitsColumns),
			tensor("norm_scale", f32, floats(draw, bitsColumns), bitsColumns),
			tensor("norm_bias", f32, floats(draw, bitsColumns), bitsColumns)}}
	value := func(name string, rank int) *onnx.ValueInfo {
		shape := &onnx.Shape{}
		for range rank {
			shape.Dim = append(shape.Dim, &onnx.Shape_Dim{})
		}
		return &onnx.ValueInfo{Name: proto.String(name),
			Type: &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{
				ElemType: proto.Int32(int32(f32)), Shape: shape}}}}
	}
	g.Input = []*onnx.ValueInfo{value("x", 2), value("residual", 2), value("q", 4), value("k", 4), value("v", 4),
		value("mask", 4)}
	g.Output = []*onnx.ValueInfo{value(geluBits, 2), value(normBits, 2), value(attentionBits, 4)}
	node := func(domain, op string, in []string, out []string, attributes ...*onnx.Attribute) {
		g.Node = append(g.Node, &onnx.Node{Domain: proto.String(domain), OpType: proto.String(op), Input: in, Output: out,
			Attribute: attributes})
	}
	number := func(name string, f float32) *onnx.Attribute {
		return &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_FLOAT.Enum(), F: proto.Float32(f)}
	}
	list := []string{"x", "", "", "w", "w_scale", "w_zero", "b", "", "", "", "", "", "", "", "", "residual", "norm_scale",
		"norm_bias"}
	if multiplies != "" {
		gelu := &onnx.Attribute{Name: proto.String("activations"), Type: onnx.Attribute_INTS.Enum(), Ints: []int64{1, 0, 0}}
		node(manifest.Domain, multiplies, list[:7], []string{geluBits}, gelu)
		node(manifest.Domain, multiplies, list, []string{normBits}, number("epsilon", bitsEpsilon))
		node(manifest.Domain, attends, []string{"q", "k", "v", "mask"}, []string{attentionBits},
			number("scale", bitsScale))
	} else {
		to := &onnx.Attribute{Name: proto.String("to"), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(int64(f32))}
		node("", "DynamicQuantizeLinear", []string{"x"}, []string{"xq", "xs", "xz"})
		node("", "MatMulInteger", []string{"xq", "w", "xz", "w_zero"}, []string{"integers"})
		node("", "Cast", []string{"integers"}, []string{"float"}, to)
		node("", "Mul", []string{"xs", "w_scale"}, []string{"scale"})
		node("", "Mul", []string{"float", "scale"}, []string{"product"})
		node("", "Add", []string{"product", "b"}, []string{"y"})
		node("com.microsoft", "Gelu", []string{"y"}, []string{geluBits})
		node("", "Add", []string{"y", "residual"}, []string{"sum"})
		node("", "LayerNormalization", []string{"sum", "norm_scale", "norm_bias"}, []string{normBits},
			number("epsilon", bitsEpsilon))
		node("com.microsoft", "FusedMatMul", []string{"q", "k"}, []string{"scores"}, number("alpha", bitsScale))
		node("", "Add", []string{"scores", "mask"}, []string{"masked"})
		node("", "Softmax", []string{"masked"}, []string{"weights"})
		node("", "MatMul", []string{"weights", "v"}, []string{attentionBits})
	}
	return &onnx.Model{IrVersion: proto.Int64(8), Graph: g,
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)},
			{Domain: proto.String("com.microsoft"), Version: proto.Int64(1)},
			{Domain: proto.String(manifest.Domain), Version: proto.Int64(1)}}}
}
