package ort

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/cuda/signals"
)

// CUDA is the name of ONNX Runtime's execution provider for NVIDIA GPUs.
const CUDA = "CUDAExecutionProvider"

// An Appended is an execution provider that session options were given.
type Appended struct {
	Name   string // in full, "CUDAExecutionProvider"
	Device int    // number of its device; 0 where the options name none
}

// Appended are the providers of a session, in order of preference. ONNX Runtime's C API takes
// providers and does not tell them, so they are those that
//
//   - this package appended for a session of its own,
//   - any binding appended through the C API while a hook was installed, or
//   - left their options in the session's config entries (those appended by name or by device).
//
// Providers that were appended before a hook was installed, and those of the exported functions
// beside the table (OrtSessionOptionsAppendExecutionProvider_CUDA), are not seen. automatic reports
// that ONNX Runtime was asked to choose providers itself.
func (r Request) Appended() (list []Appended, automatic bool) {
	list, automatic = r.Library.hook.appended.of(r.options)
	list = slices.Clone(list)
	for _, p := range r.own {
		list = appendNew(list, p)
	}
	entries, err := r.ConfigEntries()
	if err != nil {
		return list, automatic
	}
	const prefix = "ep.cudaexecutionprovider."
	found := Appended{Name: CUDA, Device: deviceNumber(entries[prefix+"device_id"])}
	for key := range entries {
		if strings.HasPrefix(key, prefix) {
			list = appendNew(list, found)
			break
		}
	}
	return list, automatic
}

// foreign reports that a session has providers besides the CPU's, which are libraries of their own.
func (c creation) foreign(l *Library) bool {
	list, automatic := c.request(l).Appended()
	return automatic || len(list) > 0
}

// withSignals makes a call of ONNX Runtime that may start a provider's driver. CUDA's takes signal handlers that
// Go needs.
func withSignals(foreign bool, f func()) {
	if foreign {
		signals.Preserve(f)
		return
	}
	f()
}

// appendNew appends a provider that is not in the list: the first of a name counts, as in ONNX Runtime.
func appendNew(list []Appended, p Appended) []Appended {
	if slices.ContainsFunc(list, func(q Appended) bool { return q.Name == p.Name }) {
		return list
	}
	return append(list, p)
}

// providerName is a provider's name in full: where ONNX Runtime takes short ones, they lack the end.
func providerName(name string) string {
	const end = "ExecutionProvider"
	if strings.HasSuffix(name, end) {
		return name
	}
	return name + end
}

func deviceNumber(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// appendedTo notes by the address of an OrtSessionOptions what was appended to it.
type appendedTo struct {
	mu    sync.Mutex
	notes map[uintptr]appendedNote
}

type appendedNote struct {
	list      []Appended
	automatic bool
	lends     bool // weights in memory that the program may take away once a session is made
	seen      bool // since the options were made, or what they are a copy of
	noArena   bool
}

func (a *appendedTo) lends(options uintptr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.notes[options].lends
}

// arena reports that a session has an arena, as far as its options' whole story is known.
func (a *appendedTo) arena(options uintptr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.notes[options]
	return n.seen && !n.noArena
}

func (a *appendedTo) of(options uintptr) (list []Appended, automatic bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.notes[options]
	return n.list, n.automatic
}

func (a *appendedTo) change(options uintptr, change func(*appendedNote)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.notes == nil {
		a.notes = map[uintptr]appendedNote{}
	}
	n := a.notes[options]
	change(&n)
	a.notes[options] = n
}

func (a *appendedTo) add(options uintptr, p Appended) {
	a.change(options, func(n *appendedNote) { n.list = appendNew(n.list, p) })
}

// copy notes for a clone what its original has.
func (a *appendedTo) copy(from, to uintptr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, ok := a.notes[from]
	if !ok {
		delete(a.notes, to)
		return
	}
	n.list = slices.Clone(n.list)
	a.notes[to] = n
}

// forget drops the note of an address, which may come to name other options.
func (a *appendedTo) forget(options uintptr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.notes, options)
}

// clear drops all notes: without a hook, releases go unseen and addresses are used again.
func (a *appendedTo) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.notes)
}

// watchOptions replaces the functions by which session options come to have providers, are copied
// and go away. Each calls ONNX Runtime's own function first and notes what succeeded.
func (h *hook) watchOptions(add func(name string, table uintptr, index int, callback any) *entry) {
	l, notes := h.library, &h.appended
	replace := func(name string, s slot, callback func(original func(args ...uintptr) uintptr) any) {
		var e *entry
		e = add(name, l.api, int(s), callback(func(args ...uintptr) uintptr {
			r, _, _ := purego.SyscallN(e.original, args...)
			return r
		}))
	}
	// A provider's library is loaded by the call that appends it, and may take Go's signal handlers.
	watch := func(name string, s slot, callback func(original func(args ...uintptr) uintptr) any) {
		replace(name, s, func(original func(args ...uintptr) uintptr) any {
			return callback(func(args ...uintptr) (status uintptr) {
				signals.Preserve(func() { status = original(args...) })
				return status
			})
		})
	}

	// By a function of the provider's own, with a struct of its options.
	for _, p := range []struct {
		slot   slot
		name   string
		device func(options uintptr) int // of the struct; nil where nothing asks for it
	}{
		{slotSessionOptionsAppendExecutionProvider_CUDA, "CUDA", firstMember},
		{slotSessionOptionsAppendExecutionProvider_CUDA_V2, "CUDA", l.cudaDevice},
		{slotSessionOptionsAppendExecutionProvider_ROCM, "ROCM", firstMember},
		{slotSessionOptionsAppendExecutionProvider_TensorRT, "Tensorrt", firstMember},
		{slotSessionOptionsAppendExecutionProvider_TensorRT_V2, "Tensorrt", nil},
		{slotSessionOptionsAppendExecutionProvider_MIGraphX, "MIGraphX", firstMember},
		{slotSessionOptionsAppendExecutionProvider_CANN, "CANN", nil},
		{slotSessionOptionsAppendExecutionProvider_OpenVINO, "OpenVINO", nil},
		{slotSessionOptionsAppendExecutionProvider_Dnnl, "Dnnl", nil},
	} {
		watch("SessionOptionsAppendExecutionProvider "+p.name, p.slot, func(original func(...uintptr) uintptr) any {
			return func(options, provider uintptr) uintptr {
				status := original(options, provider)
				if status == 0 {
					appended := Appended{Name: providerName(p.name)}
					if p.device != nil {
						appended.Device = p.device(provider)
					}
					notes.add(options, appended)
				}
				return status
			}
		})
	}
	for _, p := range []struct {
		slot slot
		name string
	}{
		{slotSessionOptionsAppendExecutionProvider_OpenVINO_V2, "OpenVINO"},
		{slotSessionOptionsAppendExecutionProvider_VitisAI, "VitisAI"},
	} {
		watch("SessionOptionsAppendExecutionProvider "+p.name, p.slot, func(original func(...uintptr) uintptr) any {
			return func(options, keys, values, n uintptr) uintptr {
				status := original(options, keys, values, n)
				if status == 0 {
					notes.add(options, Appended{Name: providerName(p.name)})
				}
				return status
			}
		})
	}

	// By name, and by device.
	watch("SessionOptionsAppendExecutionProvider", slotSessionOptionsAppendExecutionProvider,
		func(original func(...uintptr) uintptr) any {
			return func(options, name, keys, values, n uintptr) uintptr {
				status := original(options, name, keys, values, n)
				if status == 0 {
					notes.add(options, Appended{providerName(goString(name)), deviceNumber(option(keys, values, n, "device_id"))})
				}
				return status
			}
		})
	watch("SessionOptionsAppendExecutionProvider_V2", slotSessionOptionsAppendExecutionProvider_V2,
		func(original func(...uintptr) uintptr) any {
			return func(options, env, devices, count, keys, values, n uintptr) uintptr {
				status := original(options, env, devices, count, keys, values, n)
				if status == 0 && count > 0 {
					device := loadWord(devices, 0)
					appended := Appended{Name: providerName(goString(l.call(slotEpDevice_EpName, device)))}
					if own := option(keys, values, n, "device_id"); own != "" {
						appended.Device = deviceNumber(own)
					} else {
						appended.Device = deviceNumber(l.pair(l.call(slotEpDevice_EpOptions, device), "device_id"))
					}
					notes.add(options, appended)
				}
				return status
			}
		})

	// By ONNX Runtime itself.
	automatic := func(n *appendedNote) { n.automatic = true }
	watch("SessionOptionsSetEpSelectionPolicy", slotSessionOptionsSetEpSelectionPolicy,
		func(original func(...uintptr) uintptr) any {
			return func(options, policy uintptr) uintptr {
				status := original(options, policy)
				if status == 0 {
					notes.change(options, automatic)
				}
				return status
			}
		})
	watch("SessionOptionsSetEpSelectionPolicyDelegate", slotSessionOptionsSetEpSelectionPolicyDelegate,
		func(original func(...uintptr) uintptr) any {
			return func(options, delegate, state uintptr) uintptr {
				status := original(options, delegate, state)
				if status == 0 {
					notes.change(options, automatic)
				}
				return status
			}
		})

	lends := func(n *appendedNote) { n.lends = true }
	replace("AddExternalInitializers", slotAddExternalInitializers, func(original func(...uintptr) uintptr) any {
		return func(options, names, values, n uintptr) uintptr {
			notes.change(options, lends)
			return original(options, names, values, n)
		}
	})
	replace("AddExternalInitializersFromFilesInMemory", slotAddExternalInitializersFromFilesInMemory,
		func(original func(...uintptr) uintptr) any {
			return func(options, names, buffers, lengths, n uintptr) uintptr {
				notes.change(options, lends)
				return original(options, names, buffers, lengths, n)
			}
		})

	replace("CreateSessionOptions", slotCreateSessionOptions, func(original func(...uintptr) uintptr) any {
		return func(out uintptr) uintptr {
			status := original(out)
			if status == 0 {
				notes.forget(*wordAt(out)) // its release may have gone unseen
				notes.change(*wordAt(out), func(n *appendedNote) { n.seen = true })
			}
			return status
		}
	})
	replace("CloneSessionOptions", slotCloneSessionOptions, func(original func(...uintptr) uintptr) any {
		return func(options, out uintptr) uintptr {
			status := original(options, out)
			if status == 0 {
				notes.copy(options, *wordAt(out))
			}
			return status
		}
	})
	replace("ReleaseSessionOptions", slotReleaseSessionOptions, func(original func(...uintptr) uintptr) any {
		return func(options uintptr) {
			notes.forget(options) // before the address can name others
			original(options)
		}
	})
}

// firstMember reads the device_id that the options of some providers begin with.
func firstMember(options uintptr) int {
	if options == 0 {
		return 0
	}
	return max(int(*(*int32)(pointer(options))), 0)
}

// cudaDevice asks opaque options of the CUDA provider for their device.
func (l *Library) cudaDevice(options uintptr) int {
	var allocator uintptr
	if err := l.try("GetAllocatorWithDefaultOptions", slotGetAllocatorWithDefaultOptions,
		uintptr(unsafe.Pointer(&allocator))); err != nil {
		return 0
	}
	var text uintptr
	if err := l.try("GetCUDAProviderOptionsAsString", slotGetCUDAProviderOptionsAsString, options, allocator,
		uintptr(unsafe.Pointer(&text))); err != nil {
		return 0
	}
	defer func() { _ = l.try("AllocatorFree", slotAllocatorFree, allocator, text) }()
	for pair := range strings.SplitSeq(goString(text), ";") {
		if value, ok := strings.CutPrefix(pair, "device_id="); ok {
			return deviceNumber(value)
		}
	}
	return 0
}

// option looks a key up in two parallel arrays of C strings; "" when it is absent.
func option(keys, values, n uintptr, key string) string {
	for i := range int(n) {
		if keys != 0 && values != 0 && goString(loadWord(keys, i)) == key {
			return goString(loadWord(values, i))
		}
	}
	return ""
}

// pair looks a key up in OrtKeyValuePairs, which may be null.
func (l *Library) pair(pairs uintptr, key string) string {
	if pairs == 0 {
		return ""
	}
	var keys, values, n uintptr
	l.call(slotGetKeyValuePairs, pairs, uintptr(unsafe.Pointer(&keys)), uintptr(unsafe.Pointer(&values)),
		uintptr(unsafe.Pointer(&n)))
	return option(keys, values, n, key)
}
