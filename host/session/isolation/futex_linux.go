package isolation

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// await waits until a word of shared memory is no longer a value, or a time has gone. It may return before either. It
// does not look at the word awake first: where processors have other work, who waits awake takes one from who is
// waited for.
func await(word *uint32, value uint32, atMost time.Duration) {
	const futexWait = 0
	t := unix.NsecToTimespec(int64(atMost))
	// an interruption is as a waking
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(value),
		uintptr(unsafe.Pointer(&t)), 0, 0)
}

// wake wakes who waits for a word.
func wake(word *uint32) {
	const futexWake, all = 1, 1 << 30
	// nobody waits: nothing to do
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, all, 0, 0, 0)
}
