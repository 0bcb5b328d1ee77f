package ort

import (
	"fmt"
	"os"
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

// callC calls a C function without arguments.
func callC(fn uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn)
	return r
}
