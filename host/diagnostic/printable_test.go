package diagnostic_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/diagnostic"
)

// What a terminal would act on, and what a reader would not see, stands as an escape; all else stays.
func TestPrintable(t *testing.T) {
	for given, want := range map[string]string{
		"past_key_values.0.key":      "past_key_values.0.key",
		"größe 長さ \u00a0 |<b>`'\"\\": "größe 長さ \u00a0 |<b>`'\"\\",
		"\x1b[31mred":                `\x1b[31mred`,
		"a\nb\r\tc\x00\x7f":          `a\nb\r\tc\x00\x7f`,
		"c1 \u009b31m":               `c1 \u009b31m`,
		"bidi \u202e\u2066x":         `bidi \u202e\u2066x`,
		"zero\u200bwidth\ufeff":      `zero\u200bwidth\ufeff`,
		"lines\u2028\u2029":          `lines\u2028\u2029`,
		"tags \U000e0041":            `tags \U000e0041`,
		"bytes \xff\xc3 \ufffd":      "bytes \\xff\\xc3 \ufffd",
	} {
		if got := diagnostic.Printable(given); got != want {
			t.Errorf("%q became %q, want %q", given, got, want)
		}
		if got := diagnostic.Printable(want); got != want {
			t.Errorf("%q became %q, want it as it was", want, got)
		}
	}
	if got := diagnostic.PrintableLines("one\n  two\ngraft: \x1b forged\n"); got != "one\n  two\n  graft: \\x1b forged" {
		t.Errorf("lines became %q", got)
	}
}

// JSON means what it did, and a terminal can be given it.
func TestPrintableJSON(t *testing.T) {
	s := "a\x1b\x7f\u009b\u202e\u200b\u2028\U000e0041\U0001f600 |<b> größe"
	data, err := json.Marshal(map[string]string{s: s})
	if err != nil {
		t.Fatal(err)
	}
	safe := diagnostic.PrintableJSON(data)
	var back map[string]string
	if err := json.Unmarshal(safe, &back); err != nil || back[s] != s {
		t.Errorf("%s: found %q, %v", safe, back, err)
	}
	if got := string(safe); diagnostic.Printable(got) != got || !strings.Contains(got, "\U0001f600 ") || !strings.Contains(got, " größe") {
		t.Errorf("found %q", got)
	}
}
