package threads

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// CoreShare is how much of a core a thread gets while each core has one of this process that computes for a time: the
// least of them. On a machine that does nothing else it is nearly 1; below about 0.8 others use it, or the process may
// use less of it than its cores.
func CoreShare(during time.Duration) float64 {
	shares := make([]float64, runtime.NumCPU())
	var done sync.WaitGroup
	for i := range shares {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			start, ran := time.Now(), ProcessorTime()
			for time.Since(start) < during {
			}
			shares[i] = float64(ProcessorTime()-ran) / float64(time.Since(start))
		})
	}
	done.Wait()
	return min(slices.Min(shares), 1)
}
