package threads

import (
	"sync/atomic"
	"testing"
)

func TestPool(t *testing.T) {
	for threads := range 4 {
		c := NewPool(threads)
		for count := range uint64(200) {
			var sum, ran atomic.Uint64
			c.Do(count, func(i uint64) {
				sum.Add(i)
				ran.Add(1)
			})
			if want := count * (max(count, 1) - 1) / 2; sum.Load() != want || ran.Load() != count {
				t.Fatalf("%d threads: %d tasks of %d, sum %d, want %d", threads, ran.Load(), count, sum.Load(), want)
			}
		}
		c.Close()
	}
}
