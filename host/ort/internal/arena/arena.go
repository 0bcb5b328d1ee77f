// Package arena lets sessions share the memory that they compute with.
package arena

import (
	"strconv"
	"sync"
	"unsafe"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// A session of ONNX Runtime takes what it computes with from an arena of its own, which grows to what its largest run
// took and stays so. Sessions of a process that have one together hold what those take that run at once. ONNX Runtime
// shares an arena by its environment: one that is registered there becomes that of the sessions which are made then
// and ask for it.
//
// The environment is the program's, and it has one place for an arena of the CPU. What is registered in it is never
// replaced but by another of these, and is told by its limit of memory, which is far above any memory and another
// number for each.

const (
	// ConfigEnvAllocators is ONNX Runtime's session config entry for that.
	ConfigEnvAllocators = "session.use_env_allocators"
	// sharedBy is how many sessions an arena has at most: it is a lock too, which each operator of each of their runs
	// takes.
	sharedBy = 8
	// firstTag is the limit of the first arena: no machine has the memory.
	firstTag = 1 << 50
	tagStep  = 1 << 20
)

// An Arena is one that sessions share.
type Arena struct {
	all      *arenas
	env      uintptr // OrtEnv, referred to once: it is there as long as the arena is registered
	tag      uintptr
	sessions int
	keeper   uintptr // OrtSession that has it too, by which it is told to shrink
}

// arenas are those of a library.
type arenas struct {
	library *ort.Library

	mu     sync.Mutex
	list   map[uintptr]*Arena // by tag
	next   uintptr
	theirs bool // the program has registered an allocator of its own
	off    bool // this ONNX Runtime has no such arenas
}

// of has those of each library.
var of = ort.NewEach(func(l *ort.Library) *arenas { return &arenas{library: l} })

// Share finds an arena for a session that is about to be made in an environment; nil for one of its own.
func Share(l *ort.Library, env uintptr) *Arena {
	all := of.Of(l)
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.theirs || all.off {
		return nil
	}
	tag, free := all.registered(env)
	a := all.list[tag]
	switch {
	case !free && a == nil:
		return nil
	case a == nil || a.sessions >= sharedBy:
		if a = all.add(env); a == nil {
			return nil
		}
	}
	a.sessions++
	return a
}

// add registers one more. The lock is held, and nothing is registered but one of ours.
func (all *arenas) add(env uintptr) *Arena {
	l := all.library
	a := &Arena{all: all, tag: firstTag + all.next*tagStep}
	name, err := cmem.CString("graft")
	if err != nil {
		return nil
	}
	const warning = 2
	if l.Try("CreateEnv", slot.CreateEnv, warning, uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&a.env))) != nil {
		return nil
	}
	if a.env != env || all.register(a) != nil { // more than one environment: none whose end would be known
		l.Call(slot.ReleaseEnv, a.env)
		return nil
	}
	if a.keeper, err = all.session(env); err != nil || all.limitOf(a.keeper) != a.tag { // built without arenas
		_ = all.unregister(env)
		all.end(a)
		all.off = true
		return nil
	}
	if all.list == nil {
		all.list = map[uintptr]*Arena{}
	}
	all.list[a.tag] = a
	all.next++
	return a
}

func (all *arenas) register(a *Arena) error {
	l := all.library
	keys, err := cmem.CStrings([]string{"max_mem"})
	if err != nil {
		return err
	}
	var config uintptr
	limit := []uintptr{a.tag}
	if err := l.Try("CreateArenaCfgV2", slot.CreateArenaCfgV2, uintptr(unsafe.Pointer(unsafe.SliceData(keys))),
		uintptr(unsafe.Pointer(unsafe.SliceData(limit))), uintptr(len(keys)), uintptr(unsafe.Pointer(&config))); err != nil {
		return err
	}
	defer l.Call(slot.ReleaseArenaCfg, config)
	info, err := all.info()
	if err != nil {
		return err
	}
	defer l.Call(slot.ReleaseMemoryInfo, info)
	return l.TakeStatus("CreateAndRegisterAllocator", l.Original(slot.CreateAndRegisterAllocator, a.env, info, config))
}

func (all *arenas) unregister(env uintptr) error {
	l := all.library
	info, err := all.info()
	if err != nil {
		return err
	}
	defer l.Call(slot.ReleaseMemoryInfo, info)
	return l.TakeStatus("UnregisterAllocator", l.Original(slot.UnregisterAllocator, env, info))
}

// info is an OrtMemoryInfo, to be released.
func (all *arenas) info() (info uintptr, err error) {
	const arenaAllocator, memTypeDefault = 1, 0
	err = all.library.Try("CreateCpuMemoryInfo", slot.CreateCpuMemoryInfo, arenaAllocator, memTypeDefault,
		uintptr(unsafe.Pointer(&info)))
	return info, err
}

// Made is told of the session that was made to share the arena, and gives the one that it has: nil where that is none
// of ours, because the program registered one meanwhile.
func (a *Arena) Made(session uintptr) *Arena {
	if a == nil {
		return nil
	}
	all := a.all
	all.mu.Lock()
	defer all.mu.Unlock()
	got := all.list[all.limitOf(session)]
	if got != a {
		if got != nil {
			got.sessions++
		}
		a.leaveLocked()
	}
	return got
}

// Leave is called when a session is no more, or was not made.
func (a *Arena) Leave() {
	if a == nil {
		return
	}
	all := a.all
	all.mu.Lock()
	defer all.mu.Unlock()
	a.leaveLocked()
}

func (a *Arena) leaveLocked() {
	all := a.all
	if a.sessions--; a.sessions > 0 {
		all.shrink(a.keeper) // the others may need less
		return
	}
	delete(all.list, a.tag)
	if tag, _ := all.registered(a.env); tag == a.tag {
		_ = all.unregister(a.env)
	}
	all.end(a)
}

// end lets go of what an arena has.
func (all *arenas) end(a *Arena) {
	l := all.library
	if a.keeper != 0 {
		l.Original(slot.ReleaseSession, a.keeper)
	}
	l.Call(slot.ReleaseEnv, a.env)
}

// allocatorOf is an OrtAllocator by which a session takes memory of the CPU, to be released.
func (all *arenas) allocatorOf(session uintptr) (allocator uintptr, err error) {
	l := all.library
	info, err := all.info()
	if err != nil {
		return 0, err
	}
	defer l.Call(slot.ReleaseMemoryInfo, info)
	err = l.Try("CreateAllocator", slot.CreateAllocator, session, info, uintptr(unsafe.Pointer(&allocator)))
	return allocator, err
}

// limitOf is the limit of a session's arena, 0 where it has none.
func (all *arenas) limitOf(session uintptr) uintptr {
	allocator, err := all.allocatorOf(session)
	if err != nil {
		return 0
	}
	defer all.library.Call(slot.ReleaseAllocator, allocator)
	return all.limit(allocator)
}

// limit is that of an arena's memory, 0 where it is not told.
func (all *arenas) limit(allocator uintptr) uintptr {
	l := all.library
	var pairs uintptr
	if l.Try("AllocatorGetStats", slot.AllocatorGetStats, allocator, uintptr(unsafe.Pointer(&pairs))) != nil {
		return 0
	}
	defer l.Call(slot.ReleaseKeyValuePairs, pairs)
	n, err := strconv.ParseUint(l.Pair(pairs, "Limit"), 10, 64)
	if err != nil {
		return 0
	}
	return uintptr(n)
}
