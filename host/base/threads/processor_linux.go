package threads

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProcessorTime is how long the calling thread has run on a processor, which does not pass while it waits for one.
// Differences mean something only between calls of one thread: see [runtime.LockOSThread].
func ProcessorTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return time.Since(started)
	}
	return time.Duration(t.Nano())
}

var started = time.Now()
