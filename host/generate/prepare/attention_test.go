package prepare

import (
	"testing"

	"github.com/opgraft/graft/host/plan"
)

func TestParseAttention(t *testing.T) {
	for _, c := range []struct {
		text  string
		want  Attention
		found string // the error
	}{
		{text: "keys_values", want: Attention{Self: plan.KeysValues, Cross: plan.KeysValues}},
		{text: "keys", want: Attention{Self: plan.Keys, Cross: plan.Keys}},
		{text: "hidden_states", want: Attention{Self: plan.HiddenStates, Cross: plan.PromptHiddenStates}},
		{text: "first_layer_keys", want: Attention{Self: plan.Keys, Cross: plan.FirstLayerKeys}},
		{text: "cross=prompt_hidden_states", want: Attention{Cross: plan.PromptHiddenStates}},
		{text: "self=keys:skip=1e-3,cross=first_layer_keys:float16",
			want: Attention{Self: plan.Keys, Cross: plan.FirstLayerKeys, Skip: 1e-3, Storage: plan.Float16}},
		// of cross attention
		{text: "self=keys_values:bfloat16", want: Attention{Self: plan.KeysValues, Storage: plan.BFloat16}},
		{text: "keys_values:float32", want: Attention{Self: plan.KeysValues, Cross: plan.KeysValues, Storage: plan.Float32}},
		{text: "",
			found: `"" is no KV-cache strategy, needed is one of [keys_values prompt_hidden_states keys hidden_states first_layer_keys]`},
		{text: "keys,",
			found: `"" is no KV-cache strategy, needed is one of [keys_values prompt_hidden_states keys hidden_states first_layer_keys]`},
		{text: "exported", found: "exported is no strategy of an engine; compare with --baseline"},
		{text: "self=first_layer_keys", found: "self attention cannot use first_layer_keys"},
		{text: "cross=hidden_states", found: "cross attention cannot use hidden_states"},
		{text: "both=keys", found: `"both" is no kind of attention, needed is self or cross`},
		{text: "keys,self=hidden_states", found: "keys and hidden_states are both named for the same layers"},
		{text: "cross=keys,cross=prompt_hidden_states",
			found: "keys and prompt_hidden_states are both named for the same layers"},
		{text: "keys_values:int8", want: Attention{Self: plan.KeysValues, Cross: plan.KeysValues, Storage: plan.Int8}},
		{text: "keys:float8", found: `"float8" is not understood, needed is float32, float16, bfloat16, int8 or skip=P`},
		{text: "keys:skip=1", found: `skip is "1", needed is a probability below 1`},
		{text: "keys:skip=NaN", found: `skip is "NaN", needed is a probability below 1`},
		{text: "keys:skip=", found: `skip is "", needed is a probability below 1`},
		{text: "prompt_hidden_states:skip=0.1",
			found: "skip leaves out values where keys are stored alone, and neither prompt_hidden_states nor " +
				"prompt_hidden_states stores those"},
	} {
		got, err := ParseAttention(c.text, nil)
		switch {
		case c.found != "" && (err == nil || err.Error() != c.found):
			t.Errorf("%q: found %v, want %s", c.text, err, c.found)
		case c.found == "" && err != nil:
			t.Errorf("%q: %v", c.text, err)
		case c.found == "" && (got.Self != c.want.Self || got.Cross != c.want.Cross || got.Storage != c.want.Storage ||
			got.Skip != c.want.Skip):
			t.Errorf("%q: %+v, want %+v", c.text, got, c.want)
		}
	}
}
