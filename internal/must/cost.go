package must

import (
	"fmt"
	"runtime/metrics"
	"syscall"
	"testing"
	"time"
)

// What anything may cost, and what a size of input may cost beside that.
const (
	freeBytes    = 64 << 20
	bytesPerByte = 100
	freeTime     = 5 * time.Second // under the race detector too
	timePerByte  = time.Second / 1024
	waits        = 10 * time.Minute // on a machine that does other things too
)

// CostLittle runs f, which reads an input of some bytes, and refuses more than 100 bytes of memory for each byte of the
// input, and more than a second of processors for each kilobyte. Other work of the process at the same time counts as
// well. Where f does not come back at all the process ends, since a fuzz target that hangs until its time is over
// would count as passed.
func CostLittle(t testing.TB, bytes int, f func()) {
	t.Helper()
	limit := freeTime + time.Duration(bytes)*timePerByte
	hung := time.AfterFunc(waits+limit, func() { panic(fmt.Sprintf("%s: %d bytes never ended", t.Name(), bytes)) })
	defer hung.Stop()
	memory, start := allocated(), spent()
	f()
	if took := spent() - start; took > limit {
		t.Errorf("%d bytes took %v of processors", bytes, took)
	}
	if n := allocated() - memory; n > uint64(freeBytes+bytesPerByte*bytes) {
		t.Errorf("%d bytes took %d bytes of memory", bytes, n)
	}
}

// allocated is how many bytes Go's heap has ever given. Unlike runtime.ReadMemStats it does not stop the program.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// spent is the time that this process has had processors.
func spent() time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		panic(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
