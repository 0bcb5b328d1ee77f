package arena

import "github.com/opgraft/graft/host/ort"

// What the tests look into.
const (
	SharedBy = sharedBy
	FirstTag = firstTag
)

// All are the arenas of a library.
type All = arenas

// Of are those of a library.
func Of(l *ort.Library) *All { return of.Of(l) }

// Limit is that of a session's arena, 0 where it has none.
func (all *arenas) Limit(session uintptr) uintptr { return all.limitOf(session) }

// Allocator is one by which a session takes memory, to be released.
func (all *arenas) Allocator(session uintptr) (uintptr, error) { return all.allocatorOf(session) }

// Registered is what an environment has.
func (all *arenas) Registered(env uintptr) (limit uintptr, free bool) { return all.registered(env) }

// Register puts one of a limit into an environment, past the hook.
func (all *arenas) Register(env, limit uintptr) error {
	return all.register(&Arena{all: all, env: env, tag: limit})
}

// Info is an OrtMemoryInfo, to be released.
func (all *arenas) Info() (uintptr, error) { return all.info() }

// State is how many there are, and whether a program registered one or the runtime has none.
func (all *arenas) State() (n int, theirs, off bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.list), all.theirs, all.off
}
