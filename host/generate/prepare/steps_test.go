package prepare_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

// made prepares a generation of a folder.
func made(t *testing.T, folder string) error {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	m, err := prepare.Open(t.Context(), folder)
	if err != nil {
		return err
	}
	g, err := m.Make(t.Context(),
		prepare.Options{Library: l, Plugins: set, Batch: 1, MaxPositions: 64, CacheBytes: 1 << 24})
	if err == nil {
		g.Close()
	}
	return err
}

// edited changes a model's file.
func edited(t *testing.T, path string, edit func(*onnx.Graph)) {
	t.Helper()
	data, err := os.ReadFile(path)
	must.Succeed(t, err)
	var p onnx.Model
	must.Succeed(t, proto.Unmarshal(data, &p))
	edit(p.Graph)
	if data, err = proto.Marshal(&p); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, os.WriteFile(path, data, 0o644))
}

// A decoder with a past that hides nothing is taken only where the one without a past hides what comes after each
// token.
func TestDecodersForOneToken(t *testing.T) {
	folder := small(t, "trocr")
	must.Succeed(t, made(t, folder))
	shown := 0
	show := func(x *onnx.Tensor) {
		for i := 0; x.GetDataType() == int32(onnx.Tensor_FLOAT) && i+4 <= len(x.RawData); i += 4 {
			if math.Float32frombits(binary.LittleEndian.Uint32(x.RawData[i:])) == -math.MaxFloat32 {
				copy(x.RawData[i:], []byte{0, 0, 0, 0})
				shown++
			}
		}
	}
	edited(t, filepath.Join(folder, "decoder_model.onnx"), func(g *onnx.Graph) {
		for _, x := range g.Initializer {
			show(x)
		}
		for _, n := range g.Node {
			for _, a := range n.Attribute {
				if a.T != nil {
					show(a.T)
				}
			}
		}
	})
	if shown == 0 {
		t.Fatal("found no mask")
	}
	must.Fail(t, made(t, folder), "a query sees keys that come after it")
}

// TestStepsOfOneToken: a decoder whose graph takes one token at a time reads prompts so, which the graph beside it that
// reads them at once must allow.
func TestStepsOfOneToken(t *testing.T) {
	folder := small(t, "qwen2-exporter")
	must.Succeed(t, made(t, folder))
	edited(t, filepath.Join(folder, "prefill.onnx"), func(g *onnx.Graph) {
		for _, n := range g.Node {
			if n.GetOpType() == "LessOrEqual" { // each key's index is at most its query's: now at most its own
				n.Input[1] = n.Input[0]
			}
		}
	})
	must.Fail(t, made(t, folder), "prefill.onnx: node_Softmax_",
		"a token of a prompt sees those after it, and the decoder takes one token at a time")
}

// TestPastOfOneLength: without several tokens of the decoder in its sample, the exporter of Transformers 5 makes the
// length of the first past, 1, a constant, and such a graph takes one step.
func TestPastOfOneLength(t *testing.T) {
	folder := small(t, "bart-exporter")
	must.Succeed(t, made(t, folder))
	edited(t, filepath.Join(folder, "decode.onnx"), func(g *onnx.Graph) {
		for _, in := range g.Input {
			if strings.Contains(in.GetName(), "self_attention_cache") {
				in.GetType().GetTensorType().GetShape().Dim[2].Value = &onnx.Shape_Dim_DimValue{DimValue: 1}
			}
		}
	})
	must.Fail(t, made(t, folder), "decode.onnx: node_Softmax_128: its past is 1 long in every step, needed is one of any")
	_, err := exported.Open(t.Context(), folder, decode.Options{Library: must.Value(ort.FindAndOpen(""))(t),
		Batch: 1, Threads: 1})
	must.Fail(t, err, "cache.layers.0.keys is 1 long in every step, needed a past of any length")
}
