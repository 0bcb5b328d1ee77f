package ort

import (
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/internal/must"
)

// succeed makes ONNX Runtime's own functions of these slots succeed without doing anything, after
// the hook, which must stay installed until the test ends: a runtime for the CPU takes no provider of a GPU.
func succeed(t testing.TB, slots ...slot) {
	t.Helper()
	for _, s := range slots {
		at := library.api + uintptr(s)*wordSize
		i := slices.IndexFunc(library.hook.entries, func(e *entry) bool { return e.address == at })
		if i < 0 {
			t.Fatalf("slot %d is not hooked", s)
		}
		e := library.hook.entries[i]
		own := e.original
		e.original = succeeds
		t.Cleanup(func() { e.original = own })
	}
}

var succeeds = purego.NewCallback(func() uintptr { return 0 })

// replaced writes a function into a slot that is not hooked.
func replaced(t testing.TB, s slot, callback any) {
	t.Helper()
	at, own, fake := library.api+uintptr(s)*wordSize, library.fn(s), purego.NewCallback(callback)
	must.Succeed(t, replaceWord(at, own, fake))
	t.Cleanup(func() {
		if err := replaceWord(at, fake, own); err != nil {
			t.Error(err)
		}
	})
}

// watched installs a hook that holds what the last request said of its providers.
type watched struct {
	list      []Appended
	automatic bool
}

func watch(t testing.TB) *watched {
	w := &watched{}
	install(t, Hook{Strict: true, Patcher: func(r Request) (*Patch, error) {
		w.list, w.automatic = r.Appended()
		return nil, nil
	}})
	return w
}

// strings gives a C array of C strings.
func (r *raw) strings(list ...string) uintptr {
	out := make([]uintptr, len(list))
	for i, s := range list {
		out[i] = r.text(s)
	}
	r.pins = append(r.pins, out)
	return address(out)
}

// TestAppended appends providers by each function that does, as another binding would.
func TestAppended(t *testing.T) {
	r := newRaw(t)
	at, size := r.bytes(marshal(t, unary("Relu")))
	cuda := []int32{3, 0}
	r.pins = append(r.pins, cuda)
	var devices, count uintptr
	const getEpDevices, alloc slot = 303, 75
	if err := library.try("GetEpDevices", getEpDevices, r.env, uintptr(unsafe.Pointer(&devices)),
		uintptr(unsafe.Pointer(&count))); err != nil || count == 0 {
		t.Fatalf("%d devices, %v", count, err)
	}
	for _, test := range []struct {
		name string
		slot slot
		args []uintptr // after the options
		want Appended
	}{
		{"CUDA", slotSessionOptionsAppendExecutionProvider_CUDA, []uintptr{address(cuda)}, Appended{CUDA, 3}},
		{"CUDA, opaque options", slotSessionOptionsAppendExecutionProvider_CUDA_V2, []uintptr{address(cuda)},
			Appended{CUDA, 12}},
		{"ROCM", slotSessionOptionsAppendExecutionProvider_ROCM, []uintptr{address(cuda)},
			Appended{"ROCMExecutionProvider", 3}},
		{"TensorRT", slotSessionOptionsAppendExecutionProvider_TensorRT, []uintptr{address(cuda)},
			Appended{"TensorrtExecutionProvider", 3}},
		{"TensorRT, opaque options", slotSessionOptionsAppendExecutionProvider_TensorRT_V2, []uintptr{address(cuda)},
			Appended{"TensorrtExecutionProvider", 0}},
		{"MIGraphX", slotSessionOptionsAppendExecutionProvider_MIGraphX, []uintptr{address(cuda)},
			Appended{"MIGraphXExecutionProvider", 3}},
		{"CANN", slotSessionOptionsAppendExecutionProvider_CANN, []uintptr{0}, Appended{"CANNExecutionProvider", 0}},
		{"OpenVINO", slotSessionOptionsAppendExecutionProvider_OpenVINO, []uintptr{0},
			Appended{"OpenVINOExecutionProvider", 0}},
		{"Dnnl", slotSessionOptionsAppendExecutionProvider_Dnnl, []uintptr{0}, Appended{"DnnlExecutionProvider", 0}},
		{"OpenVINO, pairs", slotSessionOptionsAppendExecutionProvider_OpenVINO_V2, []uintptr{0, 0, 0},
			Appended{"OpenVINOExecutionProvider", 0}},
		{"VitisAI", slotSessionOptionsAppendExecutionProvider_VitisAI, []uintptr{0, 0, 0},
			Appended{"VitisAIExecutionProvider", 0}},
		{"by short name", slotSessionOptionsAppendExecutionProvider,
			[]uintptr{r.text("CUDA"), r.strings("x", "device_id"), r.strings("9", "5"), 2}, Appended{CUDA, 5}},
		{"by full name", slotSessionOptionsAppendExecutionProvider, []uintptr{r.text("XNNPACKExecutionProvider"), 0, 0, 0},
			Appended{"XNNPACKExecutionProvider", 0}},
		{"by device", slotSessionOptionsAppendExecutionProvider_V2, []uintptr{r.env, devices, 1, 0, 0, 0},
			Appended{"CPUExecutionProvider", 0}},
		{"by device, with options", slotSessionOptionsAppendExecutionProvider_V2,
			[]uintptr{r.env, devices, 1, r.strings("device_id"), r.strings("2"), 1}, Appended{"CPUExecutionProvider", 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			seen := watch(t)
			succeed(t, test.slot)
			replaced(t, slotGetCUDAProviderOptionsAsString, func(options, allocator, out uintptr) uintptr {
				text := []byte("arena_extend_strategy=kNextPowerOfTwo;device_id=12;x=y\x00")
				status := library.call(alloc, allocator, uintptr(len(text)), out)
				for i, c := range text {
					*(*byte)(pointer(*wordAt(out) + uintptr(i))) = c
				}
				return status
			})
			options := r.options()
			must.Succeed(t, library.try("append", test.slot, append([]uintptr{options}, test.args...)...))
			clone := r.word()
			must.Succeed(t, library.try("CloneSessionOptions", slotCloneSessionOptions, options,
				uintptr(unsafe.Pointer(clone))))
			// What the clone has must not depend on its original, which may be released first.
			library.hook.appended.forget(options)
			must.Value(r.session(slotCreateSessionFromArray, at, size, *clone))(t)
			if !slices.Equal(seen.list, []Appended{test.want}) || seen.automatic {
				t.Errorf("the clone has %v, automatic %v; want %v", seen.list, seen.automatic, test.want)
			}
			library.call(slotReleaseSessionOptions, *clone)
			if list, _ := library.hook.appended.of(*clone); list != nil {
				t.Errorf("after its release the address has %v", list)
			}
		})
	}
	for _, s := range []slot{slotSessionOptionsSetEpSelectionPolicy, slotSessionOptionsSetEpSelectionPolicyDelegate} {
		t.Run("automatic", func(t *testing.T) {
			seen := watch(t)
			succeed(t, s)
			options := r.options()
			must.Succeed(t, library.try("policy", s, options, 0, 0))
			must.Value(r.session(slotCreateSessionFromArray, at, size, options))(t)
			if !seen.automatic || len(seen.list) != 0 {
				t.Errorf("slot %d: %v, automatic %v", s, seen.list, seen.automatic)
			}
		})
	}
}

// TestAppendedInOrder: the order of preference, a provider once, and none that was refused.
func TestAppendedInOrder(t *testing.T) {
	r := newRaw(t)
	at, size := r.bytes(marshal(t, unary("Relu")))
	seen := watch(t)
	options := r.options()
	if err := library.try("append", slotSessionOptionsAppendExecutionProvider, options, r.text("NoSuch"), 0, 0,
		0); err == nil {
		t.Fatal("a provider that does not exist was taken")
	}
	if _, err := r.session(slotCreateSessionFromArray, at, size, options); err != nil || len(seen.list) != 0 {
		t.Fatalf("a refused provider: %v, %v", seen.list, err)
	}
	t.Run("append", func(t *testing.T) {
		succeed(t, slotSessionOptionsAppendExecutionProvider)
		for _, name := range []string{"NvTensorRTRTX", "CUDA", "NvTensorRTRTX"} {
			must.Succeed(t, library.try("append", slotSessionOptionsAppendExecutionProvider, options, r.text(name), 0, 0,
				0))
		}
	})
	must.Value(r.session(slotCreateSessionFromArray, at, size, options))(t)
	if want := []Appended{{"NvTensorRTRTXExecutionProvider", 0}, {CUDA, 0}}; !slices.Equal(seen.list, want) {
		t.Errorf("got %v, want %v", seen.list, want)
	}
	if _, err := r.session(slotCreateSessionFromArray, at, size, 0); err != nil || len(seen.list) != 0 {
		t.Errorf("null options: %v, %v", seen.list, err)
	}
	must.Succeed(t, library.Uninstall())
	if list, _ := library.hook.appended.of(options); list != nil {
		t.Errorf("after Uninstall: %v", list)
	}
}

// TestAppendedByAnAddressUsedAgain: options whose release went unseen leave nothing to new ones.
func TestAppendedByAnAddressUsedAgain(t *testing.T) {
	watch(t)
	r := newRaw(t)
	out := r.word()
	create := func() uintptr {
		t.Helper()
		must.Succeed(t, library.try("CreateSessionOptions", slotCreateSessionOptions, uintptr(unsafe.Pointer(out))))
		return *out
	}
	old := create()
	release := library.hook.entries[slices.IndexFunc(library.hook.entries,
		func(e *entry) bool { return e.name == "ReleaseSessionOptions" })].original
	for range 100 { // until the allocator gives the address again
		library.hook.appended.add(old, Appended{CUDA, 0})
		purego.SyscallN(release, old)
		again := create()
		if list, _ := library.hook.appended.of(again); list != nil {
			t.Fatalf("new options have %v", list)
		}
		if again == old {
			library.call(slotReleaseSessionOptions, again)
			return
		}
		old = again
	}
	t.Error("no address came again: the test showed nothing")
}

// TestAppendedOfOwnSessions: from the options of this package, and from the config entries that
// ONNX Runtime leaves.
func TestAppendedOfOwnSessions(t *testing.T) {
	var list []Appended
	content := marshal(t, unary("Relu"))
	o := SessionOptions{Patcher: func(r Request) (*Patch, error) {
		list, _ = r.Appended()
		return nil, nil
	}}
	o.Config = map[string]string{"ep.cudaexecutionprovider.device_id": "1", "ep.cudaexecutionprovider.x": "2",
		"ep.cpuexecutionprovider.y": "3"}
	session(t, content, o)
	if !slices.Equal(list, []Appended{{CUDA, 1}}) {
		t.Errorf("config entries: %v", list)
	}
	install(t, Hook{Patcher: func(Request) (*Patch, error) { return nil, nil }})
	succeed(t, slotSessionOptionsAppendExecutionProvider)
	o.Config, o.Providers = nil, []Provider{{"XNNPACK", nil}}
	session(t, content, o)
	if !slices.Equal(list, []Appended{{"XNNPACKExecutionProvider", 0}}) {
		t.Errorf("a session of ours: %v", list)
	}
	_, err := library.NewSessionFromBytes(content,
		SessionOptions{Providers: []Provider{{"CUDA", map[string]string{"device_id": "1"}}}})
	// A build with CUDA says that it cannot load its provider here, one without that it has none.
	if _, none := os.Stat("/dev/nvidiactl"); none != nil && (err == nil || !strings.Contains(err.Error(), "CUDA")) {
		t.Errorf("the CUDA provider on a machine without a GPU: %v", err)
	}
}
