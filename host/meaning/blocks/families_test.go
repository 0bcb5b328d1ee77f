package blocks_test

import (
	"cmp"
	"encoding/json"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestFactsOfFamilies holds heads and sizes against the configurations of the families that state them for all layers.
func TestFactsOfFamilies(t *testing.T) {
	held := 0
	for _, f := range fixtures(t) {
		if f.Exporter != "families" {
			continue
		}
		b := must.Value(f.ConfigJSON())(t)
		var c map[string]any
		must.Succeed(t, json.Unmarshal(b, &c))
		number := func(names ...string) int64 {
			for _, name := range names {
				if x, ok := c[name].(float64); ok {
					return int64(x)
				}
			}
			return 0
		}
		heads, width := number("num_attention_heads", "n_heads", "num_heads", "encoder_attention_heads"),
			number("hidden_size", "dim", "d_model")
		if c["num_heads"] != nil && number("num_heads") == 0 || heads == 0 || width == 0 {
			continue // of each layer its own
		}
		shared, size := cmp.Or(number("num_key_value_heads"), heads), cmp.Or(number("attention_head_dim"), width/heads)
		_, r := recognise(t, f)
		for _, b := range r.Blocks {
			held++
			if a := b.Attention; a.Heads != heads || a.KVHeads != shared || a.HeadSize != size || a.DType != "float32" {
				t.Errorf("%s: %s has %d heads over %d of size %d, the configuration says %d over %d of %d", f, b.Node, a.Heads,
					a.KVHeads, a.HeadSize, heads, shared, size)
			}
		}
	}
	if held < 40 {
		t.Errorf("%d blocks were held against configurations, need at least 40", held)
	}
}
