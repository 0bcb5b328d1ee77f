package capability

import (
	"fmt"
	"github.com/opgraft/graft/internal/must"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDocumented: abi/README.md has a row for each capability, with its signature, promise and error.
func TestDocumented(t *testing.T) {
	path := filepath.Join("..", "..", "..", "abi", "README.md")
	text := must.Value(os.ReadFile(path))(t)
	_, table, found := strings.Cut(string(text), "\n### Capabilities\n")
	table, _, _ = strings.Cut(table, "\n### ")
	if !found || strings.Count(table, "\n| `") != len(contracts)+1 {
		t.Errorf("%s: found another number of capabilities than %d", path, len(contracts))
	}
	for _, c := range contracts {
		row := fmt.Sprintf("\n| `%s` | %s &rarr; %s", c.Name, c.Inputs, c.Outputs)
		if c.Attributes != "" {
			row += "; attributes " + c.Attributes
		}
		_, rest, found := strings.Cut(table, row+" | ")
		rest, _, _ = strings.Cut(rest, " |\n")
		promise, exact, both := strings.Cut(rest, " | ")
		if !found || !both || promise == "" || exact == "" {
			t.Errorf("%s: needed a row of the capability with its promise and error that begins with%s", path, row)
		}
	}
}

// TestContracts: what belongs together names each other.
func TestContracts(t *testing.T) {
	for _, c := range contracts {
		if lead := Find(c.Leads); lead == nil || lead.Leads != lead.Name {
			t.Errorf("%s follows %s, which leads nothing", c.Name, c.Leads)
		}
		for _, needed := range c.Needs {
			if Find(needed) == nil || Find(needed).Leads != c.Leads {
				t.Errorf("%s needs %s, which is none of its plugin's", c.Name, needed)
			}
		}
		for _, list := range []string{c.Inputs, c.Outputs, c.Attributes} {
			for _, p := range Parameters(list) {
				if p.Name == "" || slices.Contains(p.Types, "") {
					t.Errorf("%s has a parameter %+v", c.Name, p)
				}
			}
		}
	}
	must.Equal(t, len(slices.Compact(slices.Sorted(slices.Values(Known())))), len(contracts), Known())
}
