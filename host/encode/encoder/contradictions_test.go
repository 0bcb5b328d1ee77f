package encoder

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// saying is a folder of models/encoders whose config.json says something else.
func saying(t *testing.T, folder string, keys map[string]any, files map[string]string) string {
	t.Helper()
	var config map[string]any
	must.Succeed(t, json.Unmarshal([]byte(read(t, filepath.Join(encoders, folder, "config.json"))), &config))
	for key, value := range keys {
		if config[key] = value; value == nil {
			delete(config, key)
		}
	}
	all := map[string]string{"config.json": string(must.Value(json.Marshal(config))(t))}
	for name, text := range files {
		all[name] = text
	}
	return copied(t, folder, all)
}

// TestContradictions: where config.json and the graph, or two of its keys, say two things, that is an error with the
// key, what was found and what is needed. What answers nothing may disagree.
func TestContradictions(t *testing.T) {
	three := changed(t, "reranker/model.onnx", func(g *onnx.Graph) {
		for _, n := range g.Node {
			for i, out := range n.Output {
				if out == "logits" {
					n.Output[i] = "one"
				}
			}
		}
		g.Node = append(g.Node, &onnx.Node{OpType: proto.String("Concat"), Input: slices.Repeat([]string{"one"}, 3),
			Output:    []string{"logits"},
			Attribute: []*onnx.Attribute{{Name: proto.String("axis"), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(1)}}})
		g.Output[0].GetType().GetTensorType().Shape.Dim[1] = &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: 3}}
	})
	type keys = map[string]any
	named := func(names ...string) keys {
		all := keys{}
		for i, name := range names {
			all[string(rune('0'+i))] = name
		}
		return all
	}
	abc := named("a", "b", "c")
	numbers := keys{"a": 0, "b": 1, "c": 2}
	for _, c := range []struct {
		opens  string // embed, rerank or predict
		config keys
		graph  string
		want   string // "" where it opens
	}{
		{"embed", keys{"hidden_size": 64}, "", "config.json: hidden_size is 64, needed 32, the width of the graph's " +
			"last_hidden_state; copy both from where the model comes from"},
		{"embed", keys{"hidden_size": nil}, "", ""},
		{"embed", keys{"hidden_size": 64, "word_embed_proj_dim": 32}, "", ""},
		{"embed", keys{"num_labels": 3, "id2label": abc, "label2id": keys{"a": 2}}, "", ""},
		{"predict", keys{"id2label": abc, "label2id": numbers}, three, ""},
		{"predict", keys{"id2label": abc, "label2id": keys{"LABEL_0": 0, "LABEL_1": 1}}, three, ""},
		{"predict", keys{"id2label": abc, "label2id": keys{"a": 0, "b": 2, "c": 1}}, three,
			`config.json: label2id.b is 2, and id2label.1 is "b", needed the number that id2label gives this label`},
		{"predict", keys{"id2label": abc, "label2id": keys{"a": 0.5}}, three, `label2id.a is 0.5, and id2label.0 is "a"`},
		{"predict", keys{"id2label": abc, "label2id": keys{"c": 7}}, three, `label2id.c is 7, and id2label.2 is "c"`},
		{"predict", keys{"id2label": named("a", "a", "c"), "label2id": keys{"a": 1, "c": 2}}, three, ""},
		{"predict", keys{"id2label": abc, "label2id": nil, "num_labels": 3}, three, ""},
		{"predict", keys{"id2label": abc, "label2id": nil, "num_labels": 2}, three,
			"config.json: num_labels is 2, and id2label has 3 labels, needed 3, as many as the graph has outputs"},
		{"predict", keys{"id2label": nil, "label2id": nil, "num_labels": 2}, three,
			"config.json: num_labels is 2, needed 3, as many as the graph has outputs"},
		{"predict", keys{"id2label": named("a", "b"), "label2id": nil}, three,
			"config.json: id2label has 2 labels, needed 3, one for each output of the graph"},
		{"rerank", keys{"id2label": named("a", "b"), "label2id": nil}, "",
			"config.json: id2label has 2 labels, needed 1, one for each output of the graph"},
		{"rerank", keys{"id2label": nil, "label2id": nil, "num_labels": 2}, "",
			"config.json: num_labels is 2, needed 1, as many as the graph has outputs"},
		{"rerank", keys{"id2label": abc, "label2id": numbers}, three, "logits of 3 labels, needed one"},
		{"rerank", keys{"hidden_size": 64}, "", ""},
	} {
		files := map[string]string{}
		if c.graph != "" {
			files["model.onnx"] = c.graph
		}
		from := map[string]string{"embed": "embedder"}[c.opens]
		if from == "" {
			from = "reranker"
		}
		var opened interface{ Close() }
		var err error
		switch dir := saying(t, from, c.config, files); c.opens {
		case "embed":
			opened, err = OpenEmbedder(t.Context(), dir, options(t, false))
		case "rerank":
			opened, err = OpenReranker(t.Context(), dir, options(t, false))
		default:
			opened, err = OpenClassifier(t.Context(), dir, options(t, false))
		}
		if err == nil {
			opened.Close()
		}
		if c.want == "" {
			must.Succeed(t, err, c.opens, c.config)
		} else {
			must.Fail(t, err, c.want)
		}
	}
}

// TestTruncationOfASecondText: a static embedding's tokenizer.json that cuts the second of two texts alone refuses each
// long text in Hugging Face's tokenizers; and what is no strategy is an error.
func TestTruncationOfASecondText(t *testing.T) {
	var all savedVectors
	must.Succeed(t, json.Unmarshal([]byte(read(t, encoders+"/vectors/sentence-transformers-6.2.0.json")), &all))
	at := 0
	for c := all.Cases; c[at].Name != "static" || c[at].Gives != "dense"; {
		at++
	}
	for strategy, want := range map[string]string{"OnlyFirst": "", "LongestFirst": "",
		"OnlySecond": "tokenizer.json: truncation.strategy is OnlySecond, which cuts no text that stands alone, needed " +
			"LongestFirst or OnlyFirst",
		"Longest": `tokenizer.json: truncation: found strategy "Longest", needed one of "LongestFirst", "OnlyFirst", "OnlySecond"`} {
		dir := unpacked(t, "", all.Cases[at].Files, all.Blobs)
		found := must.Value(filepath.Glob(filepath.Join(dir, "*", "tokenizer.json")))(t)
		found = append(found, must.Value(filepath.Glob(filepath.Join(dir, "tokenizer.json")))(t)...)
		var whole map[string]any
		must.Succeed(t, json.Unmarshal([]byte(read(t, found[0])), &whole))
		whole["truncation"] = map[string]any{"direction": "Right", "max_length": 4, "strategy": strategy, "stride": 0}
		must.Succeed(t, os.WriteFile(found[0], must.Value(json.Marshal(whole))(t), 0o644))
		e, err := OpenEmbedder(t.Context(), dir, options(t, false))
		if err == nil {
			e.Close()
		}
		if want == "" {
			must.Succeed(t, err, strategy)
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", strategy, err)
		}
	}
}
