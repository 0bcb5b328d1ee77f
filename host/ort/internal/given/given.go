// Package given notes what session options were given, which ONNX Runtime's C API does not tell.
package given

import (
	"slices"
	"sync"

	"github.com/opgraft/graft/host/ort"
)

// Notes are what was given to session options, by the address of an OrtSessionOptions.
type Notes struct {
	mu    sync.Mutex
	notes map[uintptr]Note
}

// A Note is of one.
type Note struct {
	Appended  []ort.Appended
	Automatic bool
	Lends     bool // weights in memory that the program may take away once a session is made
	Seen      bool // since the options were made, or what they are a copy of
	NoArena   bool
}

// Lends reports that a session reads weights that the program may take away.
func (a *Notes) Lends(options uintptr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.notes[options].Lends
}

// Arena reports that a session has an arena, as far as its options' whole story is known.
func (a *Notes) Arena(options uintptr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.notes[options]
	return n.Seen && !n.NoArena
}

// Of are the providers of options.
func (a *Notes) Of(options uintptr) (list []ort.Appended, automatic bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.notes[options]
	return n.Appended, n.Automatic
}

// Change changes what is noted of options.
func (a *Notes) Change(options uintptr, change func(*Note)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.notes == nil {
		a.notes = map[uintptr]Note{}
	}
	n := a.notes[options]
	change(&n)
	a.notes[options] = n
}

// Add notes a provider.
func (a *Notes) Add(options uintptr, p ort.Appended) {
	a.Change(options, func(n *Note) { n.Appended = ort.AppendProvider(n.Appended, p) })
}

// Copy notes for a clone what its original has.
func (a *Notes) Copy(from, to uintptr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, ok := a.notes[from]
	if !ok {
		delete(a.notes, to)
		return
	}
	n.Appended = slices.Clone(n.Appended)
	a.notes[to] = n
}

// Forget drops the note of an address, which may come to name other options.
func (a *Notes) Forget(options uintptr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.notes, options)
}

// Clear drops all notes: without a hook, releases go unseen and addresses are used again.
func (a *Notes) Clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.notes)
}

// of has those of each library.
var of = ort.NewEach(func(*ort.Library) *Notes { return &Notes{} })

// To are the notes of a library.
func To(l *ort.Library) *Notes { return of.Of(l) }
