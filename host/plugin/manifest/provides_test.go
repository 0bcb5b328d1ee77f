package manifest

import (
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/internal/must"
)

func TestProvides(t *testing.T) {
	for _, c := range []struct{ name, operators, want string }{
		{"one", "[{name: A, provides: gelu/1}]", ""},
		{"several", "[{name: A, provides: [gelu/1, select-tokens/1]}]", ""},
		{"with what it needs", "[{name: A, provides: linear-panels/1}, {name: B, provides: pack-panels/1}]", ""},
		{"unknown", "[{name: A, provides: linear-panel/1}]",
			`provides is "linear-panel/1", which this graft does not know, needed one of ` +
				strings.Join(capability.Known(), ", ") + ` (did you mean "linear-panels/1"?)`},
		{"another version", "[{name: A, provides: gelu/7}]", `provides is "gelu/7", which this graft does not know`},
		{"without what it needs", "[{name: A, provides: linear-panels/1}]",
			"operator A provides linear-panels/1, which the host uses with pack-panels/1, and no operator of this manifest " +
				"provides that; add it"},
		{"twice", "[{name: A, provides: gelu/1}, {name: B, provides: gelu/1}]",
			"operators A and B both provide gelu/1; keep one"},
		{"a number", "[{name: A, provides: 1}]", "provides"},
	} {
		_, err := Parse("p", []byte(plugintest.Head+plugintest.Variants+"operators: "+c.operators+"\n"))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: found %v, needed %q", c.name, err, c.want)
		}
	}
}

// TestProvider: the cheapest that is not ruled out, of equals the first, and capabilities that belong together of one.
func TestProvider(t *testing.T) {
	linear := func(name, cost string) *Manifest {
		text := strings.Replace(plugintest.Head, "name: toy", "name: "+name, 1) + plugintest.Variants +
			"operators: [{name: A, provides: linear-panels/1" + cost + "}, {name: B, provides: pack-panels/1}]\n"
		m := must.Value(Parse("p", []byte(text)))(t)
		return m
	}
	slow := linear("slow", ", cost: {bandwidth: 0.5, flops: 0.5, overhead_us: 1}")
	fast := linear("fast", ", cost: {bandwidth: 0.5, flops: 0.6, overhead_us: 1}")
	panels := linear("panels", ", cost: {bandwidth: 0.1, flops: 0.1, overhead_us: 1}, "+
		"cost_in_panels: {bandwidth: 0.5, flops: 0.9, overhead_us: 1}")
	silent, twin := linear("silent", ""), linear("twin", ", cost: {bandwidth: 0.5, flops: 0.6, overhead_us: 1}")
	for _, c := range []struct {
		list []*Manifest
		out  []string
		want string
	}{
		{[]*Manifest{slow, fast}, nil, "fast"},
		{[]*Manifest{fast, slow, panels}, nil, "panels"},
		{[]*Manifest{fast, slow, panels}, []string{"panels"}, "fast"},
		{[]*Manifest{silent, slow}, nil, "slow"},
		{[]*Manifest{silent}, nil, "silent"},
		{[]*Manifest{fast, twin}, nil, "fast"},
		{[]*Manifest{twin, fast}, nil, "twin"},
		{[]*Manifest{fast}, []string{"fast"}, ""},
		{nil, nil, ""},
	} {
		for capability, operator := range map[string]string{capability.LinearPanels: "A", capability.PackPanels: "B"} {
			m, op := Provider(c.list, capability, func(name string) bool { return slices.Contains(c.out, name) })
			switch {
			case c.want == "" && m == nil && op == nil:
			case m == nil || m.Name != c.want || op.Name != operator:
				t.Errorf("%s of %d without %q: found %v, needed %s of %q", capability, len(c.list), c.out, m, operator, c.want)
			}
		}
	}
}
