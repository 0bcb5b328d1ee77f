package loaded

import (
	"testing"

	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/internal/must"
)

// TestSignaturesOfVariants: a variant that describes an operator otherwise is refused before ONNX Runtime, which
// would refuse every operator of that name, sees it.
func TestSignaturesOfVariants(t *testing.T) {
	variant := func(device string, inputs ...string) *plugin.Plugin {
		op := signature.Operator{Name: "Join"}
		for _, name := range inputs {
			op.Inputs = append(op.Inputs, signature.Parameter{Name: name})
		}
		return &plugin.Plugin{Path: "/p/lib_" + device + ".so", Manifest: &manifest.Manifest{Name: "p"},
			Info: &plugin.Info{Operators: []signature.Operator{op, {Name: device}}}}
	}
	cpu := []*plugin.Plugin{variant("cpu", "a", "b")}
	must.Succeed(t, sameSignatures(variant("cuda", "a", "b"), cpu))
	must.Succeed(t, sameSignatures(variant("cuda", "a"), nil), "a variant alone")
	want := "/p/lib_cuda.so: found another signature of operator Join than in /p/lib_cpu.so: 2 inputs in one, 1 in the " +
		"other, needed equal inputs, outputs and attributes; build all variants of the plugin from the same source"
	must.FailExactly(t, sameSignatures(variant("cuda", "a"), cpu), want)
}
