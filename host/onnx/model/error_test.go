package model

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

func TestFailuresNameTheFix(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES},
			"found permission denied; check the permissions of the file and its folder"},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.EROFS},
			"found read-only file system; choose a folder that can be written"},
		{&os.LinkError{Op: "rename", Old: "x", New: "y", Err: syscall.ENOSPC},
			"found no space left on device; free some space or choose another folder"},
		{&fs.PathError{Op: "stat", Path: "x", Err: syscall.ELOOP},
			"found links that lead in a circle; point them at the file"},
		{syscall.EIO, "found input/output error"},
	} {
		wantError(t, failure("x", "write the file", c.err), "x: cannot write the file: "+c.want)
	}
}

// Each cause is told apart by its kind, and what the system reports is found too.
func TestKinds(t *testing.T) {
	dir := t.TempDir()
	valid := encode(t, modelOf(graphOf(rawTensor("w", onnx.Tensor_FLOAT, make([]byte, 40), 2, 5))))
	file := func(name string, data []byte) string { return writeFile(t, filepath.Join(dir, name), data) }
	outside := encode(t, modelOf(graphOf(externalTensor("w", "absent.bin", 0, 40, 10))))
	open := func(path string, limits ...Limits) error {
		m, err := Open(path, limits...)
		if err == nil {
			m.Close()
		}
		return err
	}
	kinds := []error{ErrNotModel, ErrDamaged, ErrExternalData, ErrLimit, ErrTooLarge, ErrInUse, ErrMisused}
	for _, c := range []struct {
		name      string
		err       error
		kind, too error
	}{
		{"absent", open(filepath.Join(dir, "absent.onnx")), nil, fs.ErrNotExist},
		{"empty", open(file("empty.onnx", nil)), ErrNotModel, nil},
		{"image", open(file("image.onnx", []byte("\x89PNG and more"))), ErrNotModel, nil},
		{"folder", open(dir), ErrNotModel, nil},
		{"cut off", open(file("cut.onnx", valid[:len(valid)-9])), ErrDamaged, nil},
		{"external data", open(file("outside.onnx", outside)), ErrExternalData, fs.ErrNotExist},
		{"limit", open(file("large.onnx", valid), Limits{Elements: 5}), ErrLimit, nil},
		{"overwritten", mustOpen(t, file("own.onnx", valid)).Write(t.Context(), modelOf(graphOf()),
			filepath.Join(dir, "own.onnx"), WriteOptions{}), ErrInUse, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, kind := range kinds {
				must.Equal(t, errors.Is(c.err, kind), kind == c.kind)
			}
			if c.too != nil && !errors.Is(c.err, c.too) {
				t.Errorf("%v is not %v", c.err, c.too)
			}
			var e *diagnostic.Error
			if !errors.As(c.err, &e) || e.Path == "" || e.Found == "" || e.Fix == "" {
				t.Errorf("%#v lacks a part", e)
			}
		})
	}
}
