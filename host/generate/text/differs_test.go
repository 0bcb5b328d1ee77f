package text

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestDiffers: vocabularies are one where each id stands for the same token.
func TestDiffers(t *testing.T) {
	const from = "../../../models/g2p"
	data := must.Value(os.ReadFile(filepath.Join(from, "tokenizer.json")))(t)
	with := func(old, replacement string) *Tokenizer {
		dir := t.TempDir()
		changed := bytes.ReplaceAll(data, []byte(old), []byte(replacement))
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), changed, 0o644))
		x := must.Value(Open(dir))(t)
		return x
	}
	a := with("\x00", "")
	for _, c := range []struct{ name, old, replacement, says string }{
		{"the same", "\x00", "", ""},
		{"cut in another way", "[a-z'.-]", "[a-z'-]", ""},
		{"another token", `"AE1"`, `"AE9"`, `is "AE9", and "AE1" in `},
	} {
		got := with(c.old, c.replacement).Differs(a)
		if (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want %q", c.name, got, c.says)
		}
	}
	other := must.Value(Open("../../../models/tiny-gpt2"))(t)
	if got := other.Differs(a); !strings.HasPrefix(got, "token ") || got == a.Differs(other) {
		t.Errorf("%q and %q", got, a.Differs(other))
	}
}
