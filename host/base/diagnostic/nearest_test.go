package diagnostic_test

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/internal/must"
)

func TestNearest(t *testing.T) {
	operators := []string{"FlashAttention", "FlashDecode", "SlimAttention"}
	for _, c := range []struct {
		name  string
		among []string
		want  string
	}{
		{"FlashDecode", operators, "FlashDecode"},
		{"flashdecode", operators, "FlashDecode"},            // another case
		{"FlashDecoder", operators, "FlashDecode"},           // a letter more
		{"FlshDecode", operators, "FlashDecode"},             // a letter less
		{"FlashDecoed", operators, "FlashDecode"},            // two letters swapped
		{"SlashAttention", operators, "FlashAttention"},      // a letter changed; the nearest of two
		{"Softmax", operators, ""},                           // no slip
		{"licence", []string{"license", "lines"}, "license"}, // not the other
		{"fasst", []string{"Fast"}, "Fast"},
		{"abc", []string{"abd", "xbc"}, ""},     // a third of the letters
		{"abcd", []string{"abd", "acd"}, "abd"}, // the first of equals
		{"", operators, ""},
		{"x", nil, ""},
		{strings.Repeat("x", 1<<20), operators, ""},
	} {
		must.Equal(t, diagnostic.Nearest(c.name, c.among), c.want, diagnostic.Clip(c.name))
	}
}
