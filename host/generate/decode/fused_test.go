package decode_test

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

// cpuFusions is a Qwen3 of two layers that transformers 5.24 exported with OnnxExporter(ort_fusions="cpu") and torch
// 2.15, stripped of metadata, with weights that are random signs. Its tied head is a FusedMatMul with a transposed
// weight, and its RotaryEmbedding has tables with a line for each token, which positions number one after another.
//
//go:embed testdata/qwen3-cpu-fusions.onnx.gz
var cpuFusions []byte

const qwen3 = `{"model_type": "qwen3", "hidden_size": 64, "head_dim": 24, "num_attention_heads": 4,
	"num_key_value_heads": 2, "num_hidden_layers": 2, "intermediate_size": 96, "max_position_embeddings": 256,
	"vocab_size": 320, "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}`

// TestFusionsOfTransformers5: tokens are those that ONNX Runtime 1.32 gives in a greedy loop in Python.
func TestFusionsOfTransformers5(t *testing.T) {
	var m onnx.Model
	z := must.Value(gzip.NewReader(bytes.NewReader(cpuFusions)))(t)
	must.Succeed(t, proto.Unmarshal(must.Value(io.ReadAll(z))(t), &m))
	head := m.Graph.Node[len(m.Graph.Node)-1]
	must.Equal(t, head.GetOpType(), "FusedMatMul", "the last node")
	folder := func() string {
		dir := t.TempDir()
		for name, content := range map[string][]byte{"model.onnx": must.Value(proto.Marshal(&m))(t),
			"config.json": []byte(qwen3), "generation_config.json": []byte(`{"eos_token_id": 2}`)} {
			must.Succeed(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
		}
		return dir
	}
	g := open(t, folder(), nil)
	o := g.Search()
	o.MaxNewTokens = 12
	for _, c := range []struct{ prompt, want []int32 }{
		{[]int32{5, 17, 200, 31, 9}, []int32{76, 224, 224, 137, 224, 9, 205, 32, 171, 0, 17, 217}},
		{[]int32{44, 3}, []int32{257, 257, 211, 14, 277, 263, 103, 97, 121, 259, 312, 204}},
		{[]int32{250, 250, 250, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111},
			[]int32{40, 152, 63, 86, 310, 139, 63, 14, 63, 133, 63, 154}},
	} {
		out := run(t, g, o, []*decode.Input{{Tokens: c.prompt}})
		must.Equal(t, out[0].Hypotheses[0].Tokens, c.want, c.prompt)
	}
	head.Attribute = append(head.Attribute,
		&onnx.Attribute{Name: proto.String("transBatchA"), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(1)})
	_, err := decode.Open(t.Context(), folder(), decode.Options{Library: must.Value(ort.FindAndOpen(""))(t),
		Plugins: must.Value(loaded.Load(nil, true))(t)})
	must.Fail(t, err, "the scores come from com.microsoft.FusedMatMul", "needed is a linear layer to the vocabulary")
}
