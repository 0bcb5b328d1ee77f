package manifest

import (
	"math"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/internal/must"
)

// TestIntegerTimes: times of products with integers are whole and interpolate, or are refused.
func TestIntegerTimes(t *testing.T) {
	const times = "{bits: 4, accuracy_level: 0, cpu: avx2, gflops: 50, rows: [1, 3, 5], replaced: [10, 20, 30], " +
		"operator: [1, 2, 6]}"
	read := func(provides, times string) (*Manifest, error) {
		return Parse("p", []byte(plugintest.Head+plugintest.Variants+"operators:\n  - {name: A"+provides+
			", integer_times: ["+times+"]}\n  - {name: B, provides: pack-panels/1}\n"))
	}
	const linear = ", provides: linear-panels/1"
	for _, c := range []struct{ name, provides, old, new, want string }{
		{name: "whole", provides: linear},
		{"any CPU", linear, "avx2", "any", ""},
		{"of another operator", "", "", "", "operator A: integer_times stands without provides: linear-panels/1"},
		{"without rows", linear, "rows: [1, 3, 5], ", "", "integer_times[0].rows is missing"},
		{"another CPU", linear, "avx2", "sse", `integer_times[0].cpu is "sse", needed one of avx2, avx_vnni, avx512, neon, any`},
		{"another level", linear, "level: 0", "level: 2", "accuracy_level is 2, needed 4, or 0 for all others"},
		{"fewer times", linear, "[1, 2, 6]", "[1, 2]", "has 3 rows, 3 and 2 times"},
		{"rows that descend", linear, "[1, 3, 5]", "[1, 3, 2]", "rows that ascend"},
		{"no time", linear, "[1, 2, 6]", "[1, 0, 6]", "all above 0"},
		{"no operations", linear, "50", "0", "all above 0"},
	} {
		m, err := read(c.provides, strings.Replace(times, c.old, c.new, 1))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: found %v, needed %q", c.name, err, c.want)
		}
		if c.want == "" && err == nil && len(m.Operators[0].IntegerTimes) != 1 {
			t.Errorf("%s: found %+v", c.name, m.Operators[0])
		}
	}
	x := must.Value(read(linear, times))(t).Operators[0].IntegerTimes[0]
	for _, c := range []struct {
		rows     float64
		operator bool
		want     float64 // picoseconds a number
	}{{0.5, true, 1}, {1, false, 10}, {2, false, 15}, {4, true, 4}, {5, true, 6}, {7, true, 10}} {
		if got := x.Seconds(c.rows, 1000, 25e9, c.operator) * 1e12 / 1000 / 2; math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v rows: %v ps, want %v", c.rows, got, c.want)
		}
	}
}
