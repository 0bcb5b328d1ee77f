package blocks_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

var update = flag.Bool("update", false, "rewrite testdata/facts.golden.json")

const golden = "testdata/facts.golden.json"

// fixtures are the small graphs of all exporters.
func fixtures(t *testing.T) []models.Fixture {
	t.Helper()
	var list []models.Fixture
	for _, f := range models.Fixtures() {
		if f.Exporter != "full" {
			list = append(list, f)
		}
	}
	if len(list) < 30 {
		t.Fatalf("found %d fixtures, need at least 30", len(list))
	}
	return list
}

// recognise runs recognition over a fixture's graph.
func recognise(t *testing.T, f models.Fixture) (*graph.Graph, *blocks.Report) {
	t.Helper()
	b := must.Value(f.Bytes(1))(t)
	m := must.Value(model.Parse(b, ""))(t)
	g := must.Value(graph.New(m.Proto(), m))(t)
	must.Succeed(t, g.Complete())
	var report *blocks.Report
	must.Succeed(t, g.Bounded(t.Context(), func() error {
		report = blocks.Find(g, graph.Infer(g))
		return nil
	}))
	// Budgets are 20 times what graphs of exporters take and more.
	if steps, parts := g.Steps(); steps > 50*parts {
		t.Errorf("recognition takes %d steps for %d nodes, inputs and outputs", steps, parts)
	}
	return g, report
}

// fact is one line of the golden file.
type fact struct {
	Node  string            `json:"node"`
	Facts *blocks.Attention `json:"facts"`
	// of query, key, value and output; "packed" before them when one value holds the first three
	Layouts  string `json:"layouts"`
	Obstacle string `json:"obstacle,omitempty"`
}

func TestFactsOfFixtures(t *testing.T) {
	got := map[string][]string{}
	for _, f := range fixtures(t) {
		_, r := recognise(t, f)
		for _, b := range r.Blocks {
			w := b.Wiring
			layouts := fmt.Sprintf("%s %s %s %s", w.QueryLayout, w.KeyLayout, w.ValueLayout, w.OutputLayout)
			if w.Packed {
				layouts = "packed " + layouts
			}
			line := must.Value(json.Marshal(fact{b.Node, b.Attention, layouts, b.Obstacle}))(t)
			got[f.String()] = append(got[f.String()], string(line))
		}
		for _, u := range r.Unrecognised {
			must.Equal(t, f.Exporter, "families", u.Node, u.Reason)
			line := must.Value(json.Marshal(u))(t)
			got[f.String()] = append(got[f.String()], string(line))
		}
	}
	if *update {
		writeGolden(t, got)
	}
	b := must.Value(os.ReadFile(golden))(t)
	var raw map[string][]json.RawMessage
	must.Succeed(t, json.Unmarshal(b, &raw))
	want := map[string][]string{}
	for name, lines := range raw {
		for _, line := range lines {
			want[name] = append(want[name], string(line))
		}
	}
	must.Equal(t, cmp.Diff(want, got), "")
}

// writeGolden writes one block a line, so that changes can be read.
func writeGolden(t *testing.T, facts map[string][]string) {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("{\n")
	for i, f := range fixtures(t) {
		if i > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, "%q: [\n", f.String())
		for j, line := range facts[f.String()] {
			if j > 0 {
				b.WriteString(",\n")
			}
			b.WriteString(" " + line)
		}
		b.WriteString("\n]")
	}
	b.WriteString("\n}\n")
	must.Succeed(t, os.MkdirAll("testdata", 0o755))
	must.Succeed(t, os.WriteFile(golden, b.Bytes(), 0o644))
}

// TestEveryOperatorAccountedFor counts softmaxes and attention operators without
// the help of recognition.
func TestEveryOperatorAccountedFor(t *testing.T) {
	for _, f := range fixtures(t) {
		g, r := recognise(t, f)
		want := map[string]bool{}
		g.Walk(func(n *graph.Node) {
			if n.Op() == "Softmax" || blocks.IsAttentionOperator(n) {
				want[n.Path()] = true
			}
		})
		for _, b := range r.Blocks {
			if !want[b.Node] {
				t.Errorf("%s: %s is reported twice or is no attention", f, b.Node)
			}
			delete(want, b.Node)
		}
		for _, u := range r.Unrecognised {
			if !want[u.Node] {
				t.Errorf("%s: %s is reported twice or is no attention", f, u.Node)
			}
			delete(want, u.Node)
		}
		for node := range want {
			t.Errorf("%s: nothing is said of %s", f, node)
		}
	}
}

// config is what a model's own configuration says, under the names that the
// families give it.
type config struct {
	Type       string `json:"model_type"`
	NEmbd      int64  `json:"n_embd"`
	DModel     int64  `json:"d_model"`
	HiddenSize int64  `json:"hidden_size"`
	NHead      int64  `json:"n_head"`
	NumHeads   int64  `json:"num_heads"`
	Attention  int64  `json:"num_attention_heads"`
	Decoder    int64  `json:"decoder_attention_heads"`
	KeyValue   int64  `json:"num_key_value_heads"`
	DKV        int64  `json:"d_kv"`
	HeadDim    int64  `json:"head_dim"`
	GPT2Layers int    `json:"n_layer"`
	Layers     int    `json:"num_hidden_layers"`
	T5Layers   int    `json:"num_layers"`
}

func first[T int | int64](list ...T) T {
	for _, x := range list {
		if x != 0 {
			return x
		}
	}
	return 0
}

// TestFactsAreTrue holds the facts against the configuration that each model was
// made from, which the exporters' graphs do not carry.
func TestFactsAreTrue(t *testing.T) {
	// Of images positions have a table that is added as a whole: no index says what stands where.
	positions := map[string]string{"vit": "none", "gpt2": "learned", "bert": "learned", "bart": "learned",
		"whisper": "learned", "llama": "rotary", "t5": "relative"}
	for _, f := range fixtures(t) {
		if f.Exporter == "families" {
			continue // TestFactsOfFamilies
		}
		b := must.Value(f.ConfigJSON())(t)
		var c config
		must.Succeed(t, json.Unmarshal(b, &c))
		heads := first(c.NHead, c.NumHeads, c.Attention, c.Decoder)
		kv := first(c.KeyValue, heads)
		size := first(c.DKV, c.HeadDim, first(c.NEmbd, c.DModel, c.HiddenSize)/heads)
		_, r := recognise(t, f)
		if layers := first(c.GPT2Layers, c.Layers, c.T5Layers); len(r.Blocks)%layers != 0 || len(r.Blocks) == 0 {
			t.Errorf("%s: %d blocks for %d layers", f, len(r.Blocks), layers)
		}
		for _, b := range r.Blocks {
			a := b.Attention
			if a.Heads != heads || a.KVHeads != kv || a.HeadSize != size || a.ValueSize != size {
				t.Errorf("%s: %s has %d heads over %d of size %d and %d, the configuration says %d over %d of %d",
					f, b.Node, a.Heads, a.KVHeads, a.HeadSize, a.ValueSize, heads, kv, size)
			}
			scale := 0.25 // 1/sqrt(16)
			if c.Type == "t5" {
				scale = 1
			}
			if size != 16 || a.Scale < scale*(1-1e-6) || a.Scale > scale*(1+1e-6) {
				t.Errorf("%s: %s is scaled by %g, %s of head size %d by %g", f, b.Node, a.Scale, c.Type, size, scale)
			}
			want := positions[c.Type]
			if c.Type == "t5" && a.Type == "cross" {
				want = "none"
			}
			must.Equal(t, a.Positions, want, f, b.Node, c.Type)
			if a.Type == "cross" && (c.Type == "gpt2" || c.Type == "bert" || c.Type == "llama" || a.Causal || a.Past != nil) {
				t.Errorf("%s: %s: cross attention, causal %v, past %v", f, b.Node, a.Causal, a.Past)
			}
		}
	}
}
