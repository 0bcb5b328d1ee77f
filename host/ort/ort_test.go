package ort

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/internal/must"
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
	in := must.Value(NewTensor(s.library, []int64{int64(len(x))}, x))(t)
	defer in.Close()
	results := must.Value(s.Run(context.Background(), map[string]*Value{"x": in}))(t)
	defer closeAll(results)
	y := must.Value(Data[float32](results[0]))(t)
	return slices.Clone(y)
}

func session(t testing.TB, model []byte, o SessionOptions) *Session {
	t.Helper()
	s := must.Value(library.NewSessionFromBytes(model, o))(t)
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
