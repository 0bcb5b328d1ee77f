package plan

import (
	"fmt"
	"math"
	"slices"

	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model/onnx"
	"github.com/opgraft/graft/host/plugin/manifest"
)

func (s *search) isNumber(name string) bool {
	k, ok := s.pattern.Constant(name)
	return ok && k.Value != nil
}

// fits reports a constant that is what the pattern asks for.
func fits(k *manifest.Constant, v *graph.Value) bool {
	if v.Tensor == nil {
		return false
	}
	if k.Value == nil {
		return k.Rank < 0 || k.Rank == len(v.Tensor.Dims)
	}
	list, ok := v.Floats()
	if !ok || len(list) == 0 {
		return false
	}
	return !slices.ContainsFunc(list, func(x float64) bool { return !k.Matches(x) })
}

func (s *search) attribute(want manifest.Attribute, n *graph.Node) bool {
	got, ok := attributeValue(n.Attr(want.Name))
	if !ok && n.Attr(want.Name) == nil {
		got, ok = onnxDefaults[n.Op()][want.Name]
	}
	if name, capture := want.Value.(manifest.Capture); capture {
		s.captured[string(name)] = got
		return ok
	}
	if x, isFloat := want.Value.(float64); isFloat && ok {
		y, is := got.(float64)
		return is && math.Abs(x-y) <= 1e-6*math.Abs(x)
	}
	return ok && fmt.Sprint(got) == fmt.Sprint(want.Value)
}

// onnxDefaults are what ONNX says an attribute is where a node leaves it out, of the
// operators whose exporters do so now and then.
var onnxDefaults = map[string]map[string]any{
	"Gemm": {"alpha": 1.0, "beta": 1.0, "transA": int64(0), "transB": int64(0)},
}

func attributeValue(a *onnx.Attribute) (any, bool) {
	switch a.GetType() {
	case onnx.Attribute_INT:
		return a.GetI(), true
	case onnx.Attribute_FLOAT:
		return float64(a.GetF()), true
	case onnx.Attribute_STRING:
		return string(a.GetS()), true
	case onnx.Attribute_INTS:
		return a.GetInts(), true
	}
	return nil, false
}
