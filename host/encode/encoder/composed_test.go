package encoder

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/encode/folder"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// put writes files below a folder.
func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

// TestColBERTFolders: a folder as colbert-ai saves one, with the linear layer in the weights of the whole model and the
// rest in artifact.metadata, gives what PyLate makes of the same weights, marks and lengths
// (models/encoders/vectors.py).
func TestColBERTFolders(t *testing.T) {
	var all savedVectors
	must.Succeed(t, json.Unmarshal([]byte(read(t, encoders+"/vectors/pylate-1.6.0.json")), &all))
	made := func(i int, more map[string]any) string {
		from := unpacked(t, "folders/states.onnx", all.Cases[i].Files, all.Blobs)
		var config, pylate map[string]any
		must.Succeed(t, json.Unmarshal([]byte(read(t, filepath.Join(from, "config.json"))), &config))
		must.Succeed(t, json.Unmarshal([]byte(read(t, filepath.Join(from, "config_sentence_transformers.json"))), &pylate))
		config["architectures"] = []string{"HF_ColBERT"}
		meta := map[string]any{"query_token_id": pylate["query_prefix"], "doc_token_id": pylate["document_prefix"],
			"query_token": "[Q]", "doc_token": "[D]", "query_maxlen": pylate["query_length"],
			"doc_maxlen": pylate["document_length"], "similarity": "cosine",
			"attend_to_mask_tokens": pylate["attend_to_expansion_tokens"], "interaction": "colbert", "relu": false, "nbits": 2,
			"mask_punctuation": len(pylate["skiplist_words"].([]any)) > 0, "checkpoint": "a", "bsize": 32}
		maps.Copy(meta, more)
		dir := t.TempDir()
		put(t, dir, map[string]string{"config.json": string(must.Value(json.Marshal(config))(t)),
			"artifact.metadata": string(must.Value(json.Marshal(meta))(t))})
		for to, name := range map[string]string{"model.safetensors": "1_Dense/model.safetensors", "model.onnx": "model.onnx",
			"tokenizer.json": "tokenizer.json", "tokenizer_config.json": "tokenizer_config.json"} {
			put(t, dir, map[string]string{to: read(t, filepath.Join(from, name))})
		}
		return dir
	}
	compared := 0
	for i, c := range all.Cases {
		switch strings.TrimPrefix(c.Name, "PyLate, ") {
		case "as it is", "another width", "lengths", "expansion that is attended to", "no words left out", "cased":
		default:
			continue
		}
		compared++
		e := must.Value(OpenEmbedder(t.Context(), made(i, nil), options(t, false)))(t, c.Name)
		for _, task := range []folder.Task{folder.Query, folder.Document} {
			for k, want := range c.Tasks[task] {
				row := must.Value(e.Row(t.Context(), all.Texts[k], As{Task: task}))(t)
				got := must.Value(e.Alone(t.Context(), row))(t).Tokens
				if got.Width != want.Width || !near(got.Values, want.Values) {
					t.Errorf("%s: %q as a %s: %d of %d numbers, want %d of %d", c.Name, all.Texts[k], task, len(got.Values),
						got.Width, len(want.Values), want.Width)
				}
			}
		}
		e.Close()
	}
	must.Equal(t, compared, 6)
	for key, c := range map[string]struct {
		value any
		want  string
	}{
		"dim":         {96, "artifact.metadata: dim is 96, needed 128, the width of linear.weight in model.safetensors"},
		"similarity":  {"l2", `artifact.metadata: similarity is "l2", needed no similarity, which graft does not implement`},
		"interaction": {"flipr", `artifact.metadata: interaction is "flipr", needed no interaction`},
		"relu":        {true, "artifact.metadata: relu is true, needed no relu"},
	} {
		must.Fail(t, must.Error(OpenEmbedder(t.Context(), made(0, map[string]any{key: c.value}), options(t, false))), c.want)
	}
	e := must.Value(OpenEmbedder(t.Context(), made(0, map[string]any{"doc_maxlen": nil, "query_maxlen": nil}),
		options(t, false)))(t)
	defer e.Close()
	must.Equal(t, e.all[0].folder.Limit(folder.Document), 220) // of ColBERTConfig
	must.Equal(t, e.all[0].folder.Limit(folder.Query), 32)
}

// TestRouterOfTwoGraphs: queries and documents of a Router with a Transformer each go through its own graph. The second
// graph gives the negated states of the first, so that means, and what comes after, are negated.
func TestRouterOfTwoGraphs(t *testing.T) {
	want := readExpected(t)
	const types, name = "sentence_transformers.models.", "embedder/onnx/model.onnx"
	negated := changed(t, name, func(g *onnx.Graph) {
		for _, n := range g.Node {
			for i, out := range n.Output {
				if out == "last_hidden_state" {
					n.Output[i] = "states"
				}
			}
		}
		g.Node = append(g.Node, &onnx.Node{OpType: proto.String("Neg"), Input: []string{"states"},
			Output: []string{"last_hidden_state"}})
	})
	dir := t.TempDir()
	for route, graph := range map[string]string{"query": read(t, filepath.Join(encoders, name)), "document": negated} {
		part := route + "_0_Transformer"
		for _, file := range []string{"config.json", "sentence_bert_config.json", "tokenizer.json", "tokenizer_config.json"} {
			put(t, dir, map[string]string{part + "/" + file: read(t, filepath.Join(encoders, "embedder", file))})
		}
		put(t, dir, map[string]string{part + "/onnx/model.onnx": graph,
			route + "_1_Pooling/config.json": `{"word_embedding_dimension": 32, "pooling_mode_mean_tokens": true}`})
	}
	config := func(structure, parameters string) map[string]string {
		return map[string]string{"router_config.json": `{"types": {"query_0_Transformer": "` + types + `Transformer",
			"query_1_Pooling": "` + types + `Pooling", "document_0_Transformer": "` + types + `Transformer",
			"document_1_Pooling": "` + types + `Pooling"}, "structure": ` + structure + `, "parameters": ` + parameters + `}`}
	}
	const both = `{"query": ["query_0_Transformer", "query_1_Pooling"],
		"document": ["document_0_Transformer", "document_1_Pooling"]}`
	put(t, dir, map[string]string{"modules.json": `[{"idx": 0, "name": "0", "path": "", "type": "` + types + `Router"}]`})
	put(t, dir, config(both, `{"default_route": "document", "allow_empty_key": true}`))
	for _, plugins := range []bool{false, true} {
		e := must.Value(OpenEmbedder(t.Context(), dir, options(t, plugins)))(t)
		var calls []*batch.Call[Row, Embedding]
		tasks := []folder.Task{folder.Query, folder.Document, ""}
		for _, text := range want.Texts {
			for _, task := range tasks { // in batches of both graphs
				row := must.Value(e.Row(t.Context(), text, As{Task: task}))(t)
				calls = append(calls, must.Value(e.Start(t.Context(), row, true))(t))
			}
		}
		for i, call := range calls {
			got := must.Value(call.Wait(t.Context()))(t).Dense
			right := append([]float32{}, want.Embeddings["mean"][i/len(tasks)]...)
			if tasks[i%len(tasks)] != folder.Query {
				for k := range right {
					right[k] = -right[k]
				}
			}
			if !near(got, right) {
				t.Errorf("%q as %q is %v, want %v", want.Texts[i/len(tasks)], tasks[i%len(tasks)], got, right)
			}
		}
		e.Close()
	}
	put(t, dir, map[string]string{"document_1_Pooling/config.json": `{"embedding_dimension": 32,
		"pooling_mode": ["cls", "mean"]}`})
	must.Fail(t, must.Error(OpenEmbedder(t.Context(), dir, options(t, false))), "routes of ",
		"needed vectors that can be compared")
	must.Succeed(t, os.Remove(filepath.Join(dir, "document_0_Transformer", "onnx", "model.onnx")))
	must.Fail(t, must.Error(OpenEmbedder(t.Context(), dir, options(t, false))), "no .onnx file")
}
