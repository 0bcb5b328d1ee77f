package readme

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/tests/graftcommand"
)

// root is the repository's root.
func root(t *testing.T) string {
	t.Helper()
	path := must.Value(filepath.Abs("../.."))(t)
	return path
}

// pluginsBuilt is the folder of the plugins that `make plugins` built.
func pluginsBuilt(t *testing.T) string {
	t.Helper()
	path := filepath.Join(root(t), "build", "plugins")
	if _, err := os.Stat(filepath.Join(path, "flash-decode", manifest.FileName)); err != nil {
		t.Fatalf("the plugins are not built: %v; run make plugins", err)
	}
	return path
}

// built is the graft command of this source with the plugins beside it, and the data of a user who verified them;
// once for all tests.
var built struct {
	sync.Once
	folder, data string
	err          error
	output       []byte
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.folder != "" {
		os.RemoveAll(built.folder)
	}
	os.Exit(code)
}

func graftCommand(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		if built.folder, built.err = os.MkdirTemp("", "graft-readme-"); built.err != nil {
			return
		}
		if built.err = graftcommand.Write(filepath.Join(built.folder, "graft")); built.err == nil {
			built.err = os.CopyFS(filepath.Join(built.folder, "plugins"), os.DirFS(pluginsBuilt(t)))
		}
		if built.err == nil {
			built.err = tool(root(t), "cp", "build/cmake/libgraft.so", built.folder)
		}
		if built.err == nil {
			built.data = filepath.Join(built.folder, "data")
			verify := exec.Command("sh", "-c", "exec ./graft plugin verify --quiet plugins/*")
			verify.Dir = built.folder
			verify.Env = readerEnvironment(t, built.folder, built.folder)
			built.output, built.err = verify.CombinedOutput()
		}
	})
	if built.err != nil {
		t.Fatalf("building the command: %v\n%s", built.err, built.output)
	}
	return built.folder
}

// sandbox is a reader's folder, home and environment.
type sandbox struct {
	folder string
	env    []string
}

// newSandbox makes what the documents presume: the command on PATH, a model.onnx, a model folder and inputs for it,
// plugin folders by the names that the documents use, and the plugins verified as `make demo` does.
func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	bin, plugins := graftCommand(t), pluginsBuilt(t)
	s := &sandbox{folder: t.TempDir()}
	home := t.TempDir()
	data := must.Value(os.ReadFile(filepath.Join(root(t), "models", "tiny-gpt2", "model.onnx")))(t)
	must := func(err error) {
		t.Helper()
		must.Succeed(t, err)
	}
	for _, path := range []string{"model.onnx", "models/tiny-gpt2/model.onnx"} {
		must(os.MkdirAll(filepath.Dir(filepath.Join(s.folder, path)), 0o755))
		must(os.WriteFile(filepath.Join(s.folder, path), data, 0o644))
	}
	must(os.CopyFS(filepath.Join(s.folder, "models", "g2p"), os.DirFS(filepath.Join(root(t), "models", "g2p"))))
	must(os.CopyFS(filepath.Join(s.folder, "models", "encoders"), os.DirFS(filepath.Join(root(t), "models", "encoders"))))
	must(os.WriteFile(filepath.Join(s.folder, "pairs.tsv"), []byte("a query\ta document\tanother\n"), 0o644))
	must(os.WriteFile(filepath.Join(s.folder, "words.txt"), []byte("hello\nworld\n\nplugin\n"), 0o644))
	must(os.CopyFS(filepath.Join(s.folder, "build", "plugins"), os.DirFS(plugins)))
	must(os.CopyFS(filepath.Join(s.folder, "flash-decode"), os.DirFS(filepath.Join(plugins, "flash-decode"))))
	must(os.Symlink(bin, filepath.Join(s.folder, "bin")))
	must(tool(s.folder, "tar", "-czf", "flash-decode-0.1.0.tar.gz", "-C", "build/plugins", "flash-decode"))

	must(shareCache(filepath.Join(home, ".cache")))
	must(os.CopyFS(filepath.Join(home, "data"), os.DirFS(built.data)))
	s.env = readerEnvironment(t, home, bin)
	return s
}

// readerEnvironment is that of a reader with a home and the command on PATH, who set nothing.
func readerEnvironment(t *testing.T, home, bin string) []string {
	t.Helper()
	runtime := must.Value(ort.Find(""))(t)
	return environment(map[string]string{
		"HOME": home, "XDG_DATA_HOME": filepath.Join(home, "data"), "XDG_CACHE_HOME": filepath.Join(home, ".cache"),
		"PATH":              bin + ":" + os.Getenv("PATH"),
		"GRAFT_ONNXRUNTIME": runtime.Path, "GRAFT_PLUGIN_PATH": "", "GRAFT_PLUGIN_UNVERIFIED": "",
	})
}

// shareCache makes a cache folder with all that lies in the user's, but for what graft measures: figures
// taken while tests run are worth nothing.
func shareCache(to string) error {
	from, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	for _, folder := range []string{"", "graft"} {
		if err := os.MkdirAll(filepath.Join(to, folder), 0o755); err != nil {
			return err
		}
		entries, err := os.ReadDir(filepath.Join(from, folder))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			switch name := filepath.Join(folder, e.Name()); name {
			case "graft", "graft/machine.json", "graft/tune":
			default:
				if err := os.Symlink(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// environment is the test's own with some variables set anew, or taken out where they are empty, and
// with Go's and the runtime's caches where they were, whatever HOME is.
func environment(set map[string]string) []string {
	out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOPATH", "GOENV").Output()
	if lines := strings.Split(strings.TrimSpace(string(out)), "\n"); err == nil && len(lines) == 4 {
		for i, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOENV"} {
			set[name] = lines[i]
		}
	}
	if cache, err := os.UserCacheDir(); err == nil && set["XDG_CACHE_HOME"] == "" {
		set["XDG_CACHE_HOME"] = cache
	}
	var list []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if _, ok := set[name]; !ok {
			list = append(list, entry)
		}
	}
	for name, value := range set {
		if value != "" {
			list = append(list, name+"="+value)
		}
	}
	return list
}

// tool runs a program in a folder.
func tool(folder, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = folder
	return cmd.Run()
}
