package ort

import (
	"encoding/binary"
	"io"
	"os"
	"sync"
	"unsafe"
)

// An OrtValue holds its tensor by a C++ shared pointer: {the tensor, the count's block}, and the block counts owners
// after its virtual table. No function of the C API tells that count, and it is the only thing that says whether a
// session has let go of a tensor that it was given. So the layout is tried once a runtime, on a value whose owners
// are known; where it does not tell exactly them, nothing is known of any value.
const (
	ownersBlock = wordSize // within an OrtValue
	ownersCount = wordSize // within the block
)

// counting is what was found out about it.
type counting struct {
	once sync.Once
	// memory is that of this process, nil where nothing is told: what is read by it and is not there, or is something
	// else, is an error and no signal.
	memory io.ReaderAt
	one    int32 // what is counted of one owner
}

// soleOwner reports that nobody but an OrtValue has its tensor. It is false where that cannot be told.
func (l *Library) soleOwner(value uintptr) bool {
	if !l.tellsOwners() {
		return false
	}
	n, ok := ownersOf(l.counting.memory, value)
	return ok && n == l.counting.one
}

func (l *Library) tellsOwners() bool {
	l.counting.once.Do(func() {
		memory, err := os.Open("/proc/self/mem") // stays open
		if err != nil {
			return
		}
		if one, ok := l.tryOwners(memory); ok {
			l.counting.memory, l.counting.one = memory, one
			return
		}
		memory.Close()
	})
	return l.counting.memory != nil
}

// ownersOf reads what an OrtValue's block counts.
func ownersOf(memory io.ReaderAt, value uintptr) (n int32, ok bool) {
	var block [wordSize]byte
	if _, err := memory.ReadAt(block[:], int64(value+ownersBlock)); err != nil {
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

// tryOwners counts the owners of a tensor that a sequence comes to own too, and no longer.
func (l *Library) tryOwners(memory io.ReaderAt) (one int32, ok bool) {
	v, err := NewTensor(l, []int64{1}, []float32{0})
	if err != nil {
		return 0, false
	}
	defer v.Close()
	return tellingOwners(func() (int32, bool) { return ownersOf(memory, v.native) }, func(while func()) bool {
		natives := []uintptr{v.native, v.native}
		var sequence uintptr
		if l.try("CreateValue", slotCreateValue, uintptr(unsafe.Pointer(unsafe.SliceData(natives))), uintptr(len(natives)),
			uintptr(KindSequence), uintptr(unsafe.Pointer(&sequence))) != nil {
			return false
		}
		while()
		l.call(slotReleaseValue, sequence)
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
