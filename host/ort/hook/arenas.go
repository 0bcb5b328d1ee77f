package hook

import (
	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/ort/internal/arena"
	"github.com/opgraft/graft/host/ort/internal/given"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// watchArenas replaces the functions by which a program registers allocators in its environment, so that it finds the
// environment as it left it, and those that say whether a session has an arena.
func (h *hook) watchArenas(add func(name string, table uintptr, index int, callback any) *entry) {
	l := h.library
	replace := func(name string, s slot.Slot, registers bool,
		callback func(change func(env uintptr, args ...uintptr) uintptr) any) {
		var e *entry
		e = add(name, l.API(), int(s), callback(func(env uintptr, args ...uintptr) uintptr {
			return arena.Registering(l, env, registers, func() uintptr {
				r, _, _ := purego.SyscallN(e.original, append([]uintptr{env}, args...)...)
				return r
			})
		}))
		h.library.Replaced(s, e.original)
	}
	type changing = func(env uintptr, args ...uintptr) uintptr
	replace("CreateAndRegisterAllocator", slot.CreateAndRegisterAllocator, true, func(change changing) any {
		return func(env, info, config uintptr) uintptr { return change(env, info, config) }
	})
	replace("CreateAndRegisterAllocatorV2", slot.CreateAndRegisterAllocatorV2, true, func(change changing) any {
		return func(env, provider, info, config, keys, values, n uintptr) uintptr {
			return change(env, provider, info, config, keys, values, n)
		}
	})
	replace("RegisterAllocator", slot.RegisterAllocator, true, func(change changing) any {
		return func(env, allocator uintptr) uintptr { return change(env, allocator) }
	})
	replace("UnregisterAllocator", slot.UnregisterAllocator, false, func(change changing) any {
		return func(env, info uintptr) uintptr { return change(env, info) }
	})
	has := func(name string, s slot.Slot, arena bool) {
		var e *entry
		e = add(name, l.API(), int(s), func(options uintptr) uintptr {
			r, _, _ := purego.SyscallN(e.original, options)
			if r == 0 {
				h.given.Change(options, func(n *given.Note) { n.NoArena = !arena })
			}
			return r
		})
	}
	has("EnableCpuMemArena", slot.EnableCpuMemArena, true)
	has("DisableCpuMemArena", slot.DisableCpuMemArena, false)
}
