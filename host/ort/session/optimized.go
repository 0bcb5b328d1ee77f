package session

import (
	"fmt"
	"unsafe"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// Optimized hands over the graph that ONNX Runtime makes of the program's own model with the program's options, in
// ONNX's form: in memory that is gone when use returns. It makes and releases a session, in which no weights are
// packed, and writes no file but in memory.
func (r Request) Optimized(use func(model []byte) error) error {
	f, path, err := memoryFile("graft-optimized")
	if err != nil {
		return fmt.Errorf("no file in memory: %w", err)
	}
	defer f.Close()
	if err := r.optimize(r.Library, path); err != nil {
		return err
	}
	return mapped(f, use)
}

func (r Request) optimize(l *ort.Library, path string) error {
	options, err := l.Options(r.options).Silent()
	if err == nil && options == 0 {
		err = l.Try("CreateSessionOptions", slot.CreateSessionOptions, uintptr(unsafe.Pointer(&options)))
	}
	if err != nil {
		return err
	}
	defer l.Call(slot.ReleaseSessionOptions, options)
	to, err := cmem.CString(path)
	if err != nil {
		return err
	}
	if err := l.Try("SetOptimizedModelFilePath", slot.SetOptimizedModelFilePath, options,
		uintptr(unsafe.Pointer(to))); err != nil {
		return err
	}
	// It warns that the file is for this machine alone, and it is for this moment.
	if err := l.Try("SetSessionLogSeverityLevel", slot.SetSessionLogSeverityLevel, options,
		uintptr(LogError-LogVerbose)); err != nil {
		return err
	}
	if err := l.Options(options).AddConfig(map[string]string{"session.disable_prepacking": "1"}); err != nil {
		return err
	}
	s, err := r.session(nil, options)
	if err != nil {
		return err
	}
	s.Close()
	trim() // another session follows
	return nil
}
