package install

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/internal/must"
)

// machine is this processor as Python names it.
var machine = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]

// useWheel patches a session with the package that was installed, and says what became of it.
const useWheel = `
import sys, numpy, onnxruntime, graft
def run():
    session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    feeds = {}
    for x in session.get_inputs():
        shape = [d if isinstance(d, int) else 2 for d in x.shape]
        feeds[x.name] = numpy.ones(shape, {"tensor(int64)": numpy.int64}.get(x.type, numpy.float32))
    return session.run(None, feeds)
before = run()
graft.enable()
after = run()
print(graft.__file__)
print(max(float(abs(a - b).max()) for a, b in zip(before, after)) < 1e-4, graft.status())
`

// TestWheel: the wheel is what pip installs, with no plugin and no record elsewhere.
func TestWheel(t *testing.T) {
	wheels, err := filepath.Glob(filepath.Join(dist(t), "*_"+machine+".whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("%v, %v", wheels, err)
	}
	peer := abs(t, "../../build/peers/new/bin/python")
	if _, err := os.Stat(peer); errors.Is(err, fs.ErrNotExist) {
		t.Skip("no ONNX Runtime for Python; make peers brings it")
	}
	to, home := t.TempDir(), t.TempDir()
	env := []string{"PATH=/usr/bin:/bin", "HOME=" + home, "PYTHONPATH=" + to, "ORT_DISABLE_TELEMETRY=1"}
	run(t, to, env, peer, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps",
		"--target", to, wheels[0])
	out := run(t, home, env, peer, "-c", useWheel, abs(t, "../../models/encoders/embedder/onnx/model.onnx"))
	at, said, _ := strings.Cut(strings.TrimSpace(out), "\n")
	if !strings.HasPrefix(at, to) || !strings.HasPrefix(said, "True ") {
		t.Errorf("found %q", out)
	}
	t.Log(said)
	if line := run(t, home, env, peer, "-m", "graft", "version"); !strings.HasPrefix(line, "graft "+version(t)+",") {
		t.Errorf("python -m graft version prints %q", line)
	}
	if line := run(t, home, env, filepath.Join(to, "bin", "graft"), "version"); !strings.HasPrefix(line,
		"graft "+version(t)+",") {
		t.Errorf("the console script prints %q", line)
	}
}

// TestNpm: npm installs the package, and its command and paths lead to what is inside.
func TestNpm(t *testing.T) {
	archive := filepath.Join(dist(t), "opgraft-"+version(t)+".tgz")
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("no npm")
	}
	folder := t.TempDir()
	env := append(os.Environ(), "HOME="+t.TempDir(), "npm_config_offline=true", "npm_config_audit=false",
		"npm_config_fund=false")
	run(t, folder, env, npm, "install", "--silent", archive)
	if line := run(t, folder, env, filepath.Join(folder, "node_modules", ".bin", "graft"),
		"version"); !strings.HasPrefix(line, "graft "+version(t)+",") {
		t.Errorf("graft version prints %q", line)
	}
	out := run(t, folder, env, "/usr/bin/env", "node", "-p", "JSON.stringify(require('opgraft'))")
	var paths struct{ Binary, Library string }
	must.Succeed(t, json.Unmarshal([]byte(out), &paths))
	for _, path := range []string{paths.Binary, paths.Library} {
		must.Value(os.Stat(path))(t)
	}
	if _, _, err := try(t, folder, env, filepath.Join(folder, "node_modules", ".bin", "graft"), "inspect",
		"no-such-file.onnx"); err == nil {
		t.Error("the command's exit code is lost")
	}
}

// TestRun: a program that knows nothing of graft has its sessions patched by what the archive holds.
func TestRun(t *testing.T) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	at := must.Value(ort.Find(""))(t)
	header := must.Value(exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go").Output())(t)
	folder := t.TempDir()
	env := []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir(), "ORT_DISABLE_TELEMETRY=1"}
	run(t, folder, env, "/bin/tar", "-xzf", filepath.Join(dist(t), "graft-"+version(t)+"-linux-"+runtime.GOARCH+".tar.gz"),
		"--strip-components=1")
	program := filepath.Join(folder, "program")
	run(t, folder, env, compiler, "-o", program, abs(t, "testdata/session.c"), "-I"+strings.TrimSpace(string(header)),
		"-ldl")
	model := abs(t, "../../models/encoders/embedder/onnx/model.onnx")
	plain := run(t, folder, env, program, at.Path, model)
	out, talk, err := try(t, folder, env, filepath.Join(folder, "bin", "graft"), "run", "--verbose", "--", program,
		at.Path, model)
	if err != nil || out != plain || !strings.Contains(talk, "replaced") {
		t.Errorf("%v: found %q, needed %q\n%s", err, out, plain, talk)
	}
}

// TestDebian: the package holds what the archive does, in a system's places.
func TestDebian(t *testing.T) {
	tool, err := exec.LookPath("dpkg-deb")
	if err != nil {
		t.Skip("no dpkg-deb")
	}
	folder := t.TempDir()
	env := []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir()}
	archive := filepath.Join(dist(t), "graft_"+version(t)+"_"+runtime.GOARCH+".deb")
	run(t, folder, env, tool, "-x", archive, folder)
	if line := run(t, folder, env, filepath.Join(folder, "usr/bin/graft"), "version"); !strings.HasPrefix(line,
		"graft "+version(t)+",") {
		t.Errorf("graft version prints %q", line)
	}
	for _, name := range []string{"usr/lib/graft/libgraft.so", "usr/share/doc/graft/copyright",
		"usr/share/doc/graft/THIRD-PARTY-LICENSES.txt", "usr/share/man/man1/graft.1.gz"} {
		must.Value(os.Stat(filepath.Join(folder, name)))(t)
	}
	if fields := run(t, folder, env, tool, "-f", archive, "Architecture", "Depends"); !strings.Contains(fields,
		runtime.GOARCH) || !strings.Contains(fields, "libc6 (>= 2.28)") {
		t.Errorf("found %q", fields)
	}
}
