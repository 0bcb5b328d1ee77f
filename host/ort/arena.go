package ort

import (
	"strconv"
	"sync"
	"unsafe"
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
	// configEnvAllocators is ONNX Runtime's session config entry for that.
	configEnvAllocators = "session.use_env_allocators"
	// sharedBy is how many sessions an arena has at most: it is a lock too, which each operator of each of their runs
	// takes.
	sharedBy = 8
	// firstTag is the limit of the first arena: no machine has the memory.
	firstTag = 1 << 50
	tagStep  = 1 << 20
)

// arena is one that sessions share.
type arena struct {
	library  *Library
	env      uintptr // OrtEnv, referred to once: it is there as long as the arena is registered
	tag      uintptr
	sessions int
	keeper   uintptr // OrtSession that has it too, by which it is told to shrink
}

// arenas are those of a library.
type arenas struct {
	mu     sync.Mutex
	list   map[uintptr]*arena // by tag
	next   uintptr
	theirs bool // the program has registered an allocator of its own
	off    bool // this ONNX Runtime has no such arenas
}

// ours reports that sessions with these options may share an arena: ONNX Runtime would make each one of its own, and
// the program has said nothing about it.
func (c creation) ours(l *Library) bool {
	switch _, set, err := l.config(c.options, configEnvAllocators); {
	case set || err != nil || c.foreign(l):
		return false // a provider may share memory by the environment too
	case c.ownOptions:
		return !c.noArena
	}
	return c.options == 0 || l.hook.appended.arena(c.options)
}

// shareArena finds an arena for a session that is about to be made; nil for one of its own.
func (l *Library) shareArena(c creation) *arena {
	if !c.ours(l) {
		return nil
	}
	all := &l.hook.arenas
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.theirs || all.off {
		return nil
	}
	tag, free := l.registered(c.env)
	a := all.list[tag]
	switch {
	case !free && a == nil:
		return nil
	case a == nil || a.sessions >= sharedBy:
		if a = l.newArena(c.env); a == nil {
			return nil
		}
	}
	a.sessions++
	return a
}

// newArena registers one more. The lock is held, and nothing is registered but one of ours.
func (l *Library) newArena(env uintptr) *arena {
	all := &l.hook.arenas
	a := &arena{library: l, tag: firstTag + all.next*tagStep}
	name, err := cString("graft")
	if err != nil {
		return nil
	}
	const warning = 2
	if l.try("CreateEnv", slotCreateEnv, warning, uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&a.env))) != nil {
		return nil
	}
	if a.env != env || l.register(a) != nil { // more than one environment: none whose end would be known
		l.call(slotReleaseEnv, a.env)
		return nil
	}
	if a.keeper, err = l.arenaSession(env); err != nil || l.limitOf(a.keeper) != a.tag { // built without arenas
		_ = l.unregister(env)
		l.end(a)
		all.off = true
		return nil
	}
	if all.list == nil {
		all.list = map[uintptr]*arena{}
	}
	all.list[a.tag] = a
	all.next++
	return a
}

func (l *Library) register(a *arena) error {
	keys, err := cStrings([]string{"max_mem"})
	if err != nil {
		return err
	}
	var config uintptr
	limit := []uintptr{a.tag}
	if err := l.try("CreateArenaCfgV2", slotCreateArenaCfgV2, uintptr(unsafe.Pointer(unsafe.SliceData(keys))),
		uintptr(unsafe.Pointer(unsafe.SliceData(limit))), uintptr(len(keys)), uintptr(unsafe.Pointer(&config))); err != nil {
		return err
	}
	defer l.call(slotReleaseArenaCfg, config)
	info, err := l.arenaInfo()
	if err != nil {
		return err
	}
	defer l.call(slotReleaseMemoryInfo, info)
	return l.takeStatus("CreateAndRegisterAllocator", l.original(slotCreateAndRegisterAllocator, a.env, info, config))
}

func (l *Library) unregister(env uintptr) error {
	info, err := l.arenaInfo()
	if err != nil {
		return err
	}
	defer l.call(slotReleaseMemoryInfo, info)
	return l.takeStatus("UnregisterAllocator", l.original(slotUnregisterAllocator, env, info))
}

// arenaInfo is an OrtMemoryInfo, to be released.
func (l *Library) arenaInfo() (info uintptr, err error) {
	const arenaAllocator, memTypeDefault = 1, 0
	err = l.try("CreateCpuMemoryInfo", slotCreateCpuMemoryInfo, arenaAllocator, memTypeDefault,
		uintptr(unsafe.Pointer(&info)))
	return info, err
}

// made is told of the session that was made to share the arena, and gives the one that it has: nil where that is none
// of ours, because the program registered one meanwhile.
func (a *arena) made(session uintptr) *arena {
	if a == nil {
		return nil
	}
	l := a.library
	all := &l.hook.arenas
	all.mu.Lock()
	defer all.mu.Unlock()
	got := all.list[l.limitOf(session)]
	if got != a {
		if got != nil {
			got.sessions++
		}
		a.leaveLocked()
	}
	return got
}

// leave is called when a session is no more, or was not made.
func (a *arena) leave() {
	if a == nil {
		return
	}
	all := &a.library.hook.arenas
	all.mu.Lock()
	defer all.mu.Unlock()
	a.leaveLocked()
}

func (a *arena) leaveLocked() {
	l := a.library
	if a.sessions--; a.sessions > 0 {
		l.shrink(a.keeper) // the others may need less
		return
	}
	delete(l.hook.arenas.list, a.tag)
	if tag, _ := l.registered(a.env); tag == a.tag {
		_ = l.unregister(a.env)
	}
	l.end(a)
}

// end lets go of what an arena has.
func (l *Library) end(a *arena) {
	if a.keeper != 0 {
		l.original(slotReleaseSession, a.keeper)
	}
	l.call(slotReleaseEnv, a.env)
}

// allocatorOf is an OrtAllocator by which a session takes memory of the CPU, to be released.
func (l *Library) allocatorOf(session uintptr) (allocator uintptr, err error) {
	info, err := l.arenaInfo()
	if err != nil {
		return 0, err
	}
	defer l.call(slotReleaseMemoryInfo, info)
	err = l.try("CreateAllocator", slotCreateAllocator, session, info, uintptr(unsafe.Pointer(&allocator)))
	return allocator, err
}

// limitOf is the limit of a session's arena, 0 where it has none.
func (l *Library) limitOf(session uintptr) uintptr {
	allocator, err := l.allocatorOf(session)
	if err != nil {
		return 0
	}
	defer l.call(slotReleaseAllocator, allocator)
	return l.limit(allocator)
}

// limit is that of an arena's memory, 0 where it is not told.
func (l *Library) limit(allocator uintptr) uintptr {
	var pairs uintptr
	if l.try("AllocatorGetStats", slotAllocatorGetStats, allocator, uintptr(unsafe.Pointer(&pairs))) != nil {
		return 0
	}
	defer l.call(slotReleaseKeyValuePairs, pairs)
	n, err := strconv.ParseUint(l.pair(pairs, "Limit"), 10, 64)
	if err != nil {
		return 0
	}
	return uintptr(n)
}
