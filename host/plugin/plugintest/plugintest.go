// Package plugintest makes plugins for tests: a small one in C, with flags for what can be wrong with it.
package plugintest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/opgraft/graft/host/plugin/internal/driver"
)

// fixtures holds the compiled variations of testdata/plugin.c, by their flags.
var fixtures struct {
	sync.Mutex
	folder string
	built  map[string]string
}

// Main runs a package's tests on the machine that driver.MachineVariable names and without a developer's
// settings. first runs before them: it may turn this process into a child. Main never returns.
func Main(m *testing.M, first ...func()) {
	if text := os.Getenv(driver.MachineVariable); text != "" {
		driver.Play(text)
	}
	for _, f := range first {
		f()
	}
	os.Unsetenv("GRAFT_PLUGIN_UNVERIFIED") // would hide refusals
	folder, err := os.MkdirTemp("", "graft-fixtures-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fixtures.folder = folder
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}

// Play makes this process and its children a machine, as driver.MachineVariable names it.
func Play(t testing.TB, text string) {
	t.Helper()
	t.Cleanup(driver.Play(text))
	t.Setenv(driver.MachineVariable, text)
}

// root is the repository's folder, from that of the package whose tests run.
func root(t testing.TB) string {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		above := filepath.Dir(folder)
		if above == folder {
			t.Fatal("found no go.mod above the working directory")
		}
		folder = above
	}
}

// Build compiles the fixture plugin with flags and returns the library's path, which tests must not
// change. Its package's TestMain calls Main.
func Build(t testing.TB, flags ...string) string {
	t.Helper()
	fixtures.Lock()
	defer fixtures.Unlock()
	key := strings.Join(flags, " ")
	if path, ok := fixtures.built[key]; ok {
		return path
	}
	if fixtures.folder == "" {
		t.Fatal("no folder for fixtures: TestMain did not call Main")
	}
	folder, err := os.MkdirTemp(fixtures.folder, "")
	if err != nil {
		t.Fatal(err)
	}
	path, top := filepath.Join(folder, "libtoy.so"), root(t)
	Compile(t, path, append([]string{"-DARCH=\"" + runtime.GOARCH + "\"", "-I" + filepath.Join(top, "abi"),
		filepath.Join(top, "host/plugin/plugintest/testdata/plugin.c")}, flags...)...)
	if fixtures.built == nil {
		fixtures.built = map[string]string{}
	}
	fixtures.built[key] = path
	return path
}

// Compile makes a shared library.
func Compile(t testing.TB, out string, args ...string) {
	t.Helper()
	cmd := exec.Command("cc", append([]string{"-shared", "-fPIC", "-O1", "-fvisibility=hidden", "-o", out}, args...)...)
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, output)
	}
}

// Constructor is a source in C whose constructor writes the file MARK.
func Constructor(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "constructor.c")
	WriteFile(t, path, []byte("#include <stdio.h>\n__attribute__((constructor)) static void run(void) { "+
		"fclose(fopen(MARK, \"w\")); }\n"))
	return path
}

// Manifest describes the fixture; cases are appended by the tests that want some.
const Manifest = Head + Variants + `operators:
  - name: Scale
    replaces:
      pattern: {inputs: [x], outputs: [y], nodes: [{op: Mul, in: [x, c], out: [y]}], constants: {c: {value: 2}}}
    cost: {bandwidth: 0.9, flops: 0.5, overhead_us: 1}
`

// Write makes a plugin folder of a manifest and a library.
func Write(t testing.TB, folder, manifest, library string) string {
	t.Helper()
	manifest = strings.ReplaceAll(manifest, "amd64", runtime.GOARCH)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	WriteFile(t, filepath.Join(folder, "plugin.yaml"), []byte(manifest))
	if library != "" {
		WriteFile(t, filepath.Join(folder, "libtoy.so"), ReadFile(t, library))
	}
	return folder
}

// Versioned makes the folder of the fixture's plugin in a version, with cases.
func Versioned(t testing.TB, folder, version string, flags ...string) string {
	t.Helper()
	return Write(t, folder, strings.Replace(Manifest, "version: 0.1.0", "version: "+version, 1)+Cases,
		Build(t, append(flags, "-DVERSION=\""+version+"\"")...))
}

// WriteFile writes a file of the test's.
func WriteFile(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// ReadFile reads a file that must be there.
func ReadFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Places gives a test its own data folder and no GRAFT_PLUGIN_PATH.
func Places(t *testing.T) (data string) {
	t.Helper()
	data = t.TempDir()
	t.Setenv("XDG_DATA_HOME", data)
	t.Setenv("GRAFT_PLUGIN_PATH", "")
	return filepath.Join(data, "graft")
}

// Head is the part of a manifest before its variants.
const Head = `schema_version: 1
name: toy
version: 0.1.0
abi: "1.0"
license: Apache-2.0
summary: a toy
`

// Variants names the fixture's library for the CPU.
const Variants = `variants:
  - {device: cpu, os: linux, arch: amd64, file: libtoy.so}
`

// Cases are conformance cases that the fixture passes.
const Cases = `cases:
  - name: twice
    operator: Scale
    inputs: {x: {shape: [3, 5], seed: 1}}
    expect: {formula: {y: 2 * x}}
    tolerance: {absolute: 0}
  - name: by three
    operator: Scale
    attributes: {by: 3.0}
    inputs: {x: {shape: [2], values: [1, -0.5]}}
    expect: {values: {y: [3, -1.5]}}
    tolerance: {relative: 1e-6}
  - name: nothing
    operator: Scale
    inputs: {x: {shape: [0, 7]}}
    expect: {values: {y: []}}
    tolerance: {absolute: 0}
`

// SHA256 is that of a file that must be there, in hexadecimal.
func SHA256(t testing.TB, path string) string {
	t.Helper()
	return fmt.Sprintf("%x", sha256.Sum256(ReadFile(t, path)))
}
