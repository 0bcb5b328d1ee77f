package session

import (
	"encoding/binary"
	"hash/maphash"
	"sync"
	"unsafe"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// ONNX Runtime's matrix products lay their weights out anew when a session is made, in panels that are as large as the
// weights. A container of prepacked weights lets sessions share panels, of weights that they are given by
// AddInitializer, and finds them by their content. It never gives one back. So the sessions of each content of
// weights have a container of their own, and it is released with the last of them.

// panels is such a container.
type panels struct {
	all       *containers
	key       uint64
	container uintptr // OrtPrepackedWeightsContainer
	sessions  int
}

// containers are the containers of a library's sessions.
type containers struct {
	library *ort.Library

	mu   sync.Mutex
	list map[uint64]*panels
}

// panelsOf has those of each library.
var panelsOf = ort.NewEach(func(l *ort.Library) *containers { return &containers{library: l} })

var contentSeed = maphash.MakeSeed()

// content is a number of weights that are laid out anew. Two contents of one number would share a container, in which
// each still has panels of its own.
func content(weights []Weight) uint64 {
	var h maphash.Hash
	h.SetSeed(contentSeed)
	var size [8]byte
	for _, w := range weights {
		if !w.Packed || !w.InPlace {
			continue
		}
		binary.NativeEndian.PutUint64(size[:], uint64(len(w.Data)))
		h.Write(size[:])
		h.Write(w.Data)
	}
	return h.Sum64()
}

// enter gives the container of these weights to one session more.
func (all *containers) enter(weights []Weight) (*panels, error) {
	key := content(weights)
	l := all.library
	all.mu.Lock()
	defer all.mu.Unlock()
	p := all.list[key]
	if p == nil {
		p = &panels{all: all, key: key}
		if err := l.Try("CreatePrepackedWeightsContainer", slot.CreatePrepackedWeightsContainer,
			uintptr(unsafe.Pointer(&p.container))); err != nil {
			return nil, err
		}
		if all.list == nil {
			all.list = map[uint64]*panels{}
		}
		all.list[key] = p
	}
	p.sessions++
	return p, nil
}

// shared reports that there are other sessions with these panels.
func (p *panels) shared() bool {
	if p == nil {
		return false
	}
	all := p.all
	all.mu.Lock()
	defer all.mu.Unlock()
	return p.sessions > 1
}

// leave is called when a session is no more, or was not made.
func (p *panels) leave() {
	if p == nil {
		return
	}
	all := p.all
	all.mu.Lock()
	defer all.mu.Unlock()
	if p.sessions--; p.sessions == 0 {
		delete(all.list, p.key)
		all.library.Call(slot.ReleasePrepackedWeightsContainer, p.container)
	}
}
