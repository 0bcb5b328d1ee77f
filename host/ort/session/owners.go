package session

import (
	"encoding/binary"
	"io"
	"os"
	"sync"
	"unsafe"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// An OrtValue holds its tensor by a C++ shared pointer: {the tensor, the count's block}, and the block counts owners
// after its virtual table. No function of the C API tells that count, and it is the only thing that says whether a
// session has let go of a tensor that it was given. So the layout is tried once a runtime, on a value whose owners
// are known; where it does not tell exactly them, nothing is known of any value.
const (
	ownersBlock = cmem.WordSize // within an OrtValue
	ownersCount = cmem.WordSize // within the block
)

// counting is what was found out about it.
type counting struct {
	library *ort.Library

	once sync.Once
	// memory is that of this process, nil where nothing is told: what is read by it and is not there, or is something
	// else, is an error and no signal.
	memory io.ReaderAt
	one    int32 // what is counted of one owner
}

// ownersOf has it for each library.
var ownersOf = ort.NewEach(func(l *ort.Library) *counting { return &counting{library: l} })

// sole reports that nobody but a value has its tensor. It is false where that cannot be told.
func (c *counting) sole(v *ort.Value) bool {
	if !c.told() {
		return false
	}
	n, ok := owners(c.memory, v.Native())
	return ok && n == c.one
}

// told reports that owners are counted as expected.
func (c *counting) told() bool {
	c.once.Do(func() {
		memory, err := os.Open("/proc/self/mem") // stays open
		if err != nil {
			return
		}
		if one, ok := tryOwners(c.library, memory); ok {
			c.memory, c.one = memory, one
			return
		}
		memory.Close()
	})
	return c.memory != nil
}

// owners reads what an OrtValue's block counts.
func owners(memory io.ReaderAt, value uintptr) (n int32, ok bool) {
	var block [cmem.WordSize]byte
	if _, err := memory.ReadAt(block[:], int64(value+ownersBlock)); err != nil {
		return 0, false
	}
	at := binary.NativeEndian.Uint64(block[:])
	if at == 0 || at%uint64(cmem.WordSize) != 0 || at > 1<<62 {
		return 0, false
	}
	var counted [4]byte
	if _, err := memory.ReadAt(counted[:], int64(at)+int64(ownersCount)); err != nil {
		return 0, false
	}
	return int32(binary.NativeEndian.Uint32(counted[:])), true
}

// tryOwners counts the owners of a tensor that a sequence comes to own too, and no longer.
func tryOwners(l *ort.Library, memory io.ReaderAt) (one int32, ok bool) {
	v, err := ort.NewTensor(l, []int64{1}, []float32{0})
	if err != nil {
		return 0, false
	}
	defer v.Close()
	return tellingOwners(func() (int32, bool) { return owners(memory, v.Native()) }, func(while func()) bool {
		natives := []uintptr{v.Native(), v.Native()}
		var sequence uintptr
		if l.Try("CreateValue", slot.CreateValue, uintptr(unsafe.Pointer(unsafe.SliceData(natives))), uintptr(len(natives)),
			uintptr(ort.KindSequence), uintptr(unsafe.Pointer(&sequence))) != nil {
			return false
		}
		while()
		l.Call(slot.ReleaseValue, sequence)
		return true
	})
}

// tellingOwners says what is counted of one owner, if the count follows two owners more that come and go.
func tellingOwners(count func() (int32, bool), withTwoMore func(while func()) bool) (one int32, ok bool) {
	one, ok = count()
	for i := 0; i < 2 && ok; i++ { // twice: chance does not repeat itself
		var three int32
		owned := withTwoMore(func() { three, ok = count() })
		again, still := count()
		ok = ok && still && owned && three == one+2 && again == one
	}
	return one, ok
}
