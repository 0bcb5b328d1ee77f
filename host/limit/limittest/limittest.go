// Package limittest says whether reading something costs too much for its size.
package limittest

import (
	"runtime"
	"testing"
	"time"
)

// What anything may cost, and what a size of input may cost beside that.
const (
	freeBytes    = 64 << 20
	bytesPerByte = 100
	freeTime     = 20 * time.Second // on a machine that does other things too
	timePerByte  = time.Second / 1024
)

// Check runs f, which reads an input of some bytes, and refuses more than 100 bytes of memory for each byte of the input, and
// more than a second for each kilobyte. Other work of the process at the same time counts as well.
func Check(t testing.TB, bytes int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	f()
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if took > freeTime+time.Duration(bytes)*timePerByte {
		t.Errorf("%d bytes took %v", bytes, took)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > uint64(freeBytes+bytesPerByte*bytes) {
		t.Errorf("%d bytes took %d bytes of memory", bytes, n)
	}
}
