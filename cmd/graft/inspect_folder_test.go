package main

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plan"
)

// TestInspectedFolder: what is decided by each request is not said to be one of the strategies.
func TestInspectedFolder(t *testing.T) {
	cross := plan.Layers{Type: "cross", Layers: 1}
	r := folderInspection{
		Attention: []attentionKind{{Layers: cross, Chosen: "keys_values", PerRequest: true,
			Reason: "each request's shape decides: prompt_hidden_states at 9 of 64 shapes, keys_values at the others"}},
		Layers: []plan.LayerStrategy{{Type: "cross", Strategy: plan.PromptHiddenStates},
			{Type: "self", Strategy: plan.Keys}},
	}
	var w page
	r.text(&w)
	text := w.text.String()
	for _, want := range []string{"1 of cross attention: each request's shape decides\n", "1 of self attention: keys\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for _, never := range []string{"keys_values: each", "cross attention: prompt_hidden_states"} {
		if strings.Contains(text, never) {
			t.Errorf("%q is in\n%s", never, text)
		}
	}
}
