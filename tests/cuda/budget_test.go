package cuda

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/internal/must"
)

func TestCheckBudgets(t *testing.T) {
	const text = `# comment
Gelu<float,*>  32
Gelu<*>        40      # the rest
Tile<*,128>    255  64  16
`
	for name, c := range map[string]struct {
		kernels []Resources
		want    []string
	}{
		"within": {[]Resources{
			{Kernel: "Gelu<float,1>", Arch: "sm_80", Registers: 32},
			{Kernel: "Gelu<Half,1>", Arch: "sm_80", Registers: 40},
			{Kernel: "Tile<Half,128>", Arch: "sm_90", Registers: 255, SpillStores: 64, SpillLoads: 60, Stack: 80},
		}, nil},
		"over": {[]Resources{
			{Kernel: "Gelu<float,1>", Arch: "sm_80", Registers: 33},
			{Kernel: "Gelu<Half,1>", Arch: "sm_90a", Registers: 40, SpillLoads: 4, Stack: 8},
			{Kernel: "Tile<Half,128>", Arch: "sm_90", Registers: 1, SpillStores: 68, Stack: 81},
		}, []string{
			"Gelu<float,1> on sm_80: found 33 registers, line 2 allows 32",
			"Gelu<Half,1> on sm_90a: found 4 bytes of spills, line 3 allows 0",
			"Gelu<Half,1> on sm_90a: found 8 bytes of stack, line 3 allows 0",
			"Tile<Half,128> on sm_90: found 68 bytes of spills, line 4 allows 64",
			"Tile<Half,128> on sm_90: found 81 bytes of stack, line 4 allows 80",
		}},
		"not listed, and lines left over": {[]Resources{{Kernel: "Tile<Half,64>", Arch: "sm_90", Registers: 12}}, []string{
			"Tile<Half,64> on sm_90: found no budget; it uses 12 registers, 0 bytes of spills: add a line",
			"line 2: no kernel is called Gelu<float,*>: remove the line",
			"line 3: no kernel is called Gelu<*>: remove the line",
			"line 4: no kernel is called Tile<*,128>: remove the line",
		}},
	} {
		budgets := must.Value(ParseBudgets(strings.NewReader(text)))(t)
		must.Equal(t, cmp.Diff(c.want, CheckBudgets(budgets, c.kernels, true)), "", name)
	}
}

func TestFaultyBudgets(t *testing.T) {
	for line, want := range map[string]string{
		"Gelu":           "found 1 fields",
		"Gelu 1 2 3 4":   "found 5 fields",
		"Gelu many":      `found "many"`,
		"Gelu 32 -1":     `found "-1"`,
		"Gelu 32 1x":     `found "1x"`,
		"Gelu 256":       "found 256 registers",
		"#\n\nGelu 0 # ": "line 3: found 0 registers",
	} {
		must.Fail(t, must.Error(ParseBudgets(strings.NewReader(line))), want)
	}
}
