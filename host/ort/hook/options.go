package hook

import (
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/cuda/signals"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/given"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// watchOptions replaces the functions by which session options come to have providers, are copied
// and go away. Each calls ONNX Runtime's own function first and notes what succeeded.
func (h *hook) watchOptions(add func(name string, table uintptr, index int, callback any) *entry) {
	l, notes := h.library, h.given
	replace := func(name string, s slot.Slot, callback func(original func(args ...uintptr) uintptr) any) {
		var e *entry
		e = add(name, l.API(), int(s), callback(func(args ...uintptr) uintptr {
			r, _, _ := purego.SyscallN(e.original, args...)
			return r
		}))
	}
	// A provider's library is loaded by the call that appends it, and may take Go's signal handlers.
	watch := func(name string, s slot.Slot, callback func(original func(args ...uintptr) uintptr) any) {
		replace(name, s, func(original func(args ...uintptr) uintptr) any {
			return callback(func(args ...uintptr) (status uintptr) {
				signals.Preserve(func() { status = original(args...) })
				return status
			})
		})
	}

	// By a function of the provider's own, with a struct of its options.
	for _, p := range []struct {
		slot   slot.Slot
		name   string
		device func(l *ort.Library, options uintptr) int // of the struct; nil where nothing asks for it
	}{
		{slot.SessionOptionsAppendExecutionProvider_CUDA, "CUDA", firstMember},
		{slot.SessionOptionsAppendExecutionProvider_CUDA_V2, "CUDA", cudaDevice},
		{slot.SessionOptionsAppendExecutionProvider_ROCM, "ROCM", firstMember},
		{slot.SessionOptionsAppendExecutionProvider_TensorRT, "Tensorrt", firstMember},
		{slot.SessionOptionsAppendExecutionProvider_TensorRT_V2, "Tensorrt", nil},
		{slot.SessionOptionsAppendExecutionProvider_MIGraphX, "MIGraphX", firstMember},
		{slot.SessionOptionsAppendExecutionProvider_CANN, "CANN", nil},
		{slot.SessionOptionsAppendExecutionProvider_OpenVINO, "OpenVINO", nil},
		{slot.SessionOptionsAppendExecutionProvider_Dnnl, "Dnnl", nil},
	} {
		watch("SessionOptionsAppendExecutionProvider "+p.name, p.slot, func(original func(...uintptr) uintptr) any {
			return func(options, provider uintptr) uintptr {
				status := original(options, provider)
				if status == 0 {
					appended := ort.Appended{Name: ort.ProviderName(p.name)}
					if p.device != nil {
						appended.Device = p.device(l, provider)
					}
					notes.Add(options, appended)
				}
				return status
			}
		})
	}
	for _, p := range []struct {
		slot slot.Slot
		name string
	}{
		{slot.SessionOptionsAppendExecutionProvider_OpenVINO_V2, "OpenVINO"},
		{slot.SessionOptionsAppendExecutionProvider_VitisAI, "VitisAI"},
	} {
		watch("SessionOptionsAppendExecutionProvider "+p.name, p.slot, func(original func(...uintptr) uintptr) any {
			return func(options, keys, values, n uintptr) uintptr {
				status := original(options, keys, values, n)
				if status == 0 {
					notes.Add(options, ort.Appended{Name: ort.ProviderName(p.name)})
				}
				return status
			}
		})
	}

	// By name, and by device.
	watch("SessionOptionsAppendExecutionProvider", slot.SessionOptionsAppendExecutionProvider,
		func(original func(...uintptr) uintptr) any {
			return func(options, name, keys, values, n uintptr) uintptr {
				status := original(options, name, keys, values, n)
				if status == 0 {
					notes.Add(options, ort.Appended{Name: ort.ProviderName(cmem.GoString(name)),
						Device: ort.DeviceNumber(cmem.Lookup(keys, values, n, "device_id"))})
				}
				return status
			}
		})
	watch("SessionOptionsAppendExecutionProvider_V2", slot.SessionOptionsAppendExecutionProvider_V2,
		func(original func(...uintptr) uintptr) any {
			return func(options, env, devices, count, keys, values, n uintptr) uintptr {
				status := original(options, env, devices, count, keys, values, n)
				if status == 0 && count > 0 {
					device := cmem.LoadWord(devices, 0)
					appended := ort.Appended{Name: ort.ProviderName(cmem.GoString(l.Call(slot.EpDevice_EpName, device)))}
					if own := cmem.Lookup(keys, values, n, "device_id"); own != "" {
						appended.Device = ort.DeviceNumber(own)
					} else {
						appended.Device = ort.DeviceNumber(l.Pair(l.Call(slot.EpDevice_EpOptions, device), "device_id"))
					}
					notes.Add(options, appended)
				}
				return status
			}
		})

	// By ONNX Runtime itself.
	automatic := func(n *given.Note) { n.Automatic = true }
	watch("SessionOptionsSetEpSelectionPolicy", slot.SessionOptionsSetEpSelectionPolicy,
		func(original func(...uintptr) uintptr) any {
			return func(options, policy uintptr) uintptr {
				status := original(options, policy)
				if status == 0 {
					notes.Change(options, automatic)
				}
				return status
			}
		})
	watch("SessionOptionsSetEpSelectionPolicyDelegate", slot.SessionOptionsSetEpSelectionPolicyDelegate,
		func(original func(...uintptr) uintptr) any {
			return func(options, delegate, state uintptr) uintptr {
				status := original(options, delegate, state)
				if status == 0 {
					notes.Change(options, automatic)
				}
				return status
			}
		})

	lends := func(n *given.Note) { n.Lends = true }
	replace("AddExternalInitializers", slot.AddExternalInitializers, func(original func(...uintptr) uintptr) any {
		return func(options, names, values, n uintptr) uintptr {
			notes.Change(options, lends)
			return original(options, names, values, n)
		}
	})
	replace("AddExternalInitializersFromFilesInMemory", slot.AddExternalInitializersFromFilesInMemory,
		func(original func(...uintptr) uintptr) any {
			return func(options, names, buffers, lengths, n uintptr) uintptr {
				notes.Change(options, lends)
				return original(options, names, buffers, lengths, n)
			}
		})

	replace("CreateSessionOptions", slot.CreateSessionOptions, func(original func(...uintptr) uintptr) any {
		return func(out uintptr) uintptr {
			status := original(out)
			if status == 0 {
				notes.Forget(*cmem.WordAt(out)) // its release may have gone unseen
				notes.Change(*cmem.WordAt(out), func(n *given.Note) { n.Seen = true })
			}
			return status
		}
	})
	replace("CloneSessionOptions", slot.CloneSessionOptions, func(original func(...uintptr) uintptr) any {
		return func(options, out uintptr) uintptr {
			status := original(options, out)
			if status == 0 {
				notes.Copy(options, *cmem.WordAt(out))
			}
			return status
		}
	})
	replace("ReleaseSessionOptions", slot.ReleaseSessionOptions, func(original func(...uintptr) uintptr) any {
		return func(options uintptr) {
			notes.Forget(options) // before the address can name others
			original(options)
		}
	})
}

// firstMember reads the device_id that the options of some providers begin with.
func firstMember(_ *ort.Library, options uintptr) int {
	if options == 0 {
		return 0
	}
	return max(int(*(*int32)(cmem.Pointer(options))), 0)
}

// cudaDevice asks opaque options of the CUDA provider for their device.
func cudaDevice(l *ort.Library, options uintptr) int {
	var allocator uintptr
	if err := l.Try("GetAllocatorWithDefaultOptions", slot.GetAllocatorWithDefaultOptions,
		uintptr(unsafe.Pointer(&allocator))); err != nil {
		return 0
	}
	var text uintptr
	if err := l.Try("GetCUDAProviderOptionsAsString", slot.GetCUDAProviderOptionsAsString, options, allocator,
		uintptr(unsafe.Pointer(&text))); err != nil {
		return 0
	}
	defer func() { _ = l.Try("AllocatorFree", slot.AllocatorFree, allocator, text) }()
	for pair := range strings.SplitSeq(cmem.GoString(text), ";") {
		if value, ok := strings.CutPrefix(pair, "device_id="); ok {
			return ort.DeviceNumber(value)
		}
	}
	return 0
}
