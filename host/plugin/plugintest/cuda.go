package plugintest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TwoVariants is the fixture's manifest with a library for each device.
var TwoVariants = strings.Replace(Manifest, "operators:",
	"  - {device: cuda, os: linux, arch: amd64, file: libtoy_cuda.so}\noperators:", 1)

// WriteBoth makes the folder of a plugin with the libraries of these paths; "" for an absent one.
func WriteBoth(t testing.TB, manifest, cpu, cuda string) string {
	t.Helper()
	folder := Write(t, filepath.Join(t.TempDir(), "toy-source"), manifest, cpu)
	if cuda != "" {
		WriteFile(t, filepath.Join(folder, "libtoy_cuda.so"), ReadFile(t, cuda))
	}
	return folder
}

// Marked is a CUDA variant of the fixture that leaves a file when any of it runs.
func Marked(t testing.TB, flags ...string) (library, mark string) {
	t.Helper()
	mark = filepath.Join(t.TempDir(), "ran")
	return Build(t, append([]string{`-DFOR_CUDA="13"`, `-DMARK_IN_CONSTRUCTOR="` + mark + `"`}, flags...)...), mark
}

// Exists reports whether there is a file.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
