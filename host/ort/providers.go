package ort

import (
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/opgraft/graft/host/base/cuda/signals"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// CUDA is the name of ONNX Runtime's execution provider for NVIDIA GPUs.
const CUDA = "CUDAExecutionProvider"

// WithSignals makes a call of ONNX Runtime that may start a provider's driver. CUDA's takes signal handlers that
// Go needs.
func WithSignals(foreign bool, f func()) {
	if foreign {
		signals.Preserve(f)
		return
	}
	f()
}

// ProviderName is a provider's name in full: where ONNX Runtime takes short ones, they lack the end.
func ProviderName(name string) string {
	const end = "ExecutionProvider"
	if strings.HasSuffix(name, end) {
		return name
	}
	return name + end
}

// Providers lists the execution providers that the runtime was built with, best first.
func (l *Library) Providers() ([]string, error) {
	var list uintptr
	var n int32
	if err := l.Try("GetAvailableProviders", slot.GetAvailableProviders, uintptr(unsafe.Pointer(&list)),
		uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	names := make([]string, n)
	for i := range names {
		names[i] = cmem.GoString(cmem.LoadWord(list, i))
	}
	return names, l.Try("ReleaseAvailableProviders", slot.ReleaseAvailableProviders, list, uintptr(n))
}

// An Appended is an execution provider that session options were given.
type Appended struct {
	Name   string // in full, "CUDAExecutionProvider"
	Device int    // number of its device; 0 where the options name none
}

// AppendProvider appends a provider that is not in the list: the first of a name counts, as in ONNX Runtime.
func AppendProvider(list []Appended, p Appended) []Appended {
	if slices.ContainsFunc(list, func(q Appended) bool { return q.Name == p.Name }) {
		return list
	}
	return append(list, p)
}

// DeviceNumber reads the number of a device, 0 where it is none.
func DeviceNumber(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
