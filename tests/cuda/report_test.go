package cuda

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/internal/must"
)

const report = `ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN12_GLOBAL__N_14GeluIfLb1EEEvPKT_PS1_l' for 'sm_80'
ptxas info    : Function properties for _ZN12_GLOBAL__N_14GeluIfLb1EEEvPKT_PS1_l
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 0 barriers, 384 bytes cmem[0]
ptxas info    : Compile time = 14.368 ms
ptxas info    : Compiling entry function '_ZN5graft4cuda5flash4KernIN5graft4cuda4HalfELi64ELNS1_4ModeE2EEEvNS0_6ParamsE' for 'sm_90a'
ptxas info    : Function properties for _ZN5graft4cuda5flash4KernIN5graft4cuda4HalfELi64ELNS1_4ModeE2EEEvNS0_6ParamsE
    384 bytes stack frame, 700 bytes spill stores, 704 bytes spill loads
ptxas info    : Function properties for __internal_trig_reduction_slowpathf
    40 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Function properties for _ZN5graft4cuda5flash4KernIN5graft4cuda4HalfELi64ELNS1_4ModeE2EEEvNS0_6ParamsE
    384 bytes stack frame, 700 bytes spill stores, 704 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 424 bytes cumulative stack size, 1040 bytes smem
`

func TestParseReport(t *testing.T) {
	got := must.Value(ParseReport(strings.NewReader(report)))(t)
	must.Succeed(t, Demangle(got))
	want := []Resources{
		{Kernel: "Gelu<float,true>", Arch: "sm_80", Registers: 30},
		{Kernel: "Kern<Half,64,2>", Arch: "sm_90a", Registers: 255, Stack: 384, SpillStores: 700, SpillLoads: 704,
			Shared: 1040},
	}
	must.Equal(t, cmp.Diff(want, got), "")
}

func TestTornReports(t *testing.T) {
	lines := strings.SplitAfter(report, "\n")
	for _, c := range map[string]struct{ report, want string }{
		"ends early":       {strings.Join(lines[:4], ""), "ends before _ZN12"},
		"two at once":      {lines[1] + lines[6], "another kernel before _ZN12"},
		"other properties": {lines[1] + lines[7] + lines[3] + lines[4], "belong to no kernel"},
		"registers first":  {lines[4], "belong to no kernel"},
		"lost performance": {"ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are " +
			"serialized\n", "C7510"},
	} {
		must.Fail(t, must.Error(ParseReport(strings.NewReader(c.report))), c.want)
	}
}

func TestShortName(t *testing.T) {
	for from, want := range map[string]string{
		"Plain":                               "Plain",
		"Plain(float*)":                       "Plain",
		"void a::b::K<float, 3>(float*, int)": "K<float,3>",
		"void (anonymous namespace)::K<(bool)1, (a::Mode)2, a::Half>(a::P<(bool)0>)": "K<1,2,Half>",
		"void K<unsigned long>(unsigned long)":                                       "K<unsignedlong>",
	} {
		must.Equal(t, shortName(from), want, from)
	}
}
