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
		{text: "flash-decode", want: Attention{Self: plan.KeepKeysAndValues, Cross: plan.KeepKeysAndValues}},
		{text: "slim-attention", want: Attention{Self: plan.KeepKeys, Cross: plan.KeepKeys}},
		{text: "slim-inputs", want: Attention{Self: plan.KeepInputs, Cross: plan.KeepLatent}},
		{text: "slim-hybrid", want: Attention{Self: plan.KeepKeys, Cross: plan.KeepFirstKeys}},
		{text: "cross=el-attention", want: Attention{Cross: plan.KeepLatent}},
		{text: "self=slim-keys:skip=1e-3,cross=slim-hybrid:float16", want: Attention{Self: plan.KeepKeys, Cross: plan.KeepFirstKeys, Skip: 1e-3, Storage: plan.Float16}},
		{text: "self=flash-decode:bfloat16", want: Attention{Self: plan.KeepKeysAndValues, Storage: plan.BFloat16}}, // of cross attention
		{text: "flash-decode:float32", want: Attention{Self: plan.KeepKeysAndValues, Cross: plan.KeepKeysAndValues, Storage: plan.Float32}},
		{text: "", found: `"" is no way of keeping a cache, needed is one of [flash-decode el-attention slim-keys slim-inputs slim-hybrid]`},
		{text: "slim-keys,", found: `"" is no way of keeping a cache, needed is one of [flash-decode el-attention slim-keys slim-inputs slim-hybrid]`},
		{text: "plain", found: "an engine keeps nothing as the model was exported; compare with --baseline"},
		{text: "self=slim-hybrid", found: "self attention cannot keep what slim-hybrid does"},
		{text: "cross=slim-inputs", found: "cross attention cannot keep what slim-inputs does"},
		{text: "both=slim-keys", found: `"both" is no kind of attention, needed is self or cross`},
		{text: "slim-keys,self=slim-inputs", found: "slim-keys and slim-inputs are both named for the same layers"},
		{text: "cross=slim-keys,cross=el-attention", found: "slim-keys and el-attention are both named for the same layers"},
		{text: "slim-keys:float8", found: `"float8" is not understood, needed is float32, float16, bfloat16 or skip=P`},
		{text: "slim-keys:skip=1", found: `skip is "1", needed is a probability below 1`},
		{text: "slim-keys:skip=NaN", found: `skip is "NaN", needed is a probability below 1`},
		{text: "slim-keys:skip=", found: `skip is "", needed is a probability below 1`},
		{text: "el-attention:skip=0.1", found: "skip leaves out values of keys that are kept alone, and neither el-attention nor el-attention keeps those"},
		{text: "flash-decode:float16", found: "flash-decode keeps keys and values, which are float32 always, not float16"},
	} {
		got, err := ParseAttention(c.text, nil)
		switch {
		case c.found != "" && (err == nil || err.Error() != c.found):
			t.Errorf("%q: found %v, want %s", c.text, err, c.found)
		case c.found == "" && err != nil:
			t.Errorf("%q: %v", c.text, err)
		case c.found == "" && (got.Self != c.want.Self || got.Cross != c.want.Cross || got.Storage != c.want.Storage || got.Skip != c.want.Skip):
			t.Errorf("%q: %+v, want %+v", c.text, got, c.want)
		}
	}
}
