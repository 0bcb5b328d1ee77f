package encoder

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/generate/pipeline"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// changed writes a graph of models/encoders with something else in it.
func changed(t *testing.T, from string, change func(*onnx.Graph)) string {
	t.Helper()
	var m onnx.Model
	must.Succeed(t, proto.Unmarshal([]byte(read(t, filepath.Join(encoders, from))), &m))
	change(m.Graph)
	data := must.Value(proto.Marshal(&m))(t)
	return string(data)
}

// reduced adds a node that makes an output of another, over an axis.
func reduced(g *onnx.Graph, of, name string, shape ...int64) {
	g.Node = append(g.Node, &onnx.Node{OpType: proto.String("ReduceMax"), Input: []string{of, name + "_axes"},
		Output:    []string{name},
		Attribute: []*onnx.Attribute{{Name: proto.String("keepdims"), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(0)}}})
	g.Initializer = append(g.Initializer,
		&onnx.Tensor{Name: proto.String(name + "_axes"), DataType: proto.Int32(int32(onnx.Tensor_INT64)), Dims: []int64{1},
			Int64Data: []int64{1}})
	var dims []*onnx.Shape_Dim
	for _, n := range shape {
		d := &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimParam{DimParam: "batch_size"}}
		if n > 0 {
			d = &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: n}}
		}
		dims = append(dims, d)
	}
	g.Output = append(g.Output,
		&onnx.ValueInfo{Name: proto.String(name),
			Type: &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{
				ElemType: proto.Int32(int32(onnx.Tensor_FLOAT)), Shape: &onnx.Shape{Dim: dims}}}}})
}

// TestVectorOfTheGraph: a graph that pools itself, in an output sentence_embedding, is the whole way; a pooling that
// is asked for comes first.
func TestVectorOfTheGraph(t *testing.T) {
	want := readExpected(t)
	graph := changed(t, "embedder/onnx/model.onnx",
		func(g *onnx.Graph) { reduced(g, "last_hidden_state", "sentence_embedding", 0, 32) })
	for _, c := range []struct {
		pooling []string
		modules bool
		want    string // of the texts of which nothing is padded
	}{{nil, true, "max"}, {nil, false, "max"}, {[]string{"cls"}, false, "cls"}} {
		files := map[string]string{"onnx/model.onnx": graph}
		if !c.modules {
			files["modules.json"] = ""
		}
		o := options(t, true)
		o.Pooling = c.pooling
		e := must.Value(OpenEmbedder(t.Context(), copied(t, "embedder", files), o))(t)
		for i, text := range want.Texts { // one by one, as the graph's maximum does not look at the mask
			if got := embed(t, e, "", []string{text})[0]; !near(got, want.Embeddings[c.want][i]) {
				t.Errorf("%+v: %q is %v, want %v", c, text, got, want.Embeddings[c.want][i])
			}
		}
		must.Equal(t, e.Dimensions(), 32)
		e.Close()
	}
}

// TestPast: a decoder with a past among its inputs embeds with one of no tokens. testdata/past.py makes the folder, and
// the vectors with ONNX Runtime alone, each text by itself.
func TestPast(t *testing.T) {
	var want struct{ Vectors map[string][][]float32 }
	must.Succeed(t, json.Unmarshal([]byte(read(t, "testdata/past-expected.json")), &want))
	texts := []string{"the cat sat on a mat", "a dog ran far away under the old bridge", "cat"}
	for _, plugins := range []bool{false, true} {
		e := must.Value(OpenEmbedder(t.Context(), "testdata/past", options(t, plugins)))(t)
		for i, got := range embed(t, e, "", texts) {
			if !near(got, want.Vectors["st"][i]) {
				t.Errorf("plugins %v: %q is %v, want %v", plugins, texts[i], got, want.Vectors["st"][i])
			}
		}
		e.Close()
	}
}

// TestWithoutMask: where nothing hides padding, rows of other lengths run apart.
func TestWithoutMask(t *testing.T) {
	want := readExpected(t)
	graph := changed(t, "embedder/onnx/model.onnx", func(g *onnx.Graph) {
		// The mask is made of the ids: all ones.
		g.Node = append([]*onnx.Node{
			{OpType: proto.String("Mul"), Input: []string{"input_ids", "zero"}, Output: []string{"zeros"}},
			{OpType: proto.String("Add"), Input: []string{"zeros", "one"}, Output: []string{"attention_mask"}},
		}, g.Node...)
		for name, n := range map[string]int64{"zero": 0, "one": 1} {
			g.Initializer = append(g.Initializer,
				&onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(onnx.Tensor_INT64)), Int64Data: []int64{n}})
		}
		var left []*onnx.ValueInfo
		for _, in := range g.Input {
			if in.GetName() != "attention_mask" {
				left = append(left, in)
			}
		}
		g.Input = left
	})
	e := must.Value(OpenEmbedder(t.Context(), copied(t, "embedder", map[string]string{"onnx/model.onnx": graph}),
		options(t, false)))(t)
	defer e.Close()
	for i, got := range embed(t, e, "", want.Texts) {
		if !near(got, want.Embeddings["normalize"][i]) {
			t.Errorf("%q is %v, want %v", want.Texts[i], got, want.Embeddings["normalize"][i])
		}
	}
}

func TestFoldersThatAreRefused(t *testing.T) {
	transformer := `{"path": "", "type": "sentence_transformers.models.Transformer"}`
	pooling := `{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}`
	dense := `{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}`
	weights := read(t, encoders+"/dense/model.safetensors")
	denseOf := func(config string, more ...string) map[string]string {
		files := map[string]string{"modules.json": "[" + transformer + "," + pooling + "," + dense + "]",
			"2_Dense/config.json": config}
		for i := 0; i < len(more); i += 2 {
			files[more[i]] = more[i+1]
		}
		return files
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"a module of another package",
			map[string]string{"modules.json": "[" + transformer + `, {"path": "x", "type": "mine.Pooling"}]`},
			`modules.json: a module of type "mine.Pooling", needed after the Transformer of sentence_transformers one of Dense, Dropout, LayerNorm, LogitScore, MultiVectorMask, Normalize, Pooling, SparseAutoEncoder, SparseStaticEmbedding, SpladePooling; export the model with its pooling in the graph, as an output sentence_embedding`},
		{"an unknown module", map[string]string{"modules.json": "[" + transformer +
			`, {"path": "x", "type": "sentence_transformers.models.CNN"}]`},
			`modules.json: a module of type "sentence_transformers.models.CNN"`},
		{"no Transformer", map[string]string{"modules.json": "[" + pooling + "]"},
			`modules.json: a first module of type "sentence_transformers.models.Pooling", needed a Transformer of sentence_transformers, and then what is done to its output`},
		{"two of them", map[string]string{"modules.json": "[" + transformer + "," + transformer + "]"},
			`modules.json: a module of type "sentence_transformers.models.Transformer", needed after the Transformer`},
		{"no Pooling", map[string]string{"modules.json": "[" + transformer +
			`, {"path": "x", "type": "sentence_transformers.models.Normalize"}]`},
			"modules.json: no Pooling, needed one after the Transformer"},
		{"a path out of the folder",
			map[string]string{"modules.json": "[" + transformer +
				`, {"path": "../other", "type": "sentence_transformers.models.Pooling"}]`},
			`modules.json: the path "../other", needed a folder below `},
		{"a Pooling that is not there", map[string]string{"1_Pooling/config.json": ""},
			"1_Pooling/config.json: there is no such file, needed how the model pools; copy the whole folder from where the " +
				"model comes from"},
		{"a Pooling of nothing", map[string]string{"1_Pooling/config.json": pooled("")},
			"config.json: no pooling mode is on, needed at least one of cls, max, mean,"},
		{"a Pooling of another width", map[string]string{"1_Pooling/config.json": `{"word_embedding_dimension": 384}`},
			"1_Pooling/config.json: a Pooling of hidden states of width 384, needed 32, the width of the model's"},
		{"weights in pickle", denseOf(
			`{"in_features": 32, "out_features": 12, "activation_function": "torch.nn.modules.activation.Tanh"}`,
			"2_Dense/pytorch_model.bin", "x"),
			"model.safetensors: only pytorch_model.bin, which is a program in Python's pickle, needed model.safetensors; " +
				"load the model with sentence-transformers and save it again: SentenceTransformer(FOLDER).save(FOLDER)"},
		{"no weights",
			denseOf(`{"in_features": 32, "out_features": 12, "activation_function": "torch.nn.modules.activation.Tanh"}`),
			"model.safetensors: there is no such file, needed the weights of the Dense"},
		{"weights of another shape",
			denseOf(`{"in_features": 32, "out_features": 13, "activation_function": "torch.nn.modules.activation.Tanh"}`,
				"2_Dense/model.safetensors", weights), "model.safetensors: linear.weight has the shape [12 32], needed [13 32]"},
		{"a Dense of another width",
			denseOf(`{"in_features": 32, "out_features": 12, "activation_function": "torch.nn.modules.activation.Tanh"}`,
				"2_Dense/model.safetensors", weights,
				"1_Pooling/config.json", pooled("", "cls", "mean")),
			"2_Dense/config.json: a module that reads 32 numbers after one of 64, needed as many"},
		{"an unknown activation", denseOf(`{"in_features": 32, "out_features": 12, "activation_function": "mine.Cube"}`),
			`config.json: activation_function is "mine.Cube", needed of torch.nn one of CELU, ELU, GELU, Hardsigmoid, `},
		{"a Dense of no size", denseOf(`{}`),
			"config.json: a layer from 0 to 0, needed in_features and out_features from 1 to 65536"},
		{"a default prompt that is not there",
			map[string]string{"config_sentence_transformers.json": `{"default_prompt_name": "query"}`},
			`config_sentence_transformers.json: default_prompt_name is "query", needed one of prompts`},
		{"no length", map[string]string{"sentence_bert_config.json": `{"max_seq_length": 0}`},
			"sentence_bert_config.json: max_seq_length is 0, needed a number from 1 to 16777216"},
		{"a configuration that is no JSON", map[string]string{"sentence_bert_config.json": `{`},
			"sentence_bert_config.json: no JSON: unexpected end of JSON input, needed an object; " +
				"copy the file from where the model comes from"},
		{"no graph", map[string]string{"onnx/model.onnx": ""},
			"no .onnx file, needed model.onnx or onnx/model.onnx; " +
				"export the model: optimum-cli export onnx --model NAME FOLDER"},
		{"two graphs", map[string]string{"onnx/model.onnx": "", "onnx/a.onnx": "x", "b.onnx": "x"},
			"several graphs: onnx/a.onnx, b.onnx, needed one, or model.onnx; name it (ModelFile, --model-file)"},
		{"no tokenizer", map[string]string{"tokenizer.json": ""},
			"no tokenizer: found none of a tokenizer's files, needed tokenizer.json"},
		{"an encoder with its decoder in one graph", map[string]string{"onnx/model.onnx": changed(t,
			"embedder/onnx/model.onnx", func(g *onnx.Graph) {
				second := proto.CloneOf(g.Input[0])
				second.Name = proto.String("decoder_input_ids")
				g.Input = append(g.Input, second)
			})}, "two inputs of token ids, input_ids and decoder_input_ids: an encoder with its decoder"},
		{"an input that no text has",
			map[string]string{"onnx/model.onnx": changed(t, "embedder/onnx/model.onnx", func(g *onnx.Graph) {
				g.Input = append(g.Input,
					&onnx.ValueInfo{Name: proto.String("pixels"),
						Type: &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{
							ElemType: proto.Int32(int32(onnx.Tensor_FLOAT)),
							Shape:    &onnx.Shape{Dim: []*onnx.Shape_Dim{{Value: &onnx.Shape_Dim_DimValue{DimValue: 3}}}}}}}})
			})}, "the input pixels: float32[3], of unknown meaning, needed inputs of token ids, their mask, types and " +
				"positions alone, [batch, sequence]"},
	} {
		e, err := OpenEmbedder(t.Context(), copied(t, "embedder", c.files), options(t, false))
		if err == nil {
			e.Close()
		}
		must.Fail(t, err, c.want)
	}
	three := changed(t, "reranker/model.onnx", func(g *onnx.Graph) {
		g.Node = append(g.Node, &onnx.Node{OpType: proto.String("Concat"), Input: []string{"logits", "logits", "logits"},
			Output:    []string{"three"},
			Attribute: []*onnx.Attribute{{Name: proto.String("axis"), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(1)}}})
		g.Output[0].Name = proto.String("three")
		g.Output[0].GetType().GetTensorType().Shape.Dim[1] = &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: 3}}
	})
	config := read(t, encoders+"/reranker/config.json")
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"three labels", map[string]string{"model.onnx": three},
			"logits of 3 labels, needed one: a score, by which documents can be sorted"},
		{"an unknown activation",
			map[string]string{"config.json": strings.Replace(config, "torch.nn.modules.activation.Sigmoid", "mine.Cube", 1)},
			`config.json: sentence_transformers.activation_fn is "mine.Cube", needed of torch.nn one of CELU,`},
	} {
		must.Fail(t, must.Error(OpenReranker(t.Context(), copied(t, "reranker", c.files), options(t, false))), c.want)
	}
	if _, err := OpenEmbedder(t.Context(), filepath.Join(encoders, "export.py"), options(t, false)); err == nil ||
		!strings.Contains(err.Error(), "export.py: a file, needed the folder of a model, with its tokenizer") {
		t.Errorf("a file: %v", err)
	}
	if _, err := OpenEmbedder(t.Context(), filepath.Join(encoders, "none"), options(t, false)); err == nil ||
		!errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing: %v", err)
	}
}

// TestPoolingOfLogits: a pooling that is asked for is not applied to logits of a vocabulary, by whatever name.
func TestPoolingOfLogits(t *testing.T) {
	var all savedVectors
	must.Succeed(t, json.Unmarshal([]byte(read(t, encoders+"/vectors/sentence-transformers-6.2.0.json")), &all))
	files := all.Cases[0].Files // of SPLADE
	named := func(name string) string {
		dir := unpacked(t, "vectors/mlm.onnx", files, all.Blobs)
		graph := changed(t, "vectors/mlm.onnx", func(g *onnx.Graph) {
			for _, n := range g.Node {
				for i, out := range n.Output {
					if out == "logits" {
						n.Output[i] = name
					}
				}
			}
			g.Output[0].Name = proto.String(name)
			g.Output[0].GetType().GetTensorType().Shape.Dim[2] = &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: 36}}
		})
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "model.onnx"), []byte(graph), 0o644))
		return dir
	}
	o := options(t, false)
	o.Pooling = []string{"mean"}
	must.Fail(t, must.Error(OpenEmbedder(t.Context(), named("logits"), o)),
		"a pooling that is asked for, and a folder that gives sparse vectors or vectors of tokens, needed one")
	for _, name := range []string{"logits", "scores_of_words"} {
		dir := named(name)
		for _, file := range []string{"modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"} {
			must.Succeed(t, os.Remove(filepath.Join(dir, file)))
		}
		must.Fail(t, must.Error(OpenEmbedder(t.Context(), dir, o)), "no output of hidden states to pool among "+name)
	}
}

// TestVectorsAreNumbers: a vector that has an element that is none is an error of its line.
func TestVectorsAreNumbers(t *testing.T) {
	graph := changed(t, "embedder/onnx/model.onnx", func(g *onnx.Graph) {
		const states = "last_hidden_state"
		for _, n := range [][4]string{{"Sub", states, states, "zero"}, {"Div", "zero", "zero", "none"}} {
			g.Node = append(g.Node, &onnx.Node{OpType: proto.String(n[0]), Input: n[1:3], Output: n[3:]})
		}
		g.Output[0].Name = proto.String("none")
	})
	e := must.Value(OpenEmbedder(t.Context(), copied(t, "embedder", map[string]string{"onnx/model.onnx": graph}),
		options(t, false)))(t)
	defer e.Close()
	lines := []string{"a text"}
	var found []string
	must.Value(e.Run(t.Context(), func() (string, error) {
		if len(lines) == 0 {
			return "", io.EOF
		}
		line := lines[0]
		lines = nil
		return line, nil
	}, As{}, func(v Vector, _ Embedding) error {
		found = append(found, v.Error)
		return nil
	}, pipeline.Options{}))(t)
	must.Equal(t, found, []string{"the model's vector has an element NaN, needed are numbers"})
}
