package plugin

import (
	"errors"
	"testing"

	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/internal/must"
)

func TestOpenForCUDA(t *testing.T) {
	const need = ", needed a device and a driver for CUDA 13 or newer, as the library's ELF note says; "
	for _, test := range []struct{ machine, want string }{
		{"none", "found no such library (libcuda.so.1)" + need + "install it, or use the plugin's CPU variant"},
		{"12040 1", "found a driver for CUDA 12.4, needed one for CUDA 13 or newer, as the library's ELF note says; " +
			"install a newer NVIDIA driver, or use the plugin's CPU variant"},
		{"13000 0", "found a driver without a device" + need + "see nvidia-smi, or use the plugin's CPU variant"},
		{"13000 1", ""},
		{"14020 2", ""},
	} {
		t.Run(test.machine, func(t *testing.T) {
			plugintest.Play(t, test.machine)
			library, mark := plugintest.Marked(t)
			folder := plugintest.WriteBoth(t, plugintest.TwoVariants, plugintest.Build(t), library)
			p, err := Open(folder, OpenOptions{Device: "cuda", AcceptUnverified: true})
			if test.want != "" {
				must.FailExactly(t, err, folder+"/libtoy_cuda.so: "+test.want)
				must.Fail(t, err, refusal.ErrDevice, refusal.ErrIncompatible)
				if plugintest.Exists(mark) {
					t.Error("the library was loaded")
				}
				return
			}
			if err != nil || p.Info.Device != "cuda" || !plugintest.Exists(mark) {
				t.Fatalf("open: %v", err)
			}
			if score, _, err := p.Probe(tensor.Device{Kind: "cuda", Index: 1}); score != 50 || err != nil {
				t.Errorf("probe of its device: %d, %v", score, err)
			}
			if score, reason, err := p.Probe(tensor.CPU); score != 0 || reason == "" || err != nil {
				t.Errorf("probe of another: %d %q, %v", score, reason, err)
			}
			cpu, err := Open(folder, OpenOptions{AcceptUnverified: true})
			if err != nil || cpu.Info.Device != "cpu" || cpu.Path == p.Path {
				t.Errorf("the CPU variant beside it: %v", err)
			}
		})
	}
}

func TestOpenForCUDARefusals(t *testing.T) {
	plugintest.Play(t, "13000 1")
	plugintest.Places(t)
	folder := plugintest.WriteBoth(t, plugintest.TwoVariants, plugintest.Build(t), plugintest.Build(t, `-DFOR_CUDA=""`))
	_, err := Open(folder, OpenOptions{Device: "cuda", AcceptUnverified: true})
	want := folder +
		`/libtoy_cuda.so: found cuda="" in the ELF note of a CUDA library, needed the major version of CUDA that it is built for; build the library with the CMake function of abi/, which states it`
	must.FailExactly(t, err, want)
	library, mark := plugintest.Marked(t)
	folder = plugintest.WriteBoth(t, plugintest.TwoVariants, plugintest.Build(t), library)
	if _, err := Open(folder, OpenOptions{Device: "cuda"}); !errors.Is(err, refusal.ErrVerification) ||
		plugintest.Exists(mark) {
		t.Errorf("a library that was not verified: %v", err)
	}
	folder = plugintest.WriteBoth(t, plugintest.TwoVariants, plugintest.Build(t), "")
	must.Fail(t, must.Error(Open(folder, OpenOptions{Device: "cuda"})), refusal.ErrNotFound)
	// A variant need not have every operator of the plugin; what it has is for the planner to see.
	library = plugintest.Build(t, `-DFOR_CUDA="13"`, `-DOPERATOR_NAME="Other"`)
	p, err := Open(plugintest.WriteBoth(t, plugintest.TwoVariants, plugintest.Build(t), library),
		OpenOptions{Device: "cuda", AcceptUnverified: true})
	must.Succeed(t, err)
	must.Equal(t, p.Info.Operators[0].Name, "Other")
}
