package ort

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/ebitengine/purego"
)

// library is the runtime that all tests run on.
var library *Library

func TestMain(m *testing.M) {
	if os.Getenv(markNotLoaded) != "" {
		_, err := Loaded()
		fmt.Println(err)
		os.Exit(m.Run())
	}
	var err error
	if library, err = FindAndOpen(""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// run runs a session of y = f(x) over float32[n].
func run(t testing.TB, s *Session, x ...float32) []float32 {
	t.Helper()
	in, err := NewTensor(s.library, []int64{int64(len(x))}, x)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	results, err := s.Run(context.Background(), map[string]*Value{"x": in})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(results)
	y, err := Data[float32](results[0])
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(y)
}

func session(t testing.TB, model []byte, o SessionOptions) *Session {
	t.Helper()
	s, err := library.NewSessionFromBytes(model, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func expect(t testing.TB, what string, found []float32, want ...float32) {
	t.Helper()
	if !slices.Equal(found, want) {
		t.Errorf("%s: got %v, want %v", what, found, want)
	}
}

// callC calls a C function without arguments.
func callC(fn uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn)
	return r
}
