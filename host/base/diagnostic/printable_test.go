package diagnostic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/internal/must"
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
		must.Equal(t, diagnostic.Printable(given), want, given)
		must.Equal(t, diagnostic.Printable(want), want)
	}
	must.Equal(t, diagnostic.PrintableLines("one\n  two\ngraft: \x1b forged\n"), "one\n  two\n  graft: \\x1b forged")
}

// JSON means what it did, and a terminal can be given it.
func TestPrintableJSON(t *testing.T) {
	s := "a\x1b\x7f\u009b\u202e\u200b\u2028\U000e0041\U0001f600 |<b> größe"
	data := must.Value(json.Marshal(map[string]string{s: s}))(t)
	safe := diagnostic.PrintableJSON(data)
	var back map[string]string
	if err := json.Unmarshal(safe, &back); err != nil || back[s] != s {
		t.Errorf("%s: found %q, %v", safe, back, err)
	}
	if got := string(safe); diagnostic.Printable(got) != got || !strings.Contains(got, "\U0001f600 ") ||
		!strings.Contains(got, " größe") {
		t.Errorf("found %q", got)
	}
}

// What is logged goes through it too, for every handler.
func TestLogger(t *testing.T) {
	const bad = "\x1b[31m\u202e\nforged\xff"
	const safe = `\x1b[31m\u202e\nforged\xff`
	for name, handler := range map[string]func(io.Writer) slog.Handler{
		"json": func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, nil) },
		"text": func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) },
		"own":  func(w io.Writer) slog.Handler { return plain{w} },
	} {
		var out bytes.Buffer
		l := diagnostic.Logger(slog.New(handler(&out)))
		l.With("folder", bad).WithGroup("g").Warn(bad, "model", bad, "reason", errors.New(bad), "blocks", 5,
			slog.Group("in", "name", bad))
		text := out.String()
		if line := strings.TrimSuffix(text, "\n"); diagnostic.Printable(line) != line ||
			strings.Count(strings.ReplaceAll(text, `\\`, `\`), safe) < 4 {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// plain is a handler that escapes nothing.
type plain struct{ w io.Writer }

func (p plain) Enabled(context.Context, slog.Level) bool { return true }
func (p plain) WithAttrs(attrs []slog.Attr) slog.Handler {
	fmt.Fprint(p.w, attrs, " ")
	return p
}
func (p plain) WithGroup(string) slog.Handler { return p }
func (p plain) Handle(_ context.Context, r slog.Record) error {
	fmt.Fprint(p.w, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprint(p.w, " ", a)
		return true
	})
	_, err := fmt.Fprintln(p.w)
	return err
}
