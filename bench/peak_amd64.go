package main

import "golang.org/x/sys/cpu"

// Twelve independent sums hide the latency of a multiply-add on processors of today; six where each takes two
// registers.
const peakSums, peakPairs = 12, 6

//go:noescape
func multiplyAdd256(n int64)

//go:noescape
func multiplyAdd512(n int64)

//go:noescape
func multiplyBytes256(n int64)

//go:noescape
func dotBytes512(n int64)

// arithmetics are the loops that this processor can run.
func arithmetics() (floats, integers []arithmetic) {
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		floats = append(floats, arithmetic{"vfmadd231ps ymm", 2 * 8 * peakSums, multiplyAdd256})
		integers = append(integers, arithmetic{"vpmaddubsw, vpmaddwd, vpaddd ymm", 2 * 32 * peakPairs, multiplyBytes256})
	}
	if cpu.X86.HasAVX512F {
		floats = append(floats, arithmetic{"vfmadd231ps zmm", 2 * 16 * peakSums, multiplyAdd512})
	}
	if cpu.X86.HasAVX512VNNI {
		integers = append(integers, arithmetic{"vpdpbusd zmm", 2 * 64 * peakSums, dotBytes512})
	}
	return floats, integers
}
