package hostile

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	onnxruntime "github.com/yalue/onnxruntime_go"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/internal/must"
)

// run feeds 1, -2, 3, -4 to a model from x to y.
func run(t *testing.T, path string) ([]float32, error) {
	t.Helper()
	s := must.Value(session(path))(t)
	defer s.Destroy()
	x := must.Value(onnxruntime.NewTensor(onnxruntime.NewShape(4), []float32{1, -2, 3, -4}))(t)
	defer x.Destroy()
	out := []onnxruntime.Value{nil}
	if err := s.Run([]onnxruntime.Value{x}, out); err != nil {
		return nil, err
	}
	defer out[0].Destroy()
	return slices.Clone(out[0].(*onnxruntime.Tensor[float32]).GetData()), nil
}

// TestPluginRefusesToCreate: the session is made unpatched with one warning that
// carries the plugin's words; strictly, it is not made.
func TestPluginRefusesToCreate(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "model.onnx"), encode(t, simple("Relu")))
	log := enable(t, graft.Options{})
	got, err := run(t, path)
	must.Succeed(t, err)
	must.Equal(t, got, []float32{1, 0, 3, 0})
	lines := log.take(t)
	if len(lines) == 0 || lines[len(lines)-1].Level != "WARN" ||
		!strings.Contains(lines[len(lines)-1].Reason, "the trap makes no kernels") {
		t.Errorf("the log says %+v, want a warning with the plugin's words", lines)
	}
	warnings := 0
	for _, l := range lines {
		if l.Level == "WARN" {
			warnings++
		}
	}
	must.Equal(t, warnings, 1)
	enable(t, graft.Options{Strict: true})
	if s, err := session(path); err == nil {
		s.Destroy()
		t.Error("strictly, a session was made")
	} else if !strings.Contains(err.Error(), "graft: "+path+" was not patched: ") ||
		!strings.Contains(err.Error(), "the trap makes no kernels") {
		t.Errorf("strictly: %v", err)
	}
}

// TestTheModelRunsWhereThePluginFails: the program gets the model's own answer, with one warning that carries the
// plugin's words, and from then on the session runs unpatched.
func TestTheModelRunsWhereThePluginFails(t *testing.T) {
	for op, want := range map[string][]float32{"Neg": {-1, 2, -3, 4}, "Floor": {1, -2, 3, -4}} {
		path := write(t, filepath.Join(t.TempDir(), "model.onnx"), encode(t, simple(op)))
		log := enable(t, graft.Options{})
		before := graft.Reverted()
		for range 2 {
			must.Equal(t, must.Value(run(t, path))(t, op), want, op)
		}
		warnings := 0
		for _, l := range log.take(t) {
			if l.Level == "WARN" && (strings.Contains(l.Reason, "the trap cannot run") ||
				strings.Contains(l.Reason, "ThrowNumber")) {
				warnings++
			}
		}
		if n := graft.Reverted() - before; warnings != 2 || n != 2 {
			t.Errorf("%s: %d warnings and %d reverted of two sessions", op, warnings, n)
		}
		disable(t)
	}
}

// TestPluginFailsToRun: strictly, the run is an error with the plugin's words, and other
// sessions go on.
func TestPluginFailsToRun(t *testing.T) {
	for op, want := range map[string]string{"Neg": "the trap cannot run", "Floor": "ThrowNumber"} {
		path := write(t, filepath.Join(t.TempDir(), "model.onnx"), encode(t, simple(op)))
		log := enable(t, graft.Options{Strict: true})
		for range 2 {
			must.Fail(t, must.Error(run(t, path)), want)
		}
		if lines := log.take(t); len(lines) != 2 || lines[0].Replaced != 1 {
			t.Errorf("%s: the log says %+v", op, lines)
		}
		disable(t)
		must.Value(run(t, path))(t, op, "without graft")
		code, stdout, stderr := command(t, trapped(), "ab", path, "--force", "--rounds", "1")
		if code != 1 || stdout != "" || !strings.Contains(stderr, "graft: b (auto): ") || !strings.Contains(stderr, want) {
			t.Errorf("graft ab: exit code %d, %q, %q", code, stdout, stderr)
		}
	}
}

// TestPluginWritesNaN: graft ab finds it.
func TestPluginWritesNaN(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "model.onnx"), encode(t, simple("Abs")))
	code, stdout, stderr := command(t, trapped(), "ab", path, "--force", "--rounds", "1")
	if code != 5 || !strings.Contains(stdout, "DIFFERENT") || !strings.Contains(stdout, "not finite") ||
		!strings.Contains(stdout, "4 of 4 elements are NaN or infinite on one side") ||
		!strings.Contains(stderr, "the answers differ between none and auto") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, _ = command(t, trapped(), "ab", path, "--force", "--rounds", "1", "-o", "json")
	if code != 5 || !strings.Contains(stdout, `"schema_version": 2`) {
		t.Errorf("as JSON: exit code %d, %q", code, stdout)
	}
}

// TestInstall: what a plugin does when it is run for the first time is a
// message, and the store stays as it was.
func TestInstall(t *testing.T) {
	crash, hang, idle := filepath.Join(t.TempDir(), "trap"), filepath.Join(t.TempDir(), "trap"),
		filepath.Join(t.TempDir(), "trap")
	for folder, macro := range map[string]string{crash: "-DCRASH_IN_CONSTRUCTOR", hang: "-DHANG_IN_CONSTRUCTOR",
		idle: "-DHANG_IN_CREATE"} {
		must.Succeed(t, buildTrap(folder, macro))
	}
	with := func(lines string) string {
		folder := filepath.Join(t.TempDir(), "trap")
		must.Succeed(t, os.CopyFS(folder, os.DirFS(made.trap)))
		f, err := os.OpenFile(filepath.Join(folder, "plugin.yaml"), os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(lines)
		}
		must.Succeed(t, err)
		f.Close()
		return folder
	}
	of := func(operator string) string {
		return with("cases:\n  - name: bad\n    operator: " + operator +
			"\n    inputs: {x: {shape: [5], seed: 1}}\n    expect: {formula: {y: \"x\"}}\n    tolerance: {absolute: 1, " +
			"relative: 1}\n")
	}
	cut := with("")
	must.Succeed(t, os.Truncate(filepath.Join(cut, "libtrap.so"), 3000))
	text := with("")
	write(t, filepath.Join(text, "libtrap.so"), []byte("no library\n"))
	cases := []struct {
		name, source string
		code         int
		want         []string
	}{
		{"crash in a constructor", crash, 3, []string{"libtrap.so"}},
		{"hang in a constructor", hang, 3, []string{"libtrap.so", "2s"}},
		{"no cases, and a kernel that hangs when it is made", idle, 3,
			[]string{"plugin.yaml", "found no case for RefuseCreate"}},
		{"a case that cannot be created", of("RefuseCreate"), 3, []string{"the trap makes no kernels"}},
		{"a case that fails", of("FailRun"), 3, []string{"the trap cannot run"}},
		{"a case that throws a number", of("ThrowNumber"), 3, []string{"bad"}},
		{"a case that writes NaN", of("WriteNaN"), 3, []string{`case "bad" failed`}},
		{"a library that is cut off", cut, 4, []string{"libtrap.so"}},
		{"a library that is text", text, 4, []string{"libtrap.so", "needed an ELF shared library"}},
		{"an unknown key", with("surprise: 1\n"), 1, []string{"plugin.yaml", "surprise"}},
		{"an archive that leads out", archive(t, &tar.Header{Name: "../escaped", Typeflag: tar.TypeReg}), 1,
			[]string{"../escaped"}},
		{"an archive with an absolute path", archive(t, &tar.Header{Name: "/tmp/escaped", Typeflag: tar.TypeReg}), 1,
			[]string{"/tmp/escaped"}},
		{"an archive with a link",
			archive(t, &tar.Header{Name: "plugin.yaml", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}), 1,
			[]string{"plugin.yaml", "link"}},
		{"an archive with a device", archive(t, &tar.Header{Name: "zero", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5}),
			1, []string{"zero"}},
		{"an archive of nothing", archive(t), 1, []string{"plugin.yaml"}},
		{"an archive with a damaged signature", unsigned(t, "damaged"), 3, []string{"minisig", "found invalid signature"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			data := t.TempDir()
			code, stdout, stderr := command(t, []string{"XDG_DATA_HOME=" + data}, "plugin", "install", "-q", "--allow-unsigned",
				"--deadline", "2s", c.source)
			if code != c.code || stdout != "" || !strings.HasPrefix(stderr, "graft: ") {
				t.Errorf("exit code %d, %q, %q, want %d", code, stdout, stderr, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q lacks %q", stderr, want)
				}
			}
			must.Equal(t, names(t, filepath.Join(data, "graft", "plugins")), ".lock")
			if _, err := os.Stat(filepath.Join(data, "graft", "verified.json")); err == nil {
				t.Error("something was recorded as verified")
			}
		})
	}
}

// TestEscape: a constructor that leaves its process behind, stops it, or ends the one that started it, is a message
// within the deadline, and no process is left.
func TestEscape(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "trap")
	must.Succeed(t, buildTrap(folder, "-DESCAPE_IN_CONSTRUCTOR"))
	for way, want := range map[string]string{"daemon": "SIGSYS", "signal": "SIGSYS", "stop": "2s"} {
		for _, verb := range []string{"install", "verify"} {
			mark := fmt.Sprintf("GRAFT_TEST_ESCAPE=%d-%s-%s", os.Getpid(), way, verb)
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			cmd := exec.CommandContext(ctx, made.command, "plugin", verb, "-q", "--deadline", "2s", folder)
			cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+t.TempDir(), "TRAP="+way, mark)
			cmd.WaitDelay = time.Second // a process that is left would hold the pipe
			talk, err := cmd.CombinedOutput()
			stop()
			if code := cmd.ProcessState.ExitCode(); code != 3 || !strings.Contains(string(talk), want) {
				t.Errorf("%s, %s: exit code %d, %v, %q, want %q", way, verb, code, err, talk, want)
			}
			found, _ := filepath.Glob("/proc/[0-9]*/environ")
			for _, path := range found {
				if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(mark)) {
					t.Errorf("%s, %s: %s is left", way, verb, filepath.Dir(path))
				}
			}
		}
	}
}

// TestInterruptedInstall: Ctrl-C while a library hangs ends the child and leaves
// the store as it was.
func TestInterruptedInstall(t *testing.T) {
	hang, data := filepath.Join(t.TempDir(), "trap"), t.TempDir()
	must.Succeed(t, buildTrap(hang, "-DHANG_IN_CONSTRUCTOR"))
	cmd := exec.Command(made.command, "plugin", "install", "--deadline", "5m", hang)
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+data)
	pipe := must.Value(cmd.StderrPipe())(t)
	must.Succeed(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	talk := bufio.NewScanner(pipe)
	for talk.Scan() && !strings.Contains(talk.Text(), "in a child process") {
	}
	must.Succeed(t, cmd.Process.Signal(syscall.SIGINT))
	var last string
	for talk.Scan() {
		last = talk.Text()
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || last != "graft: interrupted; nothing was left half-written" {
		t.Errorf("exit code %d, %q", code, last)
	}
	must.Equal(t, names(t, filepath.Join(data, "graft", "plugins")), ".lock")
}

// TestComparisonOfPluginThatHangsOrCrashes: operators run in a child process of graft ab, so that what they do is a
// message.
func TestComparisonOfPluginThatHangsOrCrashes(t *testing.T) {
	for op, want := range map[string]string{
		"Cos": `gave no answer within 6s and was ended in a child process (task comparison cell), printing "the trap hangs"; a plugin may hang`,
		"Sin": `was ended by SIGSEGV (segmentation fault) in a child process (task comparison cell), printing "the trap crashes"; a plugin may have a fault`,
		"Tan": `ended the process with exit code 0 in a child process (task comparison cell)`,
	} {
		t.Run(op, func(t *testing.T) {
			path := write(t, filepath.Join(t.TempDir(), "model.onnx"), encode(t, simple(op)))
			args := []string{"ab", path, "--force", "--rounds", "1"}
			if op == "Cos" {
				args = append(args, "--deadline", "6s")
			}
			code, stdout, stderr := command(t, trapped(), args...)
			if code != 1 || stdout != "" || !strings.Contains(stderr, "graft: "+path+": it "+want) {
				t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
			}
		})
	}
}

// TestInterruptedComparison: graft ab ends at one signal, although an operator hangs in its child and the operator's
// library ignores and blocks signals.
func TestInterruptedComparison(t *testing.T) {
	deaf := filepath.Join(t.TempDir(), "trap")
	must.Succeed(t, buildTrap(deaf, "-DIGNORE_SIGNALS"))
	path := write(t, filepath.Join(t.TempDir(), "model.onnx"), encode(t, simple("Cos")))
	for folder, signal := range map[string]syscall.Signal{made.trap: syscall.SIGTERM, deaf: syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			interrupted(t, folder, signal, "graft: interrupted; nothing was left half-written", "ab", path, "--force",
				"--rounds", "1")
		})
	}
}

// TestInterruptedCommand: a command ends soon after one signal, although a library hangs in this very process.
func TestInterruptedCommand(t *testing.T) {
	hang := filepath.Join(t.TempDir(), "trap")
	must.Succeed(t, buildTrap(hang, "-DHANG_IN_CONSTRUCTOR"))
	path := write(t, filepath.Join(t.TempDir(), "model.onnx"), encode(t, simple("Cos")))
	interrupted(t, hang, syscall.SIGTERM, "graft: interrupted; native code did not stop within 3s and was ended",
		"inspect", path)
}

// interrupted runs a command with the trap in folder, sends it one signal when the trap hangs, and wants its last
// words.
func interrupted(t *testing.T, folder string, signal syscall.Signal, want string, args ...string) {
	t.Helper()
	cmd := exec.Command(made.command, args...)
	cmd.Env = append(os.Environ(), "GRAFT_PLUGIN_PATH="+folder, "GRAFT_PLUGIN_UNVERIFIED=1", "TRAP_SPEAKS=1")
	pipe := must.Value(cmd.StderrPipe())(t)
	must.Succeed(t, cmd.Start())
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	talk := bufio.NewScanner(pipe)
	for talk.Scan() && strings.TrimSpace(talk.Text()) != "the trap hangs" {
	}
	time.Sleep(1500 * time.Millisecond) // a signal that is ignored at this moment is lost
	must.Succeed(t, cmd.Process.Signal(signal))
	var last string
	for talk.Scan() {
		last = talk.Text()
	}
	_ = cmd.Wait()
	late.Stop()
	if code := cmd.ProcessState.ExitCode(); code != 130 || last != want {
		t.Errorf("%v: exit code %d, %q", signal, code, last)
	}
}

// unsigned is an archive beside which something lies that is no signature.
func unsigned(t *testing.T, text string) string {
	t.Helper()
	path := archive(t, &tar.Header{Name: "plugin.yaml", Typeflag: tar.TypeReg})
	write(t, path+".minisig", []byte(text))
	return path
}

// archive writes a .tar.gz of empty entries.
func archive(t *testing.T, entries ...*tar.Header) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range entries {
		h.Mode = 0o644
		must.Succeed(t, w.WriteHeader(h))
	}
	must.Succeed(t, w.Close())
	must.Succeed(t, z.Close())
	return write(t, filepath.Join(t.TempDir(), "trap.tar.gz"), b.Bytes())
}

// TestMissingRuntime: the places that were looked at, and what to do.
func TestMissingRuntime(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "model.onnx"), encode(t, simple("Exp")))
	empty := t.TempDir()
	code, _, stderr := command(t,
		[]string{"GRAFT_ONNXRUNTIME=", "XDG_CACHE_HOME=" + empty, "HOME=" + empty, "LD_LIBRARY_PATH="}, "ab", path, "--b",
		"none")
	must.Equal(t, code, 1)
	for _, want := range []string{"onnxruntime was not found", "graft doctor --fetch", "GRAFT_ONNXRUNTIME", empty,
		"(cache)", "(executable)", "(system)"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q lacks %q", stderr, want)
		}
	}
	text := write(t, filepath.Join(empty, "libonnxruntime.so.1"), []byte("no library"))
	code, _, stderr = command(t, []string{"GRAFT_ONNXRUNTIME=" + text}, "ab", path, "--b", "none")
	if code != 1 || !strings.Contains(stderr, text+": does not load") ||
		!strings.Contains(stderr, "graft doctor --fetch") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}
