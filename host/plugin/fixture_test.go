package plugin

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// fixtures holds the compiled variations of testdata/fixture, by their flags.
var fixtures struct {
	sync.Mutex
	folder string
	built  map[string]string
}

// buildFixture compiles the fixture plugin with flags and returns the library's path, which tests must not
// change.
func buildFixture(t testing.TB, flags ...string) string {
	t.Helper()
	fixtures.Lock()
	defer fixtures.Unlock()
	key := strings.Join(flags, " ")
	if path, ok := fixtures.built[key]; ok {
		return path
	}
	if fixtures.folder == "" {
		t.Fatal("no folder for fixtures: TestMain did not run")
	}
	folder, err := os.MkdirTemp(fixtures.folder, "")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "libtoy.so")
	compile(t, path, append([]string{"-DARCH=\"" + runtime.GOARCH + "\"", "-I../../abi", "testdata/fixture/plugin.c"}, flags...)...)
	if fixtures.built == nil {
		fixtures.built = map[string]string{}
	}
	fixtures.built[key] = path
	return path
}

func compile(t testing.TB, out string, args ...string) {
	t.Helper()
	cmd := exec.Command("cc", append([]string{"-shared", "-fPIC", "-O1", "-fvisibility=hidden", "-o", out}, args...)...)
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, output)
	}
}

// toyManifest describes the fixture; cases are appended by the tests that want some.
const toyManifest = head + variantLines + `operators:
  - name: Scale
    replaces:
      pattern: {inputs: [x], outputs: [y], nodes: [{op: Mul, in: [x, c], out: [y]}], constants: {c: {value: 2}}}
    cost: {bandwidth: 0.9, flops: 0.5, overhead_us: 1}
`

// writePlugin makes a plugin folder of a manifest and a library.
func writePlugin(t testing.TB, folder, manifest, library string) string {
	t.Helper()
	manifest = strings.ReplaceAll(manifest, "amd64", runtime.GOARCH)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(folder, ManifestName), []byte(manifest))
	if library != "" {
		writeFile(t, filepath.Join(folder, "libtoy.so"), readFile(t, library))
	}
	return folder
}

func writeFile(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
