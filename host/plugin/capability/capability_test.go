package capability

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of abi/README.md anew")

// rows are the capabilities as authors read them.
func rows() string {
	var b strings.Builder
	b.WriteString("| `provides` | signature | promise | error |\n|---|---|---|---|\n")
	for _, c := range contracts {
		fmt.Fprintf(&b, "| `%s` | %s &rarr; %s", c.Name, parameters(c.Inputs), parameters(c.Outputs))
		var attributes []string
		for _, a := range c.Attributes {
			name := a.Name + " " + a.Kind
			if a.Extra {
				name = "[" + name + "]"
			}
			attributes = append(attributes, name)
		}
		if attributes != nil {
			b.WriteString("; attributes " + strings.Join(attributes, ", "))
		}
		promise := c.Promise
		if c.Needs != nil {
			promise += ". With " + strings.Join(c.Needs, " and ")
		}
		fmt.Fprintf(&b, " | %s | %s |\n", promise, c.Error)
	}
	return b.String()
}

func parameters(list []Parameter) string {
	var names []string
	for _, p := range list {
		name := p.Name
		if len(p.Types) < 5 {
			name += " " + strings.Join(p.Types, "/")
		}
		switch {
		case p.Extra:
			name = "[[" + name + "]]"
		case p.Optional:
			name = "[" + name + "]"
		case p.Variadic:
			name += " ..."
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// TestDocumented: abi/README.md has the table of capabilities.
func TestDocumented(t *testing.T) {
	path := filepath.Join("..", "..", "..", "abi", "README.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const before, after = "<!-- capabilities -->\n", "<!-- /capabilities -->\n"
	head, rest, _ := strings.Cut(string(text), before)
	found, tail, ok := strings.Cut(rest, after)
	if !ok {
		t.Fatalf("%s: found no table between%sand%s", path, before, after)
	}
	if *update {
		text := head + before + rows() + after + tail
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if found != rows() {
		t.Errorf("%s: found another table than that of the contracts, needed\n%s\nrun go test ./host/plugin/capability -update",
			path, rows())
	}
}

// TestContracts: what belongs together names each other.
func TestContracts(t *testing.T) {
	for _, c := range contracts {
		if lead := Find(c.Leads); lead == nil || lead.Leads != lead.Name {
			t.Errorf("%s follows %s, which leads nothing", c.Name, c.Leads)
		}
		if !strings.HasSuffix(c.Name, "/1") || c.Promise == "" || c.Error == "" {
			t.Errorf("%s has no version, promise or error", c.Name)
		}
		for _, needed := range c.Needs {
			if Find(needed) == nil || Find(needed).Leads != c.Leads {
				t.Errorf("%s needs %s, which is none of its plugin's", c.Name, needed)
			}
		}
	}
	if names := slices.Compact(slices.Sorted(slices.Values(Known()))); len(names) != len(contracts) {
		t.Errorf("found %q, needed each name once", Known())
	}
}
