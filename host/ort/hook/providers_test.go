package hook

import (
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// succeed makes ONNX Runtime's own functions of these slots succeed without doing anything, after
// the hook, which must stay installed until the test ends: a runtime for the CPU takes no provider of a GPU.
func succeed(t testing.TB, slots ...slot.Slot) {
	t.Helper()
	for _, s := range slots {
		at := library.API() + uintptr(s)*cmem.WordSize
		i := slices.IndexFunc(hookOf.Of(library).entries, func(e *entry) bool { return e.address == at })
		if i < 0 {
			t.Fatalf("slot %d is not hooked", s)
		}
		e := hookOf.Of(library).entries[i]
		own := e.original
		e.original = succeeds
		t.Cleanup(func() { e.original = own })
	}
}

var succeeds = purego.NewCallback(func() uintptr { return 0 })

// replaced writes a function into a slot that is not hooked.
func replaced(t testing.TB, s slot.Slot, callback any) {
	t.Helper()
	at, own, fake := library.API()+uintptr(s)*cmem.WordSize, library.Function(s), purego.NewCallback(callback)
	must.Succeed(t, replaceWord(at, own, fake))
	t.Cleanup(func() {
		if err := replaceWord(at, fake, own); err != nil {
			t.Error(err)
		}
	})
}

// watched installs a hook that holds what the last request said of its providers.
type watched struct {
	list      []ort.Appended
	automatic bool
}

func watch(t testing.TB) *watched {
	w := &watched{}
	install(t, Hook{Strict: true, Patcher: func(r session.Request) (*session.Patch, error) {
		w.list, w.automatic = r.Appended()
		return nil, nil
	}})
	return w
}

// cStrings gives a C array of C strings.
func cStrings(r *orttest.Raw, list ...string) uintptr {
	out := make([]uintptr, len(list))
	for i, s := range list {
		out[i] = r.Text(s)
	}
	r.Pins = append(r.Pins, out)
	return orttest.Address(out)
}

// TestAppended appends providers by each function that does, as another binding would.
func TestAppended(t *testing.T) {
	r := orttest.NewRaw(t)
	at, size := r.Bytes(orttest.Marshal(t, orttest.Unary("Relu")))
	cuda := []int32{3, 0}
	r.Pins = append(r.Pins, cuda)
	var devices, count uintptr
	if err := library.Try("GetEpDevices", slot.GetEpDevices, r.Env, uintptr(unsafe.Pointer(&devices)),
		uintptr(unsafe.Pointer(&count))); err != nil || count == 0 {
		t.Fatalf("%d devices, %v", count, err)
	}
	for _, test := range []struct {
		name string
		slot slot.Slot
		args []uintptr // after the options
		want ort.Appended
	}{
		{"CUDA", slot.SessionOptionsAppendExecutionProvider_CUDA, []uintptr{orttest.Address(cuda)},
			ort.Appended{Name: ort.CUDA, Device: 3}},
		{"CUDA, opaque options", slot.SessionOptionsAppendExecutionProvider_CUDA_V2, []uintptr{orttest.Address(cuda)},
			ort.Appended{Name: ort.CUDA, Device: 12}},
		{"ROCM", slot.SessionOptionsAppendExecutionProvider_ROCM, []uintptr{orttest.Address(cuda)},
			ort.Appended{Name: "ROCMExecutionProvider", Device: 3}},
		{"TensorRT", slot.SessionOptionsAppendExecutionProvider_TensorRT, []uintptr{orttest.Address(cuda)},
			ort.Appended{Name: "TensorrtExecutionProvider", Device: 3}},
		{"TensorRT, opaque options", slot.SessionOptionsAppendExecutionProvider_TensorRT_V2, []uintptr{orttest.Address(cuda)},
			ort.Appended{Name: "TensorrtExecutionProvider", Device: 0}},
		{"MIGraphX", slot.SessionOptionsAppendExecutionProvider_MIGraphX, []uintptr{orttest.Address(cuda)},
			ort.Appended{Name: "MIGraphXExecutionProvider", Device: 3}},
		{"CANN", slot.SessionOptionsAppendExecutionProvider_CANN, []uintptr{0},
			ort.Appended{Name: "CANNExecutionProvider", Device: 0}},
		{"OpenVINO", slot.SessionOptionsAppendExecutionProvider_OpenVINO, []uintptr{0},
			ort.Appended{Name: "OpenVINOExecutionProvider", Device: 0}},
		{"Dnnl", slot.SessionOptionsAppendExecutionProvider_Dnnl, []uintptr{0},
			ort.Appended{Name: "DnnlExecutionProvider", Device: 0}},
		{"OpenVINO, pairs", slot.SessionOptionsAppendExecutionProvider_OpenVINO_V2, []uintptr{0, 0, 0},
			ort.Appended{Name: "OpenVINOExecutionProvider", Device: 0}},
		{"VitisAI", slot.SessionOptionsAppendExecutionProvider_VitisAI, []uintptr{0, 0, 0},
			ort.Appended{Name: "VitisAIExecutionProvider", Device: 0}},
		{"by short name", slot.SessionOptionsAppendExecutionProvider,
			[]uintptr{r.Text("CUDA"), cStrings(r, "x", "device_id"), cStrings(r, "9", "5"), 2},
			ort.Appended{Name: ort.CUDA, Device: 5}},
		{"by full name", slot.SessionOptionsAppendExecutionProvider, []uintptr{r.Text("XNNPACKExecutionProvider"), 0, 0, 0},
			ort.Appended{Name: "XNNPACKExecutionProvider", Device: 0}},
		{"by device", slot.SessionOptionsAppendExecutionProvider_V2, []uintptr{r.Env, devices, 1, 0, 0, 0},
			ort.Appended{Name: "CPUExecutionProvider", Device: 0}},
		{"by device, with options", slot.SessionOptionsAppendExecutionProvider_V2,
			[]uintptr{r.Env, devices, 1, cStrings(r, "device_id"), cStrings(r, "2"), 1},
			ort.Appended{Name: "CPUExecutionProvider", Device: 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			seen := watch(t)
			succeed(t, test.slot)
			replaced(t, slot.GetCUDAProviderOptionsAsString, func(options, allocator, out uintptr) uintptr {
				text := []byte("arena_extend_strategy=kNextPowerOfTwo;device_id=12;x=y\x00")
				status := library.Call(slot.AllocatorAlloc, allocator, uintptr(len(text)), out)
				for i, c := range text {
					*(*byte)(cmem.Pointer(*cmem.WordAt(out) + uintptr(i))) = c
				}
				return status
			})
			options := r.Options()
			must.Succeed(t, library.Try("append", test.slot, append([]uintptr{options}, test.args...)...))
			clone := r.Word()
			must.Succeed(t, library.Try("CloneSessionOptions", slot.CloneSessionOptions, options,
				uintptr(unsafe.Pointer(clone))))
			// What the clone has must not depend on its original, which may be released first.
			hookOf.Of(library).given.Forget(options)
			must.Value(r.Session(slot.CreateSessionFromArray, at, size, *clone))(t)
			if !slices.Equal(seen.list, []ort.Appended{test.want}) || seen.automatic {
				t.Errorf("the clone has %v, automatic %v; want %v", seen.list, seen.automatic, test.want)
			}
			library.Call(slot.ReleaseSessionOptions, *clone)
			if list, _ := hookOf.Of(library).given.Of(*clone); list != nil {
				t.Errorf("after its release the address has %v", list)
			}
		})
	}
	for _, s := range []slot.Slot{slot.SessionOptionsSetEpSelectionPolicy,
		slot.SessionOptionsSetEpSelectionPolicyDelegate} {
		t.Run("automatic", func(t *testing.T) {
			seen := watch(t)
			succeed(t, s)
			options := r.Options()
			must.Succeed(t, library.Try("policy", s, options, 0, 0))
			must.Value(r.Session(slot.CreateSessionFromArray, at, size, options))(t)
			if !seen.automatic || len(seen.list) != 0 {
				t.Errorf("slot %d: %v, automatic %v", s, seen.list, seen.automatic)
			}
		})
	}
}

// TestAppendedInOrder: the order of preference, a provider once, and none that was refused.
func TestAppendedInOrder(t *testing.T) {
	r := orttest.NewRaw(t)
	at, size := r.Bytes(orttest.Marshal(t, orttest.Unary("Relu")))
	seen := watch(t)
	options := r.Options()
	if err := library.Try("append", slot.SessionOptionsAppendExecutionProvider, options, r.Text("NoSuch"), 0, 0,
		0); err == nil {
		t.Fatal("a provider that does not exist was taken")
	}
	if _, err := r.Session(slot.CreateSessionFromArray, at, size, options); err != nil || len(seen.list) != 0 {
		t.Fatalf("a refused provider: %v, %v", seen.list, err)
	}
	t.Run("append", func(t *testing.T) {
		succeed(t, slot.SessionOptionsAppendExecutionProvider)
		for _, name := range []string{"NvTensorRTRTX", "CUDA", "NvTensorRTRTX"} {
			must.Succeed(t, library.Try("append", slot.SessionOptionsAppendExecutionProvider, options, r.Text(name), 0, 0,
				0))
		}
	})
	must.Value(r.Session(slot.CreateSessionFromArray, at, size, options))(t)
	if want := []ort.Appended{{Name: "NvTensorRTRTXExecutionProvider", Device: 0},
		{Name: ort.CUDA, Device: 0}}; !slices.Equal(seen.list, want) {
		t.Errorf("got %v, want %v", seen.list, want)
	}
	if _, err := r.Session(slot.CreateSessionFromArray, at, size, 0); err != nil || len(seen.list) != 0 {
		t.Errorf("null options: %v, %v", seen.list, err)
	}
	must.Succeed(t, Uninstall(library))
	if list, _ := hookOf.Of(library).given.Of(options); list != nil {
		t.Errorf("after Uninstall: %v", list)
	}
}

// TestAppendedByAnAddressUsedAgain: options whose release went unseen leave nothing to new ones.
func TestAppendedByAnAddressUsedAgain(t *testing.T) {
	watch(t)
	r := orttest.NewRaw(t)
	out := r.Word()
	create := func() uintptr {
		t.Helper()
		must.Succeed(t, library.Try("CreateSessionOptions", slot.CreateSessionOptions, uintptr(unsafe.Pointer(out))))
		return *out
	}
	old := create()
	release := hookOf.Of(library).entries[slices.IndexFunc(hookOf.Of(library).entries,
		func(e *entry) bool { return e.name == "ReleaseSessionOptions" })].original
	for range 100 { // until the allocator gives the address again
		hookOf.Of(library).given.Add(old, ort.Appended{Name: ort.CUDA, Device: 0})
		purego.SyscallN(release, old)
		again := create()
		if list, _ := hookOf.Of(library).given.Of(again); list != nil {
			t.Fatalf("new options have %v", list)
		}
		if again == old {
			library.Call(slot.ReleaseSessionOptions, again)
			return
		}
		old = again
	}
	t.Error("no address came again: the test showed nothing")
}

// TestAppendedOfOwnSessions: from the options of this package, and from the config entries that
// ONNX Runtime leaves.
func TestAppendedOfOwnSessions(t *testing.T) {
	var list []ort.Appended
	content := orttest.Marshal(t, orttest.Unary("Relu"))
	o := session.Options{Patcher: func(r session.Request) (*session.Patch, error) {
		list, _ = r.Appended()
		return nil, nil
	}}
	o.Config = map[string]string{"ep.cudaexecutionprovider.device_id": "1", "ep.cudaexecutionprovider.x": "2",
		"ep.cpuexecutionprovider.y": "3"}
	orttest.Session(t, content, o)
	if !slices.Equal(list, []ort.Appended{{Name: ort.CUDA, Device: 1}}) {
		t.Errorf("config entries: %v", list)
	}
	install(t, Hook{Patcher: func(session.Request) (*session.Patch, error) { return nil, nil }})
	succeed(t, slot.SessionOptionsAppendExecutionProvider)
	o.Config, o.Providers = nil, []session.Provider{{Name: "XNNPACK"}}
	orttest.Session(t, content, o)
	if !slices.Equal(list, []ort.Appended{{Name: "XNNPACKExecutionProvider", Device: 0}}) {
		t.Errorf("a session of ours: %v", list)
	}
	_, err := session.FromBytes(library, content,
		session.Options{Providers: []session.Provider{{Name: "CUDA", Options: map[string]string{"device_id": "1"}}}})
	// A build with CUDA says that it cannot load its provider here, one without that it has none.
	if _, none := os.Stat("/dev/nvidiactl"); none != nil && (err == nil || !strings.Contains(err.Error(), "CUDA")) {
		t.Errorf("the CUDA provider on a machine without a GPU: %v", err)
	}
}
