package model

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/opgraft/graft/host/diagnostic"
)

// source is a file, or bytes of the caller's, that payloads lie in.
type source struct {
	path  string      // with every link resolved; "" for bytes in memory
	shown string      // how messages name it
	info  fs.FileInfo // of the file when it was first seen
	size  int64

	mu      sync.Mutex
	data    []byte // the whole content, mapped on first use
	mapped  bool
	release func() error
}

func memorySource(b []byte) *source {
	return &source{shown: "model bytes", size: int64(len(b)), data: b, mapped: true}
}

// fileSource describes the regular file at a path without links. The file is
// not opened, so that a model with thousands of external files costs none.
func fileSource(path, shown string) (*source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, failure(shown, "look at the file", err)
	}
	switch {
	case info.IsDir():
		return nil, &diagnostic.Error{Kind: ErrNotModel, Path: shown, Found: "is a folder", Needed: "an ONNX file", Fix: "name the .onnx file inside it"}
	case !info.Mode().IsRegular():
		// A pipe would block on open and cannot be mapped.
		return nil, &diagnostic.Error{Kind: ErrNotModel, Path: shown, Found: "is not a regular file: found " + info.Mode().Type().String(),
			Needed: "a file", Fix: "copy it to a file first"}
	}
	return &source{path: path, shown: shown, info: info, size: info.Size()}, nil
}

// open opens the file anew and makes sure it is the one that was described.
func (s *source) open() (*os.File, error) {
	f, err := os.Open(s.path)
	if err != nil {
		return nil, failure(s.shown, "open the file", err)
	}
	now, err := f.Stat()
	if err == nil && (!os.SameFile(now, s.info) || now.Size() != s.size) {
		err = s.changed()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (s *source) changed() error {
	return &diagnostic.Error{Kind: ErrInUse, Path: s.shown, Found: "the file changed while it was in use",
		Needed: fmt.Sprintf("the same %d bytes", s.size), Fix: "open the model again"}
}

// bytes is a view of n bytes at offset, which the caller has checked to lie
// inside. The pages are read when they are touched.
func (s *source) bytes(offset, n int64) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mapped {
		if err := s.load(); err != nil {
			return nil, err
		}
	}
	if s.data == nil && s.size > 0 {
		return nil, &diagnostic.Error{Kind: ErrMisused, Path: s.shown, Found: "the model is closed", Fix: "read its tensors before Close"}
	}
	if offset < 0 || n < 0 || offset > int64(len(s.data))-n {
		return nil, &diagnostic.Error{Kind: ErrDamaged, Path: s.shown, Found: fmt.Sprintf("a tensor lies outside its file: found bytes %d to %d", offset, offset+n),
			Needed: fmt.Sprintf("at most %d", len(s.data)), Fix: fixDamaged}
	}
	return s.data[offset : offset+n : offset+n], nil
}

func (s *source) load() error {
	f, err := s.open()
	if err != nil {
		return err
	}
	defer f.Close()
	if s.size > 0 {
		if s.size != int64(int(s.size)) {
			return &diagnostic.Error{Kind: ErrTooLarge, Path: s.shown, Found: fmt.Sprintf("the file is larger than this machine can map: found %d bytes", s.size),
				Fix: "use a 64-bit machine"}
		}
		data, release, err := mapFile(f, int(s.size))
		if err != nil {
			// Some file systems cannot map; reading costs memory, not answers.
			data = make([]byte, s.size)
			if _, err := f.ReadAt(data, 0); err != nil && err != io.EOF {
				return failure(s.shown, "read the file", err)
			}
			release = func() error { return nil }
		}
		s.data, s.release = data, release
	}
	s.mapped = true
	return nil
}

func (s *source) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data, s.mapped = nil, true
	if s.release == nil {
		return nil
	}
	release := s.release
	s.release = nil
	return release()
}
