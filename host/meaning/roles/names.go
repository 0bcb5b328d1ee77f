package roles

import (
	"strings"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// inputNames and lengthNames say what names mean that exporters use. They decide
// where a graph says nothing; the first that a name contains counts.
var (
	inputNames = []struct {
		part string
		is   Input
	}{
		{"use_cache", UseCacheBranch}, {"seqlens", KeyLengths}, {"total_sequence", Total}, {"logits_to_keep", Count},
		{"mask", Mask}, {"position", Positions}, {"token_type", Types}, {"segment", Types},
		{"encoder.key", EncoderPast}, {"encoder.value", EncoderPast}, {"past", Past},
		{"encoder_hidden", EncoderOutput}, {"encoder_output", EncoderOutput}, {"ids", Tokens},
	}
	lengthNames = []struct {
		part string
		is   Length
	}{
		{"batch", Batch}, {"total", All}, {"past_encoder", Encoder}, {"past", Cached}, {"encoder", Encoder},
	}
)

func named(name string) Input {
	name = strings.ToLower(name)
	for _, n := range inputNames {
		if strings.Contains(name, n.part) {
			return n.is
		}
	}
	return Other
}

// ByName is what the name of an input says that it holds, for those who have a
// session and no graph.
func ByName(name string) Input { return named(name) }

// Cache is what the name of an input that is a past shares with that of the output which a run makes of it, or before
// any past; and whether it holds keys or values of an encoder's output. For those who have a session and no graph.
// Optimum writes past_key_values.0.encoder.key and present.0.encoder.key, the exporter of Transformers 5
// input.cache.layers.0.keys, output.cache.layers.0.keys and, where there is no past, cache.layers.0.keys.
func Cache(name string) (shared string, encoder bool) {
	for _, prefix := range []string{"past_key_values", "present", "input", "output"} {
		if rest, ok := strings.CutPrefix(name, prefix+"."); ok {
			name = rest
		}
	}
	return name, strings.Contains(name, ".encoder.") || strings.Contains(name, "cross_attention")
}

// Named is what the name of a length says that it counts.
func Named(name string) Length {
	name = strings.ToLower(name)
	if strings.ContainsAny(name, "+*? ") {
		return Unknown
	}
	for _, n := range lengthNames {
		if strings.Contains(name, n.part) {
			return n.is
		}
	}
	return Unknown
}

// possible reports whether a value of that type may be what a name says.
func (r *Roles) possible(v *graph.Value, in Input) bool {
	f := r.shapes.Of(v)
	integer := f.DType == onnx.Tensor_INT64 || f.DType == onnx.Tensor_INT32
	switch in {
	case Tokens, Types, Positions, KeyLengths, Total, Count:
		return integer
	case UseCacheBranch:
		return f.DType == onnx.Tensor_BOOL || integer
	case Past, EncoderPast:
		return f.Rank >= 3
	case EncoderOutput:
		return f.Rank == 3
	case Mask:
		return f.Rank != 0
	}
	return true
}
