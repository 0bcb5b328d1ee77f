package ort

import (
	"sync"
)

// Each is what a package knows of each library: one T for one, made when it is asked for first.
type Each[T any] struct {
	make func(*Library) *T
	of   sync.Map // *Library -> *T
}

// NewEach is told how one is made.
func NewEach[T any](make func(*Library) *T) *Each[T] { return &Each[T]{make: make} }

// Of is that of a library.
func (e *Each[T]) Of(l *Library) *T {
	if t, ok := e.of.Load(l); ok {
		return t.(*T)
	}
	t, _ := e.of.LoadOrStore(l, e.make(l))
	return t.(*T)
}
