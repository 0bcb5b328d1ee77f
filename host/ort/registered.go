package ort

import (
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// probeModel is the model y = x, of one float32: for sessions of which only the allocator matters.
var probeModel = []byte("\x08\x08" + // IR version 8
	"\x3a\x37" + // the graph
	"\x0a\x10" + "\x0a\x01x" + "\x12\x01y" + "\x22\x08Identity" + // the node
	"\x12\x01i" + // its name
	"\x5a\x0f" + "\x0a\x01x" + "\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01" + // input
	"\x62\x0f" + "\x0a\x01y" + "\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01" + // output
	"\x42\x02\x10\x0d") // opset 13

// registered asks what memory of the CPU an environment has registered for its sessions: the limit of an arena, or that
// there is nothing. No function of the C API tells it: a session that would have no arena tells what it is given, and
// an allocator of the program is the environment's own too.
func (l *Library) registered(env uintptr) (limit uintptr, free bool) {
	session, err := l.arenaSession(env)
	if err != nil {
		return 0, false
	}
	var info, shared uintptr
	defer l.original(slotReleaseSession, session)
	given, err := l.allocatorOf(session)
	if err != nil {
		return 0, false
	}
	defer l.call(slotReleaseAllocator, given)
	if l.try("AllocatorGetInfo", slotAllocatorGetInfo, given, uintptr(unsafe.Pointer(&info))) != nil {
		return 0, false
	}
	const deviceAllocator = 0
	kind := int32(-1)
	if l.try("MemoryInfoGetType", slotMemoryInfoGetType, info, uintptr(unsafe.Pointer(&kind))) != nil {
		return 0, false
	}
	if kind != deviceAllocator {
		return l.limit(given), false
	}
	if l.try("GetSharedAllocator", slotGetSharedAllocator, env, info, uintptr(unsafe.Pointer(&shared))) != nil ||
		shared == 0 {
		return 0, false
	}
	// ONNX Runtime's own allocators have one function that allocates.
	return 0, loadWord(shared, allocatorAlloc) == loadWord(given, allocatorAlloc)
}

// arenaSession makes a session that has what memory its environment has registered, and otherwise no arena.
func (l *Library) arenaSession(env uintptr) (session uintptr, err error) {
	return l.probeSession(env, SessionOptions{Config: map[string]string{configEnvAllocators: "1"}})
}

// probeSession makes a session that neither computes nor speaks nor has an arena of its own.
func (l *Library) probeSession(env uintptr, o SessionOptions) (session uintptr, err error) {
	o.IntraOpThreads, o.Optimization, o.LogSeverity, o.NoArena = 1, OptimizeNone, LogFatal, true
	options, err := l.newOptions(o)
	if err != nil {
		return 0, err
	}
	defer l.call(slotReleaseSessionOptions, options)
	err = l.takeStatus("CreateSessionFromArray",
		l.original(slotCreateSessionFromArray, env, uintptr(unsafe.Pointer(unsafe.SliceData(probeModel))),
			uintptr(len(probeModel)),
			options, uintptr(unsafe.Pointer(&session))))
	return session, err
}

// shrink has an arena give back what it does not use, by a run of its keeper.
func (l *Library) shrink(keeper uintptr) {
	var options uintptr
	if l.try("CreateRunOptions", slotCreateRunOptions, uintptr(unsafe.Pointer(&options))) != nil {
		return
	}
	defer l.call(slotReleaseRunOptions, options)
	text, err := cStrings([]string{"memory.enable_memory_arena_shrinkage", "cpu:0", "x", "y"})
	if err != nil {
		return
	}
	if l.try("AddRunConfigEntry", slotAddRunConfigEntry, options, uintptr(unsafe.Pointer(text[0])),
		uintptr(unsafe.Pointer(text[1]))) != nil {
		return
	}
	x, err := NewTensor(l, []int64{1}, []float32{0})
	if err != nil {
		return
	}
	defer x.Close()
	in, out := x.native, uintptr(0)
	if l.takeStatus("Run", l.original(slotRun, keeper, options, uintptr(unsafe.Pointer(&text[2])),
		uintptr(unsafe.Pointer(&in)), 1,
		uintptr(unsafe.Pointer(&text[3])), 1, uintptr(unsafe.Pointer(&out)))) == nil {
		l.call(slotReleaseValue, out)
	}
	runtime.KeepAlive(text)
}

// allocatorAlloc is the function of an OrtAllocator that allocates, in words.
const allocatorAlloc = 1

// watchArenas replaces the functions by which a program registers allocators in its environment, so that it finds the
// environment as it left it, and those that say whether a session has an arena.
func (h *hook) watchArenas(add func(name string, table uintptr, index int, callback any) *entry) {
	l, all := h.library, &h.arenas
	change := func(registers bool, env uintptr, call func() uintptr) uintptr {
		all.mu.Lock()
		defer all.mu.Unlock()
		if len(all.list) > 0 {
			if tag, _ := l.registered(env); all.list[tag] != nil {
				_ = l.unregister(env) // sessions that have it keep it
			}
		}
		status := call()
		if status == 0 {
			all.theirs = registers
		}
		return status
	}
	replace := func(name string, s slot, registers bool,
		callback func(change func(env uintptr, args ...uintptr) uintptr) any) {
		var e *entry
		e = add(name, l.api, int(s), callback(func(env uintptr, args ...uintptr) uintptr {
			return change(registers, env, func() uintptr {
				r, _, _ := purego.SyscallN(e.original, append([]uintptr{env}, args...)...)
				return r
			})
		}))
		h.originals.Store(s, e.original)
	}
	type changing = func(env uintptr, args ...uintptr) uintptr
	replace("CreateAndRegisterAllocator", slotCreateAndRegisterAllocator, true, func(change changing) any {
		return func(env, info, config uintptr) uintptr { return change(env, info, config) }
	})
	replace("CreateAndRegisterAllocatorV2", slotCreateAndRegisterAllocatorV2, true, func(change changing) any {
		return func(env, provider, info, config, keys, values, n uintptr) uintptr {
			return change(env, provider, info, config, keys, values, n)
		}
	})
	replace("RegisterAllocator", slotRegisterAllocator, true, func(change changing) any {
		return func(env, allocator uintptr) uintptr { return change(env, allocator) }
	})
	replace("UnregisterAllocator", slotUnregisterAllocator, false, func(change changing) any {
		return func(env, info uintptr) uintptr { return change(env, info) }
	})
	arena := func(name string, s slot, has bool) {
		var e *entry
		e = add(name, l.api, int(s), func(options uintptr) uintptr {
			r, _, _ := purego.SyscallN(e.original, options)
			if r == 0 {
				h.appended.change(options, func(n *appendedNote) { n.noArena = !has })
			}
			return r
		})
	}
	arena("EnableCpuMemArena", slotEnableCpuMemArena, true)
	arena("DisableCpuMemArena", slotDisableCpuMemArena, false)
}
