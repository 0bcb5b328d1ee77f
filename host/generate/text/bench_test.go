package text

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// BenchmarkEncode encodes lines of varied Unicode, a hard case: cold is with a
// new word cache for every round, warm with one that has seen the lines.
func BenchmarkEncode(b *testing.B) {
	lines := testLines(b)
	bytes := 0
	for _, line := range lines {
		bytes += len(line)
	}
	for _, name := range kindNames(b) {
		tok := open(b, name)
		round := func(b *testing.B) {
			for _, line := range lines {
				must.Value(tok.Encode(b.Context(), line, EncodeOptions{}))(b)
			}
		}
		if h, ok := tok.codec.(*huggingFace); ok {
			b.Run(name+"/cold", func(b *testing.B) {
				b.SetBytes(int64(bytes))
				for b.Loop() {
					h.cache = newWordCache()
					round(b)
				}
			})
		}
		b.Run(name+"/warm", func(b *testing.B) {
			b.SetBytes(int64(bytes))
			for b.Loop() {
				round(b)
			}
		})
	}
}

// BenchmarkLongWord encodes one word of a megabyte: its cost must stay near
// linear, since the text of a request may have no spaces.
func BenchmarkLongWord(b *testing.B) {
	s := strings.Repeat("abcdefghij", 100_000)
	for _, name := range []string{"gpt2", "llama2", "t5", "marian", "cased"} {
		tok := open(b, name)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(s)))
			for b.Loop() {
				must.Value(tok.Encode(b.Context(), s, EncodeOptions{}))(b)
			}
		})
	}
}
