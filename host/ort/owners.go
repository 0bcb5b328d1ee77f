package ort

import (
	"encoding/binary"
	"os"
	"sync"
	"unsafe"
)

// An OrtValue holds its tensor by a C++ shared pointer: {the tensor, the count's block}, and the block counts owners after
// its virtual table. No function of the C API tells that count, and it is the only thing that says whether a session has let
// go of a tensor that it was given. So the layout is tried once a runtime, on a value whose owners are known; where it does
// not tell exactly them, nothing is known of any value.
const (
	ownersBlock = wordSize // within an OrtValue
	ownersCount = wordSize // within the block
)

// counting is what was found out about it.
type counting struct {
	once sync.Once
	ok   bool
	one  int32 // what is counted of one owner
}

// soleOwner reports that nobody but an OrtValue has its tensor. It is false where that cannot be told.
func (l *Library) soleOwner(value uintptr) bool {
	if !l.tellsOwners() {
		return false
	}
	return *(*int32)(pointer(*wordAt(value + ownersBlock) + ownersCount)) == l.counting.one
}

func (l *Library) tellsOwners() bool {
	l.counting.once.Do(func() {
		memory, err := os.Open("/proc/self/mem") // reads nothing where there is nothing, without a signal
		if err != nil {
			return
		}
		defer memory.Close()
		l.counting.one, l.counting.ok = l.tryOwners(memory)
	})
	return l.counting.ok
}

// tryOwners counts the owners of a tensor that a sequence comes to own too, and no longer.
func (l *Library) tryOwners(memory *os.File) (one int32, ok bool) {
	v, err := NewTensor(l, []int64{1}, []float32{0})
	if err != nil {
		return 0, false
	}
	defer v.Close()
	count := func() (n int32, ok bool) {
		var block [wordSize]byte
		if _, err := memory.ReadAt(block[:], int64(v.native+ownersBlock)); err != nil {
			return 0, false
		}
		at := binary.NativeEndian.Uint64(block[:])
		if at == 0 || at%uint64(wordSize) != 0 || at > 1<<62 {
			return 0, false
		}
		var counted [4]byte
		if _, err := memory.ReadAt(counted[:], int64(at)+int64(ownersCount)); err != nil {
			return 0, false
		}
		return int32(binary.NativeEndian.Uint32(counted[:])), true
	}
	one, ok = count()
	if !ok {
		return 0, false
	}
	for range 2 { // twice: chance does not repeat itself
		natives := []uintptr{v.native, v.native}
		var sequence uintptr
		if l.try("CreateValue", slotCreateValue, uintptr(unsafe.Pointer(unsafe.SliceData(natives))), uintptr(len(natives)),
			uintptr(KindSequence), uintptr(unsafe.Pointer(&sequence))) != nil {
			return 0, false
		}
		three, ok := count()
		l.call(slotReleaseValue, sequence)
		again, still := count()
		if !ok || !still || three != one+2 || again != one {
			return 0, false
		}
	}
	return one, true
}
