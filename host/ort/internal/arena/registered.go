package arena

import (
	"runtime"
	"unsafe"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/probe"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// registered asks what memory of the CPU an environment has registered for its sessions: the limit of an arena, or that
// there is nothing. No function of the C API tells it: a session that would have no arena tells what it is given, and
// an allocator of the program is the environment's own too.
func (all *arenas) registered(env uintptr) (limit uintptr, free bool) {
	l := all.library
	session, err := all.session(env)
	if err != nil {
		return 0, false
	}
	var info, shared uintptr
	defer l.Original(slot.ReleaseSession, session)
	given, err := all.allocatorOf(session)
	if err != nil {
		return 0, false
	}
	defer l.Call(slot.ReleaseAllocator, given)
	if l.Try("AllocatorGetInfo", slot.AllocatorGetInfo, given, uintptr(unsafe.Pointer(&info))) != nil {
		return 0, false
	}
	const deviceAllocator = 0
	kind := int32(-1)
	if l.Try("MemoryInfoGetType", slot.MemoryInfoGetType, info, uintptr(unsafe.Pointer(&kind))) != nil {
		return 0, false
	}
	if kind != deviceAllocator {
		return all.limit(given), false
	}
	if l.Try("GetSharedAllocator", slot.GetSharedAllocator, env, info, uintptr(unsafe.Pointer(&shared))) != nil ||
		shared == 0 {
		return 0, false
	}
	// ONNX Runtime's own allocators have one function that allocates.
	return 0, cmem.LoadWord(shared, allocatorAlloc) == cmem.LoadWord(given, allocatorAlloc)
}

// session makes a session that has what memory its environment has registered, and otherwise no arena.
func (all *arenas) session(env uintptr) (session uintptr, err error) {
	return probe.Session(all.library, env, func(options uintptr) error {
		return all.library.Options(options).AddConfig(map[string]string{ConfigEnvAllocators: "1"})
	})
}

// shrink has an arena give back what it does not use, by a run of its keeper.
func (all *arenas) shrink(keeper uintptr) {
	l := all.library
	var options uintptr
	if l.Try("CreateRunOptions", slot.CreateRunOptions, uintptr(unsafe.Pointer(&options))) != nil {
		return
	}
	defer l.Call(slot.ReleaseRunOptions, options)
	text, err := cmem.CStrings([]string{"memory.enable_memory_arena_shrinkage", "cpu:0", "x", "y"})
	if err != nil {
		return
	}
	if l.Try("AddRunConfigEntry", slot.AddRunConfigEntry, options, uintptr(unsafe.Pointer(text[0])),
		uintptr(unsafe.Pointer(text[1]))) != nil {
		return
	}
	x, err := ort.NewTensor(l, []int64{1}, []float32{0})
	if err != nil {
		return
	}
	defer x.Close()
	in, out := x.Native(), uintptr(0)
	if l.TakeStatus("Run", l.Original(slot.Run, keeper, options, uintptr(unsafe.Pointer(&text[2])),
		uintptr(unsafe.Pointer(&in)), 1,
		uintptr(unsafe.Pointer(&text[3])), 1, uintptr(unsafe.Pointer(&out)))) == nil {
		l.Call(slot.ReleaseValue, out)
	}
	runtime.KeepAlive(text)
}

// allocatorAlloc is the function of an OrtAllocator that allocates, in words.
const allocatorAlloc = 1

// Registering makes a program's call by which it registers an allocator in its environment, or takes one away: the
// environment is as the program left it.
func Registering(l *ort.Library, env uintptr, registers bool, call func() uintptr) (status uintptr) {
	all := of.Of(l)
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.list) > 0 {
		if tag, _ := all.registered(env); all.list[tag] != nil {
			_ = all.unregister(env) // sessions that have it keep it
		}
	}
	if status = call(); status == 0 {
		all.theirs = registers
	}
	return status
}
