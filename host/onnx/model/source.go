package model

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/memory"
)

// source is a file, or bytes of the caller's, that payloads lie in. What lies in a file is read into memory of
// our own, never mapped: others may change the file at any time, or cut it short. The one exception is the
// structure of a model, while it is read.
type source struct {
	path  string      // with every link resolved; "" for bytes in memory
	shown string      // how messages name it
	info  fs.FileInfo // of the file when it was first seen
	size  int64
	data  []byte   // of the caller's; nil for a file
	made  *layouts // of a source whose bytes are made when they are read

	mu     sync.Mutex
	file   *os.File // open since it was first read
	closed bool
	open   *atomic.Int32 // files that the model has open
}

// maxOpen is how many files of a model stay open. A model may have thousands, a process may not.
const maxOpen = 64

func memorySource(b []byte) *source {
	return &source{shown: "model bytes", size: int64(len(b)), data: b}
}

// fileSource describes the regular file at a path without links. The file is
// not opened, so that a model with thousands of external files costs none.
func fileSource(path, shown string) (*source, error) {
	info, err := settled(path)
	if err != nil {
		return nil, failure(shown, "look at the file", err)
	}
	switch {
	case info.IsDir():
		return nil, &diagnostic.Error{Kind: ErrNotModel, Path: shown, Found: "is a folder", Needed: "an ONNX file",
			Fix: "name the .onnx file inside it"}
	case !info.Mode().IsRegular():
		// A pipe would block on open.
		return nil, &diagnostic.Error{Kind: ErrNotModel, Path: shown,
			Found:  "is not a regular file: found " + info.Mode().Type().String(),
			Needed: "a file", Fix: "copy it to a file first"}
	}
	return &source{path: path, shown: shown, info: info, size: info.Size(), open: new(atomic.Int32)}, nil
}

func (s *source) changed() error {
	return &diagnostic.Error{Kind: ErrInUse, Path: s.shown, Found: "the file changed while it was read",
		Needed: fmt.Sprintf("the same %d bytes", s.size), Fix: "open the model again"}
}

// use calls f with the open file, and is an error where the file is not what it was when it was first seen,
// before f and after it.
func (s *source) use(f func(*os.File) error) error {
	file, done, err := s.acquire()
	if err != nil {
		return err
	}
	defer done()
	if err := s.same(file); err != nil {
		return err
	}
	err = f(file)
	if changed := s.same(file); changed != nil {
		return changed // says more than what came of it
	}
	return err
}

// same is an error where an open file is not what was first seen.
func (s *source) same(file *os.File) error {
	now, err := file.Stat()
	if err != nil {
		return failure(s.shown, "look at the file", err)
	}
	if identityOf(now) != identityOf(s.info) {
		return s.changed()
	}
	return nil
}

// unchanged is an error where the file that was read is not what it was, even where nothing of it is read any more.
func (s *source) unchanged() error {
	if s.path == "" {
		return nil
	}
	return s.use(func(*os.File) error { return nil })
}

// acquire opens the file, or has it from before.
func (s *source) acquire() (file *os.File, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, &diagnostic.Error{Kind: ErrMisused, Path: s.shown, Found: "the model is closed",
			Fix: "read its tensors before Close"}
	}
	if s.file != nil {
		return s.file, func() {}, nil
	}
	if file, err = os.Open(s.path); err != nil {
		return nil, nil, failure(s.shown, "open the file", err)
	}
	if s.open.Add(1) > maxOpen {
		s.open.Add(-1)
		return file, func() { file.Close() }, nil
	}
	s.file = file
	return file, func() {}, nil
}

// large is what is read whole only where it has to be, and only where the system has that much memory.
const large = 64 << 20

// bytes are n at offset, which the caller has checked to lie inside: a view of the caller's, or read from the file.
func (s *source) bytes(offset, n int64) ([]byte, error) {
	if err := s.inside(offset, n); err != nil {
		return nil, err
	}
	if s.made != nil {
		return s.made.bytes(offset, n)
	}
	if s.path == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed {
			return nil, &diagnostic.Error{Kind: ErrMisused, Path: s.shown, Found: "the model is closed",
				Fix: "read its tensors before Close"}
		}
		return s.data[offset : offset+n : offset+n], nil
	}
	if err := affordable(s.shown, n); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	return b, s.read(b, offset)
}

// affordable refuses what the system has no memory for: a sparse file may claim any size.
func affordable(shown string, n int64) error {
	if n < large {
		return nil
	}
	if left := memory.Available(); left > 0 && n > left {
		return &diagnostic.Error{Kind: ErrTooLarge, Path: shown,
			Found:  fmt.Sprintf("weights need more memory than there is: found %d bytes", n),
			Needed: fmt.Sprintf("at most %d", left), Fix: "use a machine with more memory"}
	}
	return nil
}

func (s *source) inside(offset, n int64) error {
	if offset < 0 || n < 0 || offset > s.size-n {
		return &diagnostic.Error{Kind: ErrDamaged, Path: s.shown,
			Found:  fmt.Sprintf("a tensor lies outside its file: found bytes %d to %d", offset, offset+n),
			Needed: fmt.Sprintf("at most %d", s.size), Fix: fixDamaged}
	}
	return nil
}

// read fills b from the file.
func (s *source) read(b []byte, offset int64) error {
	return s.use(func(f *os.File) error { return s.readFrom(f, b, offset) })
}

func (s *source) readFrom(f *os.File, b []byte, offset int64) error {
	_, err := f.ReadAt(b, offset)
	switch {
	case err == io.EOF:
		return s.changed()
	case err != nil:
		return failure(s.shown, "read the file", err)
	}
	return nil
}

// mapping is replaced by tests.
var mapping = mapFile

// view calls f with the whole content. That of a file is mapped meanwhile: f runs under catchFault, and what it
// makes refers to nothing of it.
func (s *source) view(f func([]byte) error) error {
	if s.path == "" {
		return f(s.data)
	}
	return s.use(func(file *os.File) (err error) {
		if s.size == 0 {
			return f(nil)
		}
		if s.size != int64(int(s.size)) {
			return &diagnostic.Error{Kind: ErrTooLarge, Path: s.shown,
				Found: fmt.Sprintf("the file is larger than this machine can map: found %d bytes", s.size),
				Fix:   "use a 64-bit machine"}
		}
		b, unmap, err := mapping(file, int(s.size))
		if err != nil && s.size <= large { // some file systems cannot map
			b, unmap = make([]byte, s.size), func() error { return nil }
			err = s.readFrom(file, b, 0)
		}
		if err != nil {
			return &diagnostic.Error{Path: s.shown, Found: "the file cannot be mapped: found " + err.Error(),
				Fix: "copy it to a file system that can", Cause: err}
		}
		defer unmap()
		defer catchFault(s, &err)()
		return f(b)
	})
}

func (s *source) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil
	return f.Close()
}
