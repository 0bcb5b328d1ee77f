//go:build linux

package threads

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestProcessorTime: it passes with work, and next to not while the thread sleeps.
func TestProcessorTime(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := ProcessorTime()
	nap := unix.NsecToTimespec(int64(100 * time.Millisecond))
	_ = unix.Nanosleep(&nap, nil) // the thread itself, where time.Sleep would let it go on
	if slept := ProcessorTime() - before; slept > 50*time.Millisecond {
		t.Errorf("%v of processor time in a sleep of 100 ms", slept)
	}
	before = ProcessorTime()
	for x := 1; ProcessorTime()-before < 5*time.Millisecond; x++ { // ends because the clock goes on
		_ = x * x
	}
}
