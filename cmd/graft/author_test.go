package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/internal/must"
)

// inRoot is the environment variable with which TestFiveCommands runs in a root directory of its own. It needs to be
// root.
const inRoot = "GRAFT_AUTHOR_ROOT"

// authorPrograms makes a folder with what an author's machine has, a shell with a few words and compilers for C and
// C++, and gives its path.
func authorPrograms(t *testing.T, folder string) string {
	t.Helper()
	must.Succeed(t, os.Mkdir(folder, 0o755))
	for _, name := range []string{"sh", "sed", "mv", "grep", "g++", "c++", "cc", "as", "ld"} {
		path := must.Value(exec.LookPath(name))(t)
		must.Succeed(t, os.Symlink(path, filepath.Join(folder, name)))
	}
	return folder
}

// fiveCommands are the lines of the first block under a heading of abi/README.md, as they stand there.
func fiveCommands(t *testing.T) []string {
	t.Helper()
	page := must.Value(os.ReadFile("../../abi/README.md"))(t)
	_, section, ok := strings.Cut(string(page), "\n## A plugin in five commands\n")
	_, block, begins := strings.Cut(section, "```text\n")
	block, _, ends := strings.Cut(block, "\n```")
	if !ok || !begins || !ends {
		t.Fatal("abi/README.md has no block under A plugin in five commands")
	}
	return strings.Split(block, "\n")
}

// TestFiveCommands runs what abi/README.md begins with, word by word, where there are only graft, compilers and ONNX
// Runtime. It says how long each command took: go test -v -run TestFiveCommands ./cmd/graft. With GRAFT_AUTHOR_ROOT=1
// the root directory has nothing else either.
func TestFiveCommands(t *testing.T) {
	commands := fiveCommands(t)
	if len(commands) > 5 {
		t.Fatalf("%d commands, promised are 5:\n%s", len(commands), strings.Join(commands, "\n"))
	}
	runtime := must.Value(ort.Find(""))(t)
	graft := must.Value(exec.LookPath("graft"))(t)
	folder := t.TempDir()
	work := filepath.Join(folder, "work")
	must.Succeed(t, os.Mkdir(work, 0o755))
	place := workshop{folder: folder, work: work, graft: filepath.Dir(graft),
		programs: authorPrograms(t, filepath.Join(folder, "programs")), runtime: runtime.Path}
	if os.Getenv(inRoot) != "" {
		place.root(t)
	}
	if out, err := place.run("go version"); err == nil {
		t.Fatalf("the author's machine has Go: %s", out.text)
	}
	var libraries [][32]byte
	var all spent
	for _, command := range commands {
		out, err := place.run(command)
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out.text)
		}
		t.Logf("%6.2f s, %6.2f s of processors  %s", out.wall.Seconds(), out.processor.Seconds(), command)
		all.wall, all.processor, all.text = all.wall+out.wall, all.processor+out.processor, out.text
		if strings.HasPrefix(command, "graft plugin build") {
			library := must.Value(os.ReadFile(filepath.Join(work, "my-mish/build/my-mish/libmy_mish.so")))(t)
			libraries = append(libraries, sha256.Sum256(library))
		}
	}
	t.Logf("%6.2f s, %6.2f s of processors  all %d", all.wall.Seconds(), all.processor.Seconds(), len(commands))
	if len(libraries) != 2 || libraries[0] == libraries[1] {
		t.Errorf("the kernel that was compared is not one that was changed: %x", libraries)
	}
	for _, want := range []string{"answers of b against a: equal", "b  my-mish    3 of 3"} {
		if !strings.Contains(all.text, want) {
			t.Errorf("the comparison does not say %q:\n%s", want, all.text)
		}
	}
}

// workshop is where the author of a plugin works.
type workshop struct {
	folder, work, graft, programs, runtime string
	script                                 string // that enters a root directory of its own, if it does
}

// spent is what a command took and printed.
type spent struct {
	wall, processor time.Duration
	text            string
}

// run gives a line to the author's shell. The editor puts another number into the kernel.
func (w *workshop) run(line string) (spent, error) {
	cmd := exec.Command(filepath.Join(w.programs, "sh"), "-c", line)
	if w.script != "" {
		cmd = exec.Command("unshare", "--mount", "--pid", "--fork", "--net", "sh", "-ec", w.script, "sh", line)
	}
	cmd.Dir = w.work
	cmd.Env = []string{"PATH=" + w.graft + ":" + w.programs, "HOME=" + w.folder, "GRAFT_ONNXRUNTIME=" + w.runtime,
		"EDITOR=sed -i s/16384/8192/", "TMPDIR=" + w.work}
	if w.script != "" {
		cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"), "AUTHOR_PATH=/author/graft:/author/programs")
	}
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	return spent{time.Since(begin), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), string(out)}, err
}

// root prepares a root directory with compilers, libraries and what graft is given; /usr/local, the home folders and
// the tree are not in it.
func (w *workshop) root(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatalf("%s is set: found user %d, needed root, who can change the root directory", inRoot, os.Getuid())
	}
	root := filepath.Join(w.folder, "root")
	for _, name := range []string{"usr", "proc", "dev", "tmp", "author/work", "author/graft", "author/programs",
		"author/runtime"} {
		must.Succeed(t, os.MkdirAll(filepath.Join(root, name), 0o755))
	}
	quoted := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	var script strings.Builder
	fmt.Fprintf(&script, "mount --make-rprivate /\ncd %s\nmount --rbind /usr usr\nmount -t tmpfs none usr/local\nmount "+
		"--rbind /dev dev\nmount -t proc none proc\n", quoted(root))
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		target, err := os.Readlink("/" + name)
		if err != nil {
			fmt.Fprintf(&script, "[ ! -d /%[1]s ] || { mkdir -p %[1]s; mount --rbind /%[1]s %[1]s; }\n", name)
		} else if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "etc/alternatives"), 0o755); err != nil { // where Debian's c++ leads
		t.Fatal(err)
	}
	script.WriteString("[ ! -d /etc/alternatives ] || mount --bind /etc/alternatives etc/alternatives\n")
	for name, from := range map[string]string{"work": w.work, "graft": w.graft, "programs": w.programs,
		"runtime": filepath.Dir(w.runtime)} {
		fmt.Fprintf(&script, "mount --rbind %s author/%s\n", quoted(from), name)
	}
	script.WriteString(`GRAFT_ONNXRUNTIME=/author/runtime/` + quoted(filepath.Base(w.runtime)) + ` HOME=/author TMPDIR=/tmp
line=$1
exec chroot . /usr/bin/env PATH="$AUTHOR_PATH" /author/programs/sh -c "cd /author/work; $line"
`)
	w.script = script.String()
}

// TestDevelop: graft plugin dev builds and compares again when a source changes, waits when the compiler refuses it,
// and on Ctrl-C ends with a plugin that is whole, in the midst of a build too.
func TestDevelop(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a plugin several times")
	}
	runtime := must.Value(ort.Find(""))(t)
	folder := t.TempDir()
	environment := append(os.Environ(), "HOME="+folder, "XDG_DATA_HOME="+folder, "GRAFT_ONNXRUNTIME="+runtime.Path)
	graft := func(args ...string) *exec.Cmd {
		cmd := exec.Command("graft", args...)
		cmd.Dir, cmd.Env = folder, environment
		return cmd
	}
	if out, err := graft("plugin", "new", "in-c", "--lang", "c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	source := filepath.Join(folder, "in-c/in_c.c")
	good := must.Value(os.ReadFile(source))(t)
	save := func(text []byte) {
		t.Helper()
		must.Succeed(t, storage.Write(source, text, storage.Shared))
	}
	library := func() string {
		data := must.Value(os.ReadFile(filepath.Join(folder, "in-c/build/in-c/libin_c.so")))(t)
		return string(data)
	}
	cmd := graft("plugin", "dev", "in-c", "in-c/example.onnx", "--", "--rounds", "1")
	var out transcript
	cmd.Stdout, cmd.Stderr = &out, &out
	must.Succeed(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()

	const waits = "waiting for a change in in-c; Ctrl-C ends\n"
	out.await(t, waits)
	first := library()
	save(append(bytes.Clone(good), "int broken"...))
	if text := out.await(t, waits); !strings.Contains(text, "changed: in_c.c\n") ||
		!strings.Contains(text, "in_c.c: cc refused it") || strings.Contains(text, "as fast as") {
		t.Errorf("a source with an error:\n%s", text)
	}
	must.Equal(t, library(), first)
	save(bytes.ReplaceAll(good, []byte("chunk = 16384"), []byte("chunk = 8192")))
	if text := out.await(t, waits); !strings.Contains(text, "changed: in_c.c\n") ||
		!strings.Contains(text, "2 cases passed") || !strings.Contains(text, "3 of 3") {
		t.Errorf("a source without one:\n%s", text)
	}
	second := library()
	if second == first {
		t.Error("the library is that of before")
	}
	save(bytes.ReplaceAll(good, []byte("chunk = 16384"), []byte("chunk = 4096")))
	out.await(t, "compiling in_c.c\n")
	must.Succeed(t, cmd.Process.Signal(syscall.SIGINT))
	_ = cmd.Wait()
	late := strings.Contains(out.text.String(), "did not stop within") // on a machine that is busy
	if code := cmd.ProcessState.ExitCode(); code != exitOK && !(code == exitInterrupted && late) {
		t.Errorf("exit code %d, want %d", code, exitOK)
	}
	must.Equal(t, strings.Join(holds(t, filepath.Join(folder, "in-c/build/in-c")), " "), "libin_c.so plugin.yaml")
	if out, err := graft("plugin", "verify", "in-c/build/in-c").CombinedOutput(); err != nil {
		t.Errorf("what is left: %v: %s", err, out)
	}
}

// transcript is what a process prints, to be waited for.
type transcript struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (s *transcript) Write(p []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.text.Write(p)
}

// await takes the text up to a line out.
func (s *transcript) await(t *testing.T, line string) string {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		s.mutex.Lock()
		if at := strings.Index(s.text.String(), line); at >= 0 {
			text := string(s.text.Next(at + len(line)))
			s.mutex.Unlock()
			return text
		}
		s.mutex.Unlock()
	}
	t.Fatalf("no line %q in\n%s", line, s.text.String())
	return ""
}
