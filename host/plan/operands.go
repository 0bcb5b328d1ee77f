package plan

import (
	"fmt"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// operands says why the values of a block do not fit the signature of an attention
// operator, or "". The operator takes query, key, value, past and bias of one
// type, past as batch, heads, positions and size, and masks of rank 1 to 4.
func operands(shapes *graph.Shapes, b *blocks.Block) string {
	w := b.Wiring
	if w.PastKey != nil || w.PresentKey != nil {
		if layout := b.Attention.PastLayout; layout != "bhsd" && layout != "" {
			return fmt.Sprintf("its past lies as %s, an operator takes and makes bhsd", layout)
		}
	}
	typed := shapes.Of(w.Query).DType
	type operand struct {
		name  string
		value *graph.Value
	}
	masks := []operand{{"mask", w.BoolMask}}
	typedAlike := []operand{{"key", w.Key}, {"value", w.Value}, {"past key", w.PastKey}, {"past value", w.PastValue},
		{"factor of heads", w.HeadScale}, {"sinks", w.Sinks}}
	for _, b := range w.Biases {
		typedAlike = append(typedAlike, operand{"bias", b.Value})
		if !b.Windows {
			masks = append(masks, operand{"bias", b.Value})
		}
	}
	for _, v := range typedAlike {
		if v.value == nil {
			continue
		}
		if t := shapes.Of(v.value).DType; t != typed {
			return fmt.Sprintf("its query is of type %s, its %s of %s; an operator takes one type", typeName(typed), v.name,
				typeName(t))
		}
	}
	for _, v := range masks {
		if v.value == nil {
			continue
		}
		s := shapes.Of(v.value)
		if s.Rank < 1 || s.Rank > 4 {
			return fmt.Sprintf("its %s has %s, an operator takes 1 to 4", v.name, rankName(s.Rank))
		}
		// ONNX's Attention fills a mask that is shorter than the keys up with
		// hidden ones, where an operator repeats a single column.
		if n, ok := s.Dims[s.Rank-1].Const(); ok && n == 1 && b.Attention.Form == "Attention" &&
			!w.AllKeys.Equal(graph.DimInt(1)) {
			return fmt.Sprintf("its %s has one column, which ONNX's Attention does not repeat", v.name)
		}
	}
	return ""
}

func typeName(t onnx.Tensor_DataType) string {
	if t == onnx.Tensor_UNDEFINED {
		return "a type that is not known"
	}
	return model.TypeName(t)
}

func rankName(rank int) string {
	if rank < 0 {
		return "a rank that is not known"
	}
	return fmt.Sprintf("rank %d", rank)
}
