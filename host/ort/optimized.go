package ort

import (
	"fmt"
	"io"
	"unsafe"
)

// Optimized is the graph that ONNX Runtime makes of the program's own model with the program's options, in ONNX's form. It
// makes and releases a session, in which no weights are packed. No file is written but in memory.
func (r Request) Optimized() ([]byte, error) {
	f, path, err := memoryFile("graft-optimized")
	if err != nil {
		return nil, fmt.Errorf("no file in memory: %w", err)
	}
	defer f.Close()
	if err := r.optimize(r.Library, path); err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, 0, 1<<62))
}

func (r Request) optimize(l *Library, path string) error {
	options, err := l.silent(r.options)
	if err == nil && options == 0 {
		err = l.try("CreateSessionOptions", slotCreateSessionOptions, uintptr(unsafe.Pointer(&options)))
	}
	if err != nil {
		return err
	}
	defer l.call(slotReleaseSessionOptions, options)
	to, err := cString(path)
	if err != nil {
		return err
	}
	if err := l.try("SetOptimizedModelFilePath", slotSetOptimizedModelFilePath, options, uintptr(unsafe.Pointer(to))); err != nil {
		return err
	}
	// It warns that the file is for this machine alone, and it is for this moment.
	if err := l.try("SetSessionLogSeverityLevel", slotSetSessionLogSeverityLevel, options, uintptr(LogError-LogVerbose)); err != nil {
		return err
	}
	if err := l.addConfig(options, map[string]string{"session.disable_prepacking": "1"}); err != nil {
		return err
	}
	s, err := r.session(nil, options)
	if err != nil {
		return err
	}
	s.Close()
	return nil
}
