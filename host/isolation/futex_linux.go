package isolation

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// spin is how long a word is looked at before the system is asked to wake who waits: about as long as it takes to be woken.
const spin = 20 * time.Microsecond

// await waits until a word of shared memory is no longer a value, or a time has gone. It may return before either.
func await(word *uint32, value uint32, atMost time.Duration) {
	begin := time.Now()
	for time.Since(begin) < spin {
		for range 64 {
			if atomic.LoadUint32(word) != value {
				return
			}
		}
	}
	const futexWait = 0
	t := unix.NsecToTimespec(int64(atMost))
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(value), uintptr(unsafe.Pointer(&t)), 0, 0) // an interruption is as a waking
}

// wake wakes who waits for a word.
func wake(word *uint32) {
	const futexWake, all = 1, 1 << 30
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, all, 0, 0, 0) // nobody waits: nothing to do
}
