// Package install uses what cmd/release wrote as a stranger does: a Go module on a machine without a compiler, a
// program in a root with nothing in it, archives and packages. It needs the folder dist, which make release writes,
// or GRAFT_DIST.
package install

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/textgen"
)

// dist is the folder of the release.
func dist(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("GRAFT_DIST")
	if folder == "" {
		folder = "../../dist"
	}
	folder = must.Value(filepath.Abs(folder))(t)
	if _, err := os.Stat(filepath.Join(folder, "SHA256SUMS")); errors.Is(err, fs.ErrNotExist) &&
		os.Getenv("GRAFT_DIST") == "" {
		t.Skip("no release in dist; make release writes one")
	} else if err != nil {
		t.Fatal(err)
	}
	return folder
}

// version is that of the release.
func version(t *testing.T) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dist(t), "graft-*-linux-"+runtime.GOARCH+".tar.gz"))
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v; needed one archive for this machine", list, err)
	}
	return regexp.MustCompile(`graft-(.*)-linux`).FindStringSubmatch(filepath.Base(list[0]))[1]
}

// words are what the programs pronounce.
var words = []string{"grafting", "kernel", "encoder"}

// pronounced is what this tree makes of them.
func pronounced(t *testing.T, folder string) string {
	t.Helper()
	t.Setenv("GRAFT_PLUGIN_UNVERIFIED", "1")
	t.Setenv("GRAFT_PLUGIN_PATH", abs(t, "../../build/plugins"))
	g := must.Value(textgen.New(t.Context(), folder, textgen.Options{Search: textgen.Search{Beams: 4}}))(t)
	defer g.Close()
	var b strings.Builder
	for out, err := range g.Generate(t.Context(), slices.Values(words), textgen.Search{}) {
		must.Succeed(t, err)
		fmt.Fprintln(&b, out.Hypotheses[0].Text)
	}
	return b.String()
}

func abs(t *testing.T, path string) string {
	t.Helper()
	path = must.Value(filepath.Abs(path))(t)
	return path
}

// stranger is the environment of someone who has Go, and what these name.
func stranger(t *testing.T, more ...string) []string {
	t.Helper()
	root := must.Value(exec.Command("go", "env", "GOROOT").Output())(t)
	cache := must.Value(exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOPROXY").Output())(t)
	lines := strings.Split(strings.TrimSpace(string(cache)), "\n")
	// The module cache is this machine's, where the same version of graft may be from another release: theirs is made
	// anew.
	return append([]string{"PATH=" + filepath.Join(strings.TrimSpace(string(root)), "bin"),
		"GOPROXY=file://" + dist(t) + "/go," + "file://" + lines[1] + "/cache/download," + lines[2],
		"GOCACHE=" + lines[0], "GOMODCACHE=" + modules, "GONOSUMDB=*", "GOFLAGS=-modcacherw -trimpath",
		"HOME=" + t.TempDir()}, more...)
}

// modules is the cache of modules of all programs here.
var modules string

func TestMain(m *testing.M) {
	var err error
	if modules, err = os.MkdirTemp("", "graft-modules-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(modules)
	os.Exit(code)
}

// run runs a command of a folder, which must succeed, and gives what it prints.
func run(t *testing.T, folder string, env []string, name string, args ...string) string {
	t.Helper()
	out, talk, err := try(t, folder, env, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, talk)
	}
	return out
}

func try(t *testing.T, folder string, env []string, name string, args ...string) (out, talk string, err error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	for _, v := range env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok && !strings.Contains(name, "/") {
			name = filepath.Join(filepath.SplitList(path)[0], name)
		}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	var o, e bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = folder, env, &o, &e
	err = cmd.Run()
	return o.String(), e.String(), err
}

// program is a folder with the program of a name in testdata.
func program(t *testing.T, name string) string {
	t.Helper()
	text := must.Value(os.ReadFile(filepath.Join("testdata", name+".go.txt")))(t)
	folder := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "main.go"), text, 0o644))
	return folder
}

// TestGo: three commands lead from nothing to the answers of a trained model, with no compiler, no plugin and no
// record.
func TestGo(t *testing.T) {
	folder, env := program(t, "pronounce"), stranger(t)
	at := must.Value(ort.Find(""))(t)
	env = append(env, "GRAFT_ONNXRUNTIME="+at.Path)
	model := abs(t, "../../models/g2p")
	begin := time.Now()
	run(t, folder, env, "go", "mod", "init", "example.com/pronounce")
	run(t, folder, env, "go", "mod", "tidy")
	fetched := time.Since(begin)
	got := run(t, folder, env, "go", append([]string{"run", ".", model}, words...)...)
	t.Logf("modules %v, build and run %v", fetched.Round(time.Second), (time.Since(begin) - fetched).Round(time.Second))
	must.Equal(t, got, pronounced(t, model))
	must.Fail(t, must.Error(os.Stat(filepath.Join(value(env, "HOME"), ".local"))), fs.ErrNotExist)
}

// value is the last of a variable.
func value(env []string, name string) (found string) {
	for _, v := range env {
		if text, ok := strings.CutPrefix(v, name+"="); ok {
			found = text
		}
	}
	return found
}

// root is a file system with a program, what it loads, and a model; nobody but root can write to it.
func root(t *testing.T, binary string, libraries []string, model string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("another root needs root")
	}
	folder := t.TempDir()
	// The folders above it are of this test alone.
	for at := folder; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		must.Succeed(t, os.Chmod(at, 0o755))
	}
	copied := func(from, to string) {
		t.Helper()
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(folder, to)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, to), data, 0o755)
		}
		must.Succeed(t, err)
	}
	copied(binary, "/program")
	for _, at := range append([]string{binary}, libraries...) {
		if at != binary {
			copied(at, "/lib/"+filepath.Base(at))
		}
		out := must.Value(exec.Command("ldd", at).Output())(t, "ldd", at)
		for _, m := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(string(out), -1) {
			copied(m[1], m[1])
		}
	}
	must.Succeed(t, os.CopyFS(filepath.Join(folder, "model"), os.DirFS(model)))
	return folder
}

// TestScratch: a program in a root with nothing but itself and what it loads, for a user without a name, a home or a
// place to write.
func TestScratch(t *testing.T) {
	source, env := program(t, "pronounce"), stranger(t, "CGO_ENABLED=0")
	run(t, source, env, "go", "mod", "init", "example.com/pronounce")
	run(t, source, env, "go", "mod", "tidy")
	run(t, source, env, "go", "build", "-o", "program", ".")
	at := must.Value(ort.Find(""))(t)
	model := abs(t, "../../models/g2p")
	want := pronounced(t, model)
	for _, c := range []struct {
		name   string
		places []string // that exist besides; those with a star can be written
		env    []string
		fails  string
	}{
		{name: "with /proc, nothing to write", places: []string{"proc"}},
		{name: "with /proc and a home", places: []string{"proc", "home*"}, env: []string{"HOME=/home"}},
		{name: "a home that is not there", places: []string{"proc"}, env: []string{"HOME=/nonexistent"}},
		{name: "a cache that cannot be written", places: []string{"proc", "cache"}, env: []string{"XDG_CACHE_HOME=/cache"}},
		{name: "without /proc, /tmp to write", places: []string{"tmp*"}},
		{name: "without /proc, /dev/shm to write", places: []string{"dev/shm*"}},
		{name: "without /proc, nothing to write", fails: "set TMPDIR to a writable folder"},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := root(t, filepath.Join(source, "program"), []string{at.Path}, model)
			proc := ""
			for _, place := range c.places {
				name, written := strings.CutSuffix(place, "*")
				path := filepath.Join(folder, name)
				must.Succeed(t, os.MkdirAll(path, 0o755))
				if written {
					must.Succeed(t, os.Chown(path, 65532, 65532))
				}
				if name == "proc" {
					proc = path
				}
			}
			script := `set -e; [ -z "$1" ] || mount -t proc proc "$1"; root=$2; shift 2; exec chroot --userspec=65532:65532 "$root" "$@"`
			env := append([]string{"PATH=" + os.Getenv("PATH"), "GRAFT_ONNXRUNTIME=/lib/" + filepath.Base(at.Path)}, c.env...)
			args := append([]string{"--mount", "sh", "-c", script, "sh", proc, folder, "/program", "/model"}, words...)
			out, talk, err := try(t, folder, env, unshare(t), args...)
			switch {
			case c.fails != "":
				if err == nil || !strings.Contains(talk, c.fails) {
					t.Errorf("%v, found %q, needed %q", err, talk, c.fails)
				}
			case err != nil || out != want:
				t.Errorf("%v: found %q, needed %q\n%s", err, out, want, talk)
			}
			written, err := filepath.Glob(filepath.Join(folder, "home/.cache/graft/plugins/*/*/plugin.yaml"))
			if slices.Contains(c.places, "home*") != (len(written) > 0) {
				t.Errorf("written to the home: %q, %v", written, err)
			}
		})
	}
}

func unshare(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip("no unshare")
	}
	return path
}

// TestGoSessions: the one line of onnxruntime_go's programs finds what the program carries, and plans a model once
// for the session that looks at it.
func TestGoSessions(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("onnxruntime_go needs a C compiler")
	}
	source, env := program(t, "sessions"), stranger(t)
	path := value(env, "PATH") + string(os.PathListSeparator) + os.Getenv("PATH")
	at := must.Value(ort.Find(""))(t)
	env = append(env, "PATH="+path, "GRAFT_ONNXRUNTIME="+at.Path)
	run(t, source, env, "go", "mod", "init", "example.com/sessions")
	run(t, source, env, "go", "mod", "tidy")
	run(t, source, env, "go", "build", "-o", "program", ".")
	out, talk, err := try(t, source, env, filepath.Join(source, "program"), abs(t, "../../models/tiny-gpt2/model.onnx"))
	if err != nil || !regexp.MustCompile(`model planned.* replaced=[1-9]`).MatchString(talk) {
		t.Errorf("%v: %q\n%s", err, out, talk)
	}
	if size, err := os.Stat(filepath.Join(source, "program")); err == nil {
		t.Logf("the program has %d bytes", size.Size())
	}
}

// TestArchive: the script installs what the sums say and nothing else, and the graft that is installed brings its
// plugins.
func TestArchive(t *testing.T) {
	folder := dist(t)
	prefix, home := t.TempDir(), t.TempDir()
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + home}
	install := func(from string, more ...string) (string, error) {
		_, talk, err := try(t, t.TempDir(), append(env, more...), "/bin/sh", filepath.Join(folder, "install.sh"), from,
			prefix)
		return talk, err
	}
	if talk, err := install(folder); err != nil {
		t.Fatalf("%v\n%s", err, talk)
	}
	binary := filepath.Join(prefix, "bin", "graft")
	line := run(t, prefix, env, binary, "version")
	for _, want := range []string{"graft " + version(t) + ",", "commit ", "plugin flash-decode ", "plugin packed-linear ",
		"ONNX Runtime that doctor --fetch brings: "} {
		if !strings.Contains(line, want) {
			t.Errorf("graft version prints %q, needed %q", line, want)
		}
	}
	out := run(t, prefix, env, binary, "patch", abs(t, "../../models/tiny-gpt2/model.onnx"), "-o",
		filepath.Join(home, "patched.onnx"), "--force")
	if !strings.Contains(out, filepath.Join(home, ".cache", "graft", "plugins")) {
		t.Errorf("graft patch prints %q, needed libraries in the cache", out)
	}
	for _, name := range []string{"share/man/man1/graft-ab.1.gz", "share/bash-completion/completions/graft",
		"share/zsh/site-functions/_graft"} {
		if info, err := os.Stat(filepath.Join(prefix, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}

	// Anything else is refused, and what is installed stays.
	archive := "graft-" + version(t) + "-linux-" + runtime.GOARCH + ".tar.gz"
	other := t.TempDir()
	for _, name := range []string{archive, "SHA256SUMS"} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(other, name), data, 0o644)
		}
		must.Succeed(t, err)
	}
	f, err := os.OpenFile(filepath.Join(other, archive), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("x"), 1000)
		err = errors.Join(err, f.Close())
	}
	must.Succeed(t, err)
	before := sum(t, binary)
	for name, attempt := range map[string]func() (string, error){
		"found another sha256 than SHA256SUMS says": func() (string, error) { return install(other) },
		"as GRAFT_SUMS says":                        func() (string, error) { return install(folder, "GRAFT_SUMS=0123") },
		"needed an https address":                   func() (string, error) { return install("http://localhost") },
		"cannot be read":                            func() (string, error) { return install(t.TempDir()) },
	} {
		if talk, err := attempt(); err == nil || !strings.Contains(talk, name) {
			t.Errorf("%v: %q, needed %q", err, talk, name)
		}
	}
	must.Equal(t, sum(t, binary), before)
}

func sum(t *testing.T, path string) string {
	t.Helper()
	f := must.Value(os.Open(path))(t)
	defer f.Close()
	h := sha256.New()
	must.Value(io.Copy(h, f))(t)
	return hex.EncodeToString(h.Sum(nil))
}

// TestSums: every file is in the list, with its hash.
func TestSums(t *testing.T) {
	folder := dist(t)
	text := must.Value(os.ReadFile(filepath.Join(folder, "SHA256SUMS")))(t)
	listed := map[string]string{}
	for line := range strings.Lines(string(text)) {
		hash, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		listed[name] = hash
	}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "SHA256SUMS" {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err == nil && listed[name] != sum(t, path) {
			t.Errorf("%s: %q in the list", name, listed[name])
		}
		delete(listed, name)
		return err
	})
	if err != nil || len(listed) > 0 {
		t.Errorf("%v; listed and not there: %v", err, listed)
	}
}
