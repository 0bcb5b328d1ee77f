package model

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// settle waits until the clock that files are stamped by has gone on.
func settle() { time.Sleep(step) }

// deployed is a model of one weight inline and one in a file beside it, open.
func deployed(t *testing.T) (m *Model, path, data string, weights []*onnx.Tensor) {
	t.Helper()
	dir := t.TempDir()
	_, a := floats(1, 2000)
	_, b := floats(2, 2000)
	data = writeFile(t, filepath.Join(dir, "w.bin"), b)
	path = writeFile(t, filepath.Join(dir, "m.onnx"), encode(t, modelOf(graphOf(
		rawTensor("a", onnx.Tensor_FLOAT, a, 2000), externalTensor("b", "w.bin", 0, 8000, 2000)))))
	m = mustOpen(t, path)
	return m, path, data, m.Proto().GetGraph().Initializer
}

// TestChangesAreSeen: whatever is read of a file after it changed is an error, whether it is the model's own or
// external data, and whatever stays as it was.
func TestChangesAreSeen(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"one byte in place": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt([]byte{1}, 4000)
			return err
		},
		"one byte in place, and its time set back": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b[4000]++
			if err := os.WriteFile(path, b, 0o644); err != nil {
				return err
			}
			return os.Chtimes(path, info.ModTime(), info.ModTime())
		},
		"cut to half": func(path string) error { return os.Truncate(path, 4000) },
		"cut to zero": func(path string) error { return os.Truncate(path, 0) },
		"grown":       func(path string) error { return os.Truncate(path, 1<<20) },
		"replaced by a copy": func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path+".new", b, 0o644); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
	} {
		for i, which := range []string{"model", "external data"} {
			m, path, data, weights := deployed(t)
			settle()
			must.Succeed(t, change([]string{path, data}[i]))
			must.Fail(t, must.Error(m.Data(weights[i])), ErrInUse)
			must.Value(m.Data(weights[1-i]))(t, which, name, "reading a weight of the other file")
			for _, o := range []SerializeOptions{{}, {Held: true}} {
				must.Fail(t, must.Error(m.Serialize(m.Proto(), o)), ErrInUse)
			}
			out := filepath.Join(t.TempDir(), "out.onnx")
			must.Fail(t, m.Write(t.Context(), m.Proto(), out, WriteOptions{}), ErrInUse)
			if _, err := os.Stat(out); err == nil {
				t.Errorf("%s, %s: a model was written", which, name)
			}
		}
	}
}

// TestNothingStaysMapped: a model that is open, and weights that are held, leave no mapping of their files.
func TestNothingStaysMapped(t *testing.T) {
	m, path, data, weights := deployed(t)
	s := must.Value(m.Serialize(m.Proto(), SerializeOptions{Held: true}))(t)
	defer s.Release()
	for _, w := range weights {
		mustData(t, m, w)
	}
	maps := must.Value(os.ReadFile("/proc/self/maps"))(t)
	for _, p := range []string{path, data} {
		if bytes.Contains(maps, []byte(p)) {
			t.Errorf("%s is mapped", p)
		}
	}
}

// TestSessionsShareWeights of the same content of a file, and of no other.
func TestSessionsShareWeights(t *testing.T) {
	hold := func(path string) (*byte, func()) {
		t.Helper()
		m := must.Value(Open(path))(t)
		defer m.Close()
		s := must.Value(m.Serialize(m.Proto(), SerializeOptions{Held: true}))(t)
		return &s.Weights[0].Data[0], s.Release
	}
	_, w := floats(1, 2000)
	path := writeFile(t, filepath.Join(t.TempDir(), "m.onnx"),
		encode(t, modelOf(graphOf(rawTensor("w", onnx.Tensor_FLOAT, w, 2000)))))

	first, releaseFirst := hold(path)
	second, releaseSecond := hold(path)
	if first == second {
		t.Error("weights of a file that changed just now are shared")
	}
	releaseFirst()
	releaseSecond()

	for identityOf(stat(t, path)).age() <= coarse {
		time.Sleep(100 * time.Millisecond)
	}
	first, releaseFirst = hold(path)
	second, releaseSecond = hold(path)
	if first != second {
		t.Error("weights of one file are in memory twice")
	}
	w[0]++
	writeFile(t, path, encode(t, modelOf(graphOf(rawTensor("w", onnx.Tensor_FLOAT, w, 2000)))))
	third, releaseThird := hold(path)
	if third == first || *third != w[0] || *first == w[0] {
		t.Error("weights of a file that changed are those of before")
	}
	held := len(holding.files) // 1, or 2 where the changed one was no new file any more when it was read
	releaseFirst()
	must.Equal(t, len(holding.files), held)
	releaseSecond()
	releaseThird()
	if len(holding.files) != 0 {
		t.Errorf("%d files are held when nobody reads them, want none", len(holding.files))
	}
}

// TestWeightsBeyondMemoryAreRefused: a sparse file may claim any size, and is refused before it is read.
func TestWeightsBeyondMemoryAreRefused(t *testing.T) {
	const size = 1 << 42 // 4 TiB
	dir := t.TempDir()
	path := writeFile(t, filepath.Join(dir, "w.bin"), nil)
	must.Succeed(t, os.Truncate(path, size))
	m := mustOpen(t, writeFile(t, filepath.Join(dir, "m.onnx"),
		encode(t, modelOf(graphOf(externalTensor("w", "w.bin", 0, size, size/4))))))
	must.Fail(t, must.Error(m.Data(m.Proto().GetGraph().Initializer[0])), ErrTooLarge)
	must.Fail(t, must.Error(m.Serialize(m.Proto(), SerializeOptions{Held: true})), ErrTooLarge)
}

func stat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info := must.Value(os.Stat(path))(t)
	return info
}

// TestFilesThatCannotBeMapped are read where they are small, and never become memory of their size.
func TestFilesThatCannotBeMapped(t *testing.T) {
	defer func(before func(*os.File, int) ([]byte, func() error, error)) { mapping = before }(mapping)
	mapping = func(*os.File, int) ([]byte, func() error, error) { return nil, nil, syscall.ENODEV }
	m, path, _, weights := deployed(t)
	mustData(t, m, weights[0])
	must.Succeed(t, os.Truncate(path, 1<<42))
	must.Fail(t, must.Error(Open(path)), syscall.ENODEV)
}
