package conformance

import (
	"unsafe"

	"github.com/opgraft/graft/host/plugin/tensor"
)

// guarded is memory between two strips that nobody may write to. It is filled with ones, which is NaN in
// every floating-point type.
type guarded struct {
	all  []byte
	size int64
}

const (
	guardSize = 4096
	guardByte = 0xa5
)

func newGuarded(size int64) *guarded {
	g := &guarded{all: tensor.Aligned(size + 2*guardSize), size: size}
	for i := range g.all {
		g.all[i] = guardByte
	}
	for i := range g.inner() {
		g.inner()[i] = 0xff
	}
	return g
}

func (g *guarded) inner() []byte { return g.all[guardSize : guardSize+g.size : guardSize+g.size] }

func (g *guarded) pointer() unsafe.Pointer { return unsafe.Pointer(&g.all[guardSize]) }

func (g *guarded) intact() bool {
	strips := [][]byte{g.all[:guardSize], g.all[guardSize+g.size:]}
	for _, strip := range strips {
		for _, b := range strip {
			if b != guardByte {
				return false
			}
		}
	}
	return true
}
