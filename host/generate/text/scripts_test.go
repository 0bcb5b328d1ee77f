package text

import (
	"hash/crc32"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestUnicodeScripts compares the parts of every line, and of a text of all code points, with what tokenizers 0.22.2
// makes of them:
//
//	every = "".join(map(chr, [*range(0xd800), *range(0xe000, 0x110000)]))
//	lines = json.load(gzip.open("testdata/lines.json.gz")) + [every]
//	split = tokenizers.pre_tokenizers.UnicodeScripts().pre_tokenize_str
//	parts = [part for line in lines for part, _ in split(line)]
//	len(parts), zlib.crc32("\0".join(parts).encode())
func TestUnicodeScripts(t *testing.T) {
	var all strings.Builder
	for r := rune(0); r < 0x110000; r++ {
		if r < 0xd800 || r >= 0xe000 {
			all.WriteRune(r)
		}
	}
	var parts []string
	for _, line := range append(testLines(t), all.String()) {
		split := unicodeScripts{}.into(newBudget(len(line)), func(p piece) error {
			parts = append(parts, p.s)
			return nil
		})
		must.Succeed(t, split(piece{s: line, id: -1}))
	}
	must.Equal(t, len(parts), 84533)
	must.Equal(t, crc32.ChecksumIEEE([]byte(strings.Join(parts, "\x00"))), uint32(0xee2d35a9))
}
