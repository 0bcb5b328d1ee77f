// Package probe makes sessions of which only what comes with them matters.
package probe

import (
	"errors"
	"unsafe"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// model is y = x, of one float32.
var model = []byte("\x08\x08" + // IR version 8
	"\x3a\x37" + // the graph
	"\x0a\x10" + "\x0a\x01x" + "\x12\x01y" + "\x22\x08Identity" + // the node
	"\x12\x01i" + // its name
	"\x5a\x0f" + "\x0a\x01x" + "\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01" + // input
	"\x62\x0f" + "\x0a\x01y" + "\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01" + // output
	"\x42\x02\x10\x0d") // opset 13

// Session makes a session, to be released, that neither computes nor speaks nor has an arena of its own. Its options
// are those that also sets.
func Session(l *ort.Library, env uintptr, also func(options uintptr) error) (session uintptr, err error) {
	var options uintptr
	if err := l.Try("CreateSessionOptions", slot.CreateSessionOptions, uintptr(unsafe.Pointer(&options))); err != nil {
		return 0, err
	}
	defer l.Call(slot.ReleaseSessionOptions, options)
	const fatal, none = 4, 0
	if err := errors.Join(
		l.Try("SetIntraOpNumThreads", slot.SetIntraOpNumThreads, options, 1),
		l.Try("SetSessionGraphOptimizationLevel", slot.SetSessionGraphOptimizationLevel, options, none),
		l.Try("SetSessionLogSeverityLevel", slot.SetSessionLogSeverityLevel, options, fatal),
		l.Try("DisableCpuMemArena", slot.DisableCpuMemArena, options),
		also(options)); err != nil {
		return 0, err
	}
	err = l.TakeStatus("CreateSessionFromArray",
		l.Original(slot.CreateSessionFromArray, env, uintptr(unsafe.Pointer(unsafe.SliceData(model))), uintptr(len(model)),
			options, uintptr(unsafe.Pointer(&session))))
	return session, err
}
