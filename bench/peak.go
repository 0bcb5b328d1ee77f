package main

import (
	"fmt"
	"runtime"
	"sync"
	"time"
)

// peak is the most arithmetic that a processor does on all cores, in operations a second: a multiplication and an
// addition are two. It is measured by loops over registers alone. 0 is not known.
type peak struct {
	Float32   float64 `json:"float32"`
	Float32By string  `json:"float32_by,omitempty"` // the instructions
	// Int8 is of products of 8-bit integers, added up in 32 bits.
	Int8   float64 `json:"int8"`
	Int8By string  `json:"int8_by,omitempty"`
}

func (p peak) String() string {
	if p.Float32By == "" || p.Int8By == "" {
		return "peak not known"
	}
	return fmt.Sprintf("peak %.0f GFLOP/s (%s), %.0f GOP/s of int8 (%s)", p.Float32/1e9, p.Float32By, p.Int8/1e9, p.Int8By)
}

// arithmetic is a loop of independent instructions that runs n times.
type arithmetic struct {
	by         string
	operations float64 // of one time through the loop
	run        func(n int64)
}

// The loops run so often that they take a few milliseconds, and the fastest of some runs counts: other programs only
// make them slower.
const (
	peakTimes = 1 << 20
	peakRuns  = 9
)

// measurePeak runs the loops of this processor's instructions on all cores at once.
func measurePeak() (p peak) {
	floats, integers := arithmetics()
	p.Float32By, p.Float32 = fastest(floats)
	p.Int8By, p.Int8 = fastest(integers)
	return p
}

// fastest is the loop of the most operations a second.
func fastest(list []arithmetic) (by string, rate float64) {
	cores := runtime.NumCPU()
	for _, a := range list {
		for range peakRuns {
			start := time.Now()
			var wait sync.WaitGroup
			for range cores {
				wait.Go(func() { a.run(peakTimes) })
			}
			wait.Wait()
			if r := float64(cores) * peakTimes * a.operations / time.Since(start).Seconds(); r > rate {
				by, rate = a.by, r
			}
		}
	}
	return by, rate
}
