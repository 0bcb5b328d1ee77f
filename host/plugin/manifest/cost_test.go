package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestManifestCost: a manifest takes time and memory as its size says, whatever its YAML nests, repeats or refers to.
func TestManifestCost(t *testing.T) {
	const size = maxManifestBytes
	bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for i := range 20 {
		bomb += fmt.Sprintf("%c: &%c [*%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c]\n", 'b'+i, 'b'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i,
			'a'+i, 'a'+i, 'a'+i, 'a'+i)
	}
	var keys strings.Builder
	for i := range size / 16 {
		fmt.Fprintf(&keys, "key%d: value\n", i)
	}
	for name, text := range map[string]string{
		"aliases":   bomb,
		"list":      "operators: [" + strings.Repeat("a,", size/2) + "]\n",
		"mappings":  "operators: [" + strings.Repeat("{},", size/3) + "]\n",
		"depth":     strings.Repeat("[", size),
		"maps":      strings.Repeat("{a: ", size/4),
		"keys":      keys.String(),
		"one key":   strings.Repeat("name: x\n", size/8),
		"merges":    "a: &a {b: c}\n" + strings.Repeat("<<: *a\n", size/7),
		"documents": strings.Repeat("---\n", size/4),
		"comments":  strings.Repeat("#\n", size/2),
		"blocks":    strings.Repeat("- ", size/2),
		"lines":     "summary: |\n" + strings.Repeat(" \n", size/2),
	} {
		t.Run(name, func(t *testing.T) {
			must.CostLittle(t, len(text), func() {
				if _, err := Parse("p", []byte(text)); err == nil {
					t.Error("no error")
				}
			})
		})
	}
}
