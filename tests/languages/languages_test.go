package languages

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/tests/graftcommand"
)

const (
	encoder = "../../models/g2p/encoder_model.onnx"        // its weights lie in the file
	decoder = "../../models/g2p/decoder_model_merged.onnx" // and graphs inside of nodes read them
)

// A kit is what the tests share: the command, the library, and native programs that are linked with ONNX Runtime,
// open it, or are linked with libgraft.so too.
type kit struct {
	folder, graft, library, runtime string
	linked, opened, enabled         string
	err                             error
}

var made struct {
	sync.Once
	kit
}

func TestMain(m *testing.M) {
	code := m.Run()
	if made.folder != "" {
		os.RemoveAll(made.folder)
	}
	os.Exit(code)
}

// tools builds the kit once.
func tools(t *testing.T) *kit {
	t.Helper()
	made.Do(func() { made.err = made.build() })
	if made.err != nil {
		t.Fatal(made.err)
	}
	return &made.kit
}

func (k *kit) build() error {
	location, err := ort.Find("")
	if err != nil {
		return err
	}
	k.runtime = location.Path
	if k.folder, err = os.MkdirTemp("", "graft-languages-"); err != nil {
		return err
	}
	k.graft, k.library = filepath.Join(k.folder, "graft"), filepath.Join(k.folder, "libgraft.so")
	if err := graftcommand.Write(k.graft); err != nil {
		return err
	}
	if err := k.buildLibrary(k.library); err != nil {
		return err
	}
	header, err := headers()
	if err != nil {
		return err
	}
	return k.buildPrograms(header)
}

// buildLibrary builds libgraft.so as something.
func (k *kit) buildLibrary(path string, more ...string) error {
	sources, err := filepath.Glob("../../bindings/c/*.cc")
	if err != nil {
		return err
	}
	flags := []string{"-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fno-exceptions", "-fno-rtti",
		"-fno-threadsafe-statics", "-fvisibility=hidden", "-D_GNU_SOURCE", "-c"}
	flags = append(flags, more...)
	var objects []string
	for _, source := range sources {
		object := path + filepath.Base(source) + ".o"
		if err := command("g++", append(flags, source, "-o", object)...); err != nil {
			return err
		}
		objects = append(objects, object)
	}
	// The C compiler links it: it needs no library of C++.
	return command("gcc", append(objects, "-shared", "-Wl,--version-script=../../bindings/c/libgraft.map", "-Wl,-z,defs",
		"-o", path, "-ldl", "-pthread")...)
}

// buildPrograms builds the native ones.
func (k *kit) buildPrograms(header string) error {
	at := "-Wl,-rpath," + filepath.Dir(k.runtime)
	for _, p := range []struct {
		to   *string
		name string
		args []string
	}{
		{&k.linked, "linked", []string{k.runtime, at}},
		{&k.opened, "opened", []string{"-DWITH_DLOPEN"}},
		// libgraft.so comes last, where it stands before nothing: graft_enable finds what is loaded.
		{&k.enabled, "enabled", []string{"-DWITH_GRAFT", "-I../../bindings/c", k.runtime, at, k.library,
			"-Wl,-rpath," + k.folder}},
	} {
		*p.to = filepath.Join(k.folder, p.name)
		args := append([]string{"-std=c++17", "-O1", "-Wall", "-I" + header, "programs/native.cc", "-o", *p.to}, p.args...)
		if err := command("g++", append(args, "-ldl", "-pthread")...); err != nil {
			return err
		}
	}
	return nil
}

// headers is the folder of ONNX Runtime's C header.
func headers() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go").Output()
	return strings.TrimSpace(string(out)), err
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// A run is a program's, with or without graft.
type run struct {
	args  []string
	flags []string          // of graft run; nil with plain
	set   map[string]string // environment
	plain bool              // not under graft run
}

// cache is a folder for the cache of one test, for run.set.
func cache(t *testing.T) map[string]string {
	return map[string]string{"XDG_CACHE_HOME": t.TempDir()}
}

func (k *kit) start(t *testing.T, r run) (stdout, stderr string, err error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	args := r.args
	if !r.plain {
		args = []string{k.graft, "run"}
		if r.set["GRAFT_VERBOSE"] == "" {
			args = append(args, "--verbose")
		}
		args = append(append(append(args, r.flags...), "--"), r.args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), ort.EnvTelemetry+"=1", "GRAFT_GRAPH_DEADLINE=600", "GRAFT_LIBRARY="+k.library,
		ort.EnvPath+"="+k.runtime, "ORT_LIBRARY="+k.runtime, "ORT_DYLIB_PATH="+k.runtime)
	for name, value := range r.set {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	err = cmd.Run()
	return out.String(), talk.String(), err
}

// numbers are a program's output.
func numbers(t *testing.T, text string) []float64 {
	t.Helper()
	var list []float64
	for field := range strings.FieldsSeq(text) {
		x := must.Value(strconv.ParseFloat(field, 64))(t)
		list = append(list, x)
	}
	return list
}

// same fails where a program's output is not another's within 1e-5 absolute and 1e-4 relative.
func same(t *testing.T, want, got string) {
	t.Helper()
	w, g := numbers(t, want), numbers(t, got)
	if len(w) == 0 || len(w) != len(g) {
		t.Fatalf("found %d numbers, needed %d", len(g), len(w))
	}
	for i := range w {
		if d := math.Abs(w[i] - g[i]); !(d <= 1e-5+1e-4*math.Abs(w[i])) {
			t.Fatalf("number %d is %v, needed %v", i, g[i], w[i])
		}
	}
}

// answers is what a model gives without graft.
func (k *kit) answers(t *testing.T, model string) string {
	t.Helper()
	out, talk, err := k.start(t, run{args: []string{k.linked, model, "1"}, plain: true})
	if err != nil {
		t.Fatalf("%v: %s", err, talk)
	}
	return out
}

// patched fails where a run's output is not want, or not as many sessions as needed were patched.
func (k *kit) patched(t *testing.T, want string, sessions int, r run) {
	t.Helper()
	out, talk, err := k.start(t, r)
	if err != nil {
		t.Fatalf("%v: %s", err, talk)
	}
	must.Equal(t, strings.Count(talk, "blocks replaced"), sessions, talk)
	same(t, want, out)
}

// left fails where a run's output is not that of the model without graft, bit for bit, or what it says lacks a text.
// warnings is how many sessions a line was printed for with a run that is not verbose: 0 or 1.
func (k *kit) left(t *testing.T, want, says string, warnings int, r run) {
	t.Helper()
	for _, verbose := range []string{"1", "0"} {
		set := map[string]string{"GRAFT_VERBOSE": verbose}
		for name, value := range r.set {
			set[name] = value
		}
		quiet := r
		quiet.set = set
		out, talk, err := k.start(t, quiet)
		if err != nil {
			t.Fatalf("%v: %s", err, talk)
		}
		must.Equal(t, out, want, talk)
		if verbose == "1" || warnings > 0 {
			if !strings.Contains(talk, says) || strings.Contains(talk, "blocks replaced") {
				t.Errorf("found %q, needed %q", talk, says)
			}
		}
		if n := strings.Count("\n"+talk, "\ngraft: "); verbose == "0" && n != warnings {
			t.Errorf("found %d lines, needed %d: %s", n, warnings, talk)
		}
	}
}

func TestNativePrograms(t *testing.T) {
	k := tools(t)
	want, deep := k.answers(t, encoder), k.answers(t, decoder)
	for _, how := range [][]string{nil, {"bytes"}, {"prepacked"}, {"bytes", "prepacked"}, {"threads=4"},
		{"threads=4", "bytes"}} {
		for name, program := range map[string]string{"linked": k.linked, "opened": k.opened} {
			t.Run(strings.Join(append([]string{name}, how...), " "), func(t *testing.T) {
				set := cache(t)
				for range 2 { // the second finds the graph in the cache
					k.patched(t, want, 4, run{args: append([]string{program, encoder, "4"}, how...), set: set})
				}
				if len(how) < 2 {
					k.patched(t, deep, 2, run{args: append(append([]string{program, decoder, "2"}, how...), "threads=1"), set: set})
				}
			})
		}
	}
	t.Run("enabled", func(t *testing.T) {
		set := cache(t)
		set["GRAFT_BINARY"] = ""
		set["GRAFT_VERBOSE"] = "1"
		k.patched(t, want, 2, run{args: []string{k.enabled, encoder, "2", "enable"}, set: set, plain: true})
		k.patched(t, want, 2, run{args: []string{k.enabled, encoder, "2", "options=--padding=keep"}, set: set, plain: true})
		k.patched(t, want, 0, run{args: []string{k.enabled, encoder, "2"}, set: set, plain: true})
	})
	t.Run("linked in the wrong order", func(t *testing.T) {
		source, program := filepath.Join(t.TempDir(), "p.c"), filepath.Join(t.TempDir(), "program")
		must.Succeed(t, os.WriteFile(source, []byte(`struct Base { void* (*api)(unsigned); };
const struct Base* OrtGetApiBase(void);
int main(void) { return OrtGetApiBase()->api(22) != 0 || OrtGetApiBase()->api(22) != 0; }
`), 0o600))
		must.Succeed(t, command("gcc", source, "-Wl,--as-needed", k.library, k.runtime, "-o", program,
			"-Wl,-rpath,"+k.folder+":"+filepath.Dir(k.runtime)))
		_, talk, err := k.start(t, run{args: []string{program}, set: cache(t), plain: true})
		must.Succeed(t, err, talk)
		must.Equal(t, talk,
			"graft: found no ONNX Runtime in the program, needed -lonnxruntime before -lgraft when it is linked\n")
	})
	t.Run("enabled with more rights than the caller", func(t *testing.T) {
		set := cache(t)
		ran := filepath.Join(set["XDG_CACHE_HOME"], "ran")
		set["GRAFT_BINARY"] = script(t, `: >"`+ran+`"; exit 1`)
		for _, more := range []bool{false, true} {
			if more {
				set["MORE_RIGHTS"] = "1"
			}
			k.patched(t, want, 0, run{args: []string{k.enabled, encoder, "2", "enable"}, set: set, plain: true})
			_, err := os.Stat(ran)
			must.Equal(t, err == nil, !more, more)
			os.Remove(ran)
		}
	})
	t.Run("relative path and flags", func(t *testing.T) {
		set := cache(t)
		out, talk, err := k.start(t,
			run{args: []string{k.linked, encoder, "1"}, flags: []string{"--plugins", "fused-gelu"}, set: set})
		if err != nil || !strings.Contains(talk, " 3 blocks replaced") {
			t.Fatalf("%v: %s", err, talk)
		}
		same(t, want, out)
		// An entry of the session's goes over the flag.
		_, talk, err = k.start(t,
			run{args: []string{k.linked, encoder, "1", "entry:graft.plugins=packed-linear"},
				flags: []string{"--plugins", "fused-gelu"}, set: set})
		if err != nil || strings.Contains(talk, " 3 blocks replaced") || !strings.Contains(talk, "blocks replaced") {
			t.Fatalf("%v: %s", err, talk)
		}
	})
}

// TestSessionsAtOnce creates a process's first sessions in several threads. ONNX Runtime fails then to make their
// operators' domain known, in four of five processes whose libgraft.so does not have it known before.
func TestSessionsAtOnce(t *testing.T) {
	k := tools(t)
	want, set := k.answers(t, encoder), cache(t)
	for range 6 {
		k.patched(t, want, 8, run{args: []string{k.opened, encoder, "8", "bytes", "threads=8", "meet=8"}, set: set})
	}
}

// peers are the oldest and the newest runtime.
func peers(t *testing.T) (libraries []string) {
	t.Helper()
	for _, peer := range []string{"old", "new"} {
		found, err := filepath.Glob("../../build/peers/" + peer +
			"/lib/python*/site-packages/onnxruntime/capi/libonnxruntime.so.*")
		if err != nil || len(found) == 0 {
			t.Fatalf("%v: found no runtime of peer %s; run make peers", err, peer)
		}
		libraries = append(libraries, found[0])
	}
	return libraries
}

// TestRuntimes: sessions of the peers' runtimes have copies of what they are given too.
func TestRuntimes(t *testing.T) {
	k := tools(t)
	for _, library := range peers(t) {
		set := cache(t)
		set["ORT_LIBRARY"] = library
		want, talk, err := k.start(t, run{args: []string{k.opened, encoder, "1"}, set: set, plain: true})
		if err != nil {
			t.Fatalf("%v: %s", err, talk)
		}
		k.patched(t, want, 4, run{args: []string{k.opened, encoder, "4"}, set: set})
		k.patched(t, want, 2, run{args: []string{k.opened, encoder, "2", "bytes"}, set: set})
	}
}

// copyOf is a model that a test may spoil.
func copyOf(t *testing.T, model string) string {
	t.Helper()
	data := must.Value(os.ReadFile(model))(t)
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Succeed(t, os.WriteFile(path, data, 0o600))
	return path
}

// TestSpoiledFiles: a file that is overwritten and cut short after its session was created changes no answer.
func TestSpoiledFiles(t *testing.T) {
	k := tools(t)
	for _, model := range []string{encoder, decoder} {
		want := k.answers(t, model)
		k.patched(t, want, 1, run{args: []string{k.linked, copyOf(t, model), "1", "spoil"}, set: cache(t)})
	}
}

func TestProcesses(t *testing.T) {
	k := tools(t)
	want := k.answers(t, encoder)
	t.Run("no signal of a child", func(t *testing.T) {
		k.patched(t, want, 2, run{args: []string{k.linked, encoder, "2", "children"}, set: cache(t)})
	})
	t.Run("fork while sessions are made", func(t *testing.T) {
		k.patched(t, want, 12, run{args: []string{k.linked, encoder, "8", "threads=2", "forks=4"}, set: cache(t)})
	})
	t.Run("two at once", func(t *testing.T) {
		set := cache(t)
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() { k.patched(t, want, 4, run{args: []string{k.linked, encoder, "4"}, set: set}) })
		}
		group.Wait()
	})
	t.Run("children of a shell", func(t *testing.T) {
		k.patched(t, want, 1, run{args: []string{"sh", "-c", `"$0" "$@"; exit 0`, k.linked, encoder, "1"}, set: cache(t)})
	})
	t.Run("exit code", func(t *testing.T) {
		var exit *exec.ExitError
		if _, talk, err := k.start(t, run{args: []string{"sh", "-c", "exit 7"}, set: cache(t)}); !errors.As(err, &exit) ||
			exit.ExitCode() != 7 {
			t.Errorf("%v: %s", err, talk)
		}
	})
	t.Run("graft itself", func(t *testing.T) {
		out, talk, err := k.start(t,
			run{args: []string{k.graft, "ab", encoder, "--rounds", "1", "--warmup", "1"}, set: cache(t)})
		if err != nil || strings.Contains(talk, "replaced") {
			t.Errorf("%v: %s%s", err, out, talk)
		}
	})
}

// variant writes a model with its vectors multiplied by a factor; with inside, what only graphs inside of nodes read
// lies in them.
func variant(t *testing.T, model string, factor float32, inside bool) string {
	t.Helper()
	data, err := os.ReadFile(model)
	must.Succeed(t, err)
	m := &onnx.Model{}
	must.Succeed(t, proto.Unmarshal(data, m))
	g := m.Graph
	for _, w := range g.Initializer {
		if w.GetDataType() != int32(onnx.Tensor_FLOAT) || len(w.GetDims()) != 1 {
			continue
		}
		for i := 0; i+4 <= len(w.RawData); i += 4 {
			x := math.Float32frombits(binary.LittleEndian.Uint32(w.RawData[i:]))
			binary.LittleEndian.PutUint32(w.RawData[i:], math.Float32bits(x*factor))
		}
	}
	reads := func(nodes []*onnx.Node, name string) bool {
		return slices.ContainsFunc(nodes, func(n *onnx.Node) bool { return slices.Contains(n.GetInput(), name) })
	}
	g.Initializer = slices.DeleteFunc(g.Initializer, func(w *onnx.Tensor) bool {
		if !inside || reads(g.Node, w.GetName()) {
			return false
		}
		for _, n := range g.Node {
			for _, a := range n.GetAttribute() {
				if a.G != nil && reads(a.G.Node, w.GetName()) {
					a.G.Initializer = append(a.G.Initializer, w)
				}
			}
		}
		return true
	})
	if data, err = proto.Marshal(m); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "variant.onnx")
	must.Succeed(t, os.WriteFile(path, data, 0o600))
	return path
}

// TestReplacedModel: a file that is replaced by another model gives sessions of that one, of equal size and time too.
func TestReplacedModel(t *testing.T) {
	k := tools(t)
	for _, c := range []struct {
		model  string
		inside bool
		graphs int // in the cache, of a model
	}{{encoder, false, 1}, {decoder, false, 1}, {decoder, true, 2}} {
		models := []string{variant(t, c.model, 1, c.inside), variant(t, c.model, 1.5, c.inside)}
		want := []string{k.answers(t, models[0]), k.answers(t, models[1])}
		if want[0] == want[1] {
			t.Fatal("other weights change no answer")
		}
		path, set := copyOf(t, models[0]), cache(t)
		for i := range 3 {
			data := must.Value(os.ReadFile(models[i%2]))(t)
			must.Succeed(t, os.WriteFile(path, data, 0o600))
			must.Succeed(t, os.Chtimes(path, time.Unix(1700000000, 0), time.Unix(1700000000, 0)))
			k.patched(t, want[i%2], 1, run{args: []string{k.linked, path, "1"}, set: set})
			found, err := filepath.Glob(filepath.Join(set["XDG_CACHE_HOME"], "graft", "graphs", "*.onnx"))
			if err != nil || i == 0 && len(found) != c.graphs {
				t.Errorf("%v: found %d graphs in the cache, needed %d", err, len(found), c.graphs)
			}
		}
		// Nor does the file matter once the session is there.
		k.patched(t, want[0], 1, run{args: []string{k.linked, copyOf(t, models[0]), "1", "spoil"}, set: cache(t)})
	}
}

// TestReplacedLibrary: bytes in the place of a library that was verified, of equal size and time, are not loaded.
func TestReplacedLibrary(t *testing.T) {
	k := tools(t)
	want, set := k.answers(t, encoder), cache(t)
	plugins := filepath.Join(t.TempDir(), "plugins")
	must.Succeed(t, os.CopyFS(plugins, os.DirFS("../../build/plugins")))
	set["GRAFT_PLUGIN_PATH"] = plugins
	r := run{args: []string{k.linked, encoder, "1"}, set: set}
	k.patched(t, want, 1, r)
	libraries := must.Value(filepath.Glob(filepath.Join(plugins, "*", "*.so")))(t)
	for _, path := range libraries {
		info := must.Value(os.Stat(path))(t)
		must.Succeed(t, os.WriteFile(path, make([]byte, info.Size()), 0o600))
		must.Succeed(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	}
	out, talk, err := k.start(t, r)
	if err != nil || out != want || !strings.Contains(talk, "session created without graft") || len(libraries) == 0 {
		t.Errorf("%v: %s", err, talk)
	}
}

// TestPlacesOfPlugins: another folder of plugins, by whatever variable, is another entry of the cache.
func TestPlacesOfPlugins(t *testing.T) {
	k := tools(t)
	want, set := k.answers(t, encoder), cache(t)
	for i, name := range []string{"XDG_DATA_HOME", "XDG_DATA_HOME", "HOME"} {
		set[name] = t.TempDir()
		k.patched(t, want, 1, run{args: []string{k.linked, encoder, "1"}, set: set})
		if found, err := filepath.Glob(filepath.Join(set["XDG_CACHE_HOME"], "graft", "graphs", "*.onnx")); err != nil ||
			len(found) != i+1 {
			t.Errorf("%v: found %d graphs, needed %d", err, len(found), i+1)
		}
	}
}

// TestSurroundings: what a program does with its environment, its descriptors and its standard error.
func TestSurroundings(t *testing.T) {
	k := tools(t)
	want := k.answers(t, encoder)
	program := []string{k.linked, encoder, "1"}
	t.Run("without LD_PRELOAD for children", func(t *testing.T) {
		set := cache(t)
		set["UNSET_PRELOAD"] = "1"
		k.patched(t, want, 1, run{args: program, set: set})
	})
	t.Run("closed standard error", func(t *testing.T) {
		set := cache(t)
		set["GRAFT_BINARY"], set["LD_PRELOAD"] = "/nowhere/graft", k.library
		// Its reader is gone before the line is printed.
		text := `exec 3>&1; mkfifo "$XDG_CACHE_HOME/fifo"; : <"$XDG_CACHE_HOME/fifo" & exec 2>"$XDG_CACHE_HOME/fifo"; wait; exec "$0" "$@"`
		out, talk, err := k.start(t, run{args: append([]string{"sh", "-c", text}, program...), set: set, plain: true})
		must.Succeed(t, err, talk)
		must.Equal(t, out, want, talk)
	})
	t.Run("closed standard input and output", func(t *testing.T) {
		garbage := script(t, "")
		must.Succeed(t, os.WriteFile(garbage, []byte("no program"), 0o700))
		set := cache(t)
		set["GRAFT_BINARY"], set["LD_PRELOAD"] = garbage, k.library
		_, talk, err := k.start(t,
			run{args: append([]string{"sh", "-c", `exec "$0" "$@" <&- >&-`}, program...), set: set, plain: true})
		if err != nil || !strings.Contains(talk, "cannot start: Exec format error") {
			t.Errorf("%v: %s", err, talk)
		}
	})
	t.Run("a program that is killed while the command runs", func(t *testing.T) {
		set := cache(t)
		bytes := append([]string{k.opened}, append(program[1:], "bytes")...)
		left := func() (names []string) {
			names, _ = filepath.Glob(filepath.Join(set["XDG_CACHE_HOME"], "graft", "graphs", "*.tmp"))
			return names
		}
		set["GRAFT_BINARY"], set["LD_PRELOAD"] = script(t, `kill -9 $(cut -d " " -f 4 /proc/$PPID/stat); sleep 600`),
			k.library
		if _, talk, err := k.start(t, run{args: bytes, set: set, plain: true}); err == nil || len(left()) != 1 {
			t.Fatalf("found %v, needed a copy of the model: %v: %s", left(), err, talk)
		}
		set["GRAFT_BINARY"] = k.graft
		delete(set, "LD_PRELOAD")
		k.patched(t, want, 1, run{args: bytes, set: set})
		must.Empty(t, left())
	})
	t.Run("a pipe that is closed while the command runs", func(t *testing.T) {
		set, folder := cache(t), t.TempDir()
		set["GRAFT_BINARY"], set["LD_PRELOAD"],
			set["GRAFT_GRAPH_DEADLINE"] = script(t,
			`: >"`+folder+`/begun"; while [ ! -e "`+folder+`/go" ]; do sleep 0.05; done; echo done >&2; exit 1`), k.library,
			"200"
		out, talk, err := k.start(t, run{args: append(program, "pipe="+folder), set: set, plain: true})
		if err != nil || out != want || !strings.Contains(talk, "session created without graft: done") {
			t.Errorf("%v: %s%s", err, out, talk)
		}
	})
}

// script writes a program for /bin/sh.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "graft")
	must.Succeed(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700))
	return path
}

// TestLeft: sessions that are as without graft.
func TestLeft(t *testing.T) {
	k := tools(t)
	want := k.answers(t, encoder)
	program := []string{k.linked, encoder, "3"}
	// preloaded is a run without graft run, which would find these faults itself.
	preloaded := func(set map[string]string) run {
		set["LD_PRELOAD"] = k.library
		return run{args: program, set: set, plain: true}
	}
	with := func(set map[string]string, name, value string) map[string]string {
		set[name] = value
		return set
	}

	t.Run("asked for", func(t *testing.T) {
		k.left(t, want, "graft.disable is 1", 0, run{args: append(program, "entry:graft.disable=1"), set: cache(t)})
		k.left(t, want, "", 0, run{args: program, set: with(cache(t), "GRAFT_DISABLE", "1")})
		k.left(t, want, "other execution providers", 0, run{args: append(program, "policy"), set: cache(t)})
		k.left(t, want, "nothing is replaced", 0,
			run{args: program, flags: []string{"--plugins", "ngram-block"}, set: cache(t)})
	})
	t.Run("no command", func(t *testing.T) {
		k.left(t, want, "found no program that can be run, needed the command graft", 1,
			preloaded(with(cache(t), "GRAFT_BINARY", "/nowhere/graft")))
		k.left(t, want, "found no program that can be run, needed the command graft", 1,
			preloaded(with(cache(t), "GRAFT_BINARY", t.TempDir())))
	})
	t.Run("killed command", func(t *testing.T) {
		k.left(t, want, "was ended by signal 9", 1, preloaded(with(cache(t), "GRAFT_BINARY", script(t, "kill -9 $$"))))
	})
	t.Run("failing command", func(t *testing.T) {
		k.left(t, want, "session created without graft: out of luck", 1,
			preloaded(with(cache(t), "GRAFT_BINARY", script(t, "echo graft: out of luck >&2; exit 3"))))
		k.left(t, want, "found no entry", 1, preloaded(with(cache(t), "GRAFT_BINARY", script(t, "exit 0"))))
		garbage := script(t, "")
		must.Succeed(t, os.WriteFile(garbage, []byte("no program"), 0o700))
		k.left(t, want, "cannot start: Exec format error", 1, preloaded(with(cache(t), "GRAFT_BINARY", garbage)))
	})
	t.Run("hanging command", func(t *testing.T) {
		trace := filepath.Join(t.TempDir(), "trace")
		set := with(cache(t), "GRAFT_BINARY", script(t, "echo $$ >>"+trace+"; sleep 1000 & sleep 1000"))
		begin := time.Now()
		k.left(t, want, "took longer than 1 seconds (GRAFT_GRAPH_DEADLINE) and is not asked again", 1,
			preloaded(with(set, "GRAFT_GRAPH_DEADLINE", "0.4")))
		if d := time.Since(begin); d > 30*time.Second {
			t.Errorf("took %v", d)
		}
		text := must.Value(os.ReadFile(trace))(t)
		ids := strings.Fields(string(text))
		if len(ids) != 2 { // one of each of the two processes, of three sessions each
			t.Errorf("the command ran %d times", len(ids))
		}
		for _, id := range ids {
			// Those that ended may wait for the system's first process to see that.
			out, _ := exec.Command("ps", "-o", "stat=", "-g", id).Output()
			for state := range strings.FieldsSeq(string(out)) {
				if !strings.HasPrefix(state, "Z") {
					t.Errorf("found what it started still running: %s", out)
				}
			}
		}
	})
	t.Run("no cache", func(t *testing.T) {
		k.left(t, want, "found no cache folder", 1,
			run{args: program, set: map[string]string{"XDG_CACHE_HOME": "", "HOME": ""}})
		k.left(t, want, "found no cache folder", 1,
			run{args: program, set: map[string]string{"XDG_CACHE_HOME": "", "HOME": "here"}})
		file := filepath.Join(t.TempDir(), "file")
		must.Succeed(t, os.WriteFile(file, nil, 0o600))
		k.left(t, want, "cannot store a graph", 1, run{args: program, set: map[string]string{"XDG_CACHE_HOME": file}})
		// where root cannot write either
		k.left(t, want, "cannot store a graph", 1, run{args: program, set: map[string]string{"XDG_CACHE_HOME": "/proc"}})
		k.left(t, want, "cannot store the model's bytes", 1,
			run{args: append(program, "bytes"), set: map[string]string{"XDG_CACHE_HOME": "/proc"}})
	})
	t.Run("full cache", func(t *testing.T) {
		folder := t.TempDir()
		if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder).CombinedOutput(); err != nil {
			t.Skipf("cannot mount: %s", out)
		}
		defer exec.Command("umount", folder).Run()
		k.left(t, want, "no space left on device", 1, run{args: program, set: map[string]string{"XDG_CACHE_HOME": folder}})
	})
	t.Run("changed model", func(t *testing.T) {
		model := copyOf(t, encoder)
		// The model is another file of the same content when the session is to be made.
		set := with(cache(t), "GRAFT_BINARY", script(t, k.graft+` "$@" && touch "$2"`))
		k.left(t, want, "a file changed while the command graft read it", 1,
			run{args: []string{k.linked, model, "1"}, set: with(set, "LD_PRELOAD", k.library), plain: true})
	})
	t.Run("bad model", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "bad.onnx")
		must.Succeed(t, os.WriteFile(path, []byte("no model at all"), 0o600))
		plain, first, err := k.start(t, run{args: []string{k.linked, path, "1"}, plain: true})
		out, second, err2 := k.start(t, run{args: []string{k.linked, path, "1"}, set: with(cache(t), "GRAFT_VERBOSE", "0")})
		if err == nil || err2 == nil || first != second || plain != out {
			t.Errorf("found %v %q, needed %v %q", err2, second, err, first)
		}
	})
	t.Run("no runtime", func(t *testing.T) {
		// dlopen of nothing is the program itself, with all that was preloaded into it.
		_, talk, err := k.start(t, run{args: []string{"env", "-u", "ORT_LIBRARY", k.opened, encoder, "1"}, set: cache(t)})
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(talk, "undefined symbol: OrtGetApiBase") {
			t.Errorf("%v: %s", err, talk)
		}
	})
	t.Run("bad settings", func(t *testing.T) {
		k.left(t, want, `GRAFT_OPTIONS: found "padding", needed options of graft graph`, 1,
			preloaded(with(cache(t), "GRAFT_OPTIONS", "padding")))
		out, talk, err := k.start(t, preloaded(with(with(cache(t), "GRAFT_GRAPH_DEADLINE", "soon"), "GRAFT_BINARY", k.graft)))
		if err != nil || !strings.Contains(talk, `GRAFT_GRAPH_DEADLINE: found "soon", needed seconds`) {
			t.Errorf("%v: %s", err, talk)
		}
		same(t, want, out)
	})
}

// TestSpoiledCache: entries that are not as the command wrote them are made anew, and a graph that is not gives a
// session without graft once.
func TestSpoiledCache(t *testing.T) {
	k := tools(t)
	want := k.answers(t, encoder)
	set := cache(t)
	r := run{args: []string{k.linked, encoder, "1"}, set: set}
	folder := filepath.Join(set["XDG_CACHE_HOME"], "graft", "graphs")
	// spoil changes the entry's file and the graph's.
	find := func() (entry, graph string) {
		files := must.Value(filepath.Glob(filepath.Join(folder, "*")))(t)
		for _, f := range files {
			if strings.HasSuffix(f, ".onnx") {
				graph = f
			} else {
				entry = f
			}
		}
		return entry, graph
	}
	k.patched(t, want, 1, r)
	entry, graph := find()
	text := must.Value(os.ReadFile(entry))(t)
	for name, bad := range map[string]string{
		"empty":               "",
		"no entry":            "something else\n",
		"an older version's":  "graft graph 0\n" + string(text[bytes.IndexByte(text, '\n')+1:]),
		"cut short":           string(text[:len(text)-9]),
		"without what to do":  "graft graph 2\nreplaced 3\n",
		"a zero":              string(text[:30]) + "\x00" + string(text[30:]),
		"a number that is no": strings.Replace(string(text), "\nfile ", "\nfile x", 1),
	} {
		must.Succeed(t, os.WriteFile(entry, []byte(bad), 0o600))
		k.patched(t, want, 1, r)
		if again, err := os.ReadFile(entry); err != nil || string(again) != string(text) {
			t.Errorf("%s: the entry was not made again: %q", name, again)
		}
	}
	if err := os.Chmod(entry, 0o666); err != nil { // anybody could have written it
		t.Fatal(err)
	}
	k.patched(t, want, 1, r)
	must.Equal(t, must.Value(os.Stat(entry))(t).Mode().Perm(), 0o600)
	data := must.Value(os.ReadFile(graph))(t)
	for _, bad := range [][]byte{nil, []byte("no graph"), data[:len(data)/2]} {
		must.Succeed(t, os.WriteFile(graph, bad, 0o600))
		out, talk, err := k.start(t, r)
		if err != nil || out != want || !strings.Contains(talk, "session created without graft") {
			t.Errorf("%v: %s", err, talk)
		}
		k.patched(t, want, 1, r)
	}
	// What is read stays, and its graph with it: the cache drops what was not for long.
	old := time.Now().Add(-25 * 24 * time.Hour)
	for _, path := range []string{entry, graph} {
		must.Succeed(t, os.Chtimes(path, old, old))
	}
	k.patched(t, want, 1, r)
	if info, err := os.Stat(entry); err != nil || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("%v, %v", info.ModTime(), err)
	}
}

// TestGoProgram: a Go program that calls graft.Enable patches its own sessions, and libgraft.so leaves them to it.
func TestGoProgram(t *testing.T) {
	k := tools(t)
	program := filepath.Join(t.TempDir(), "program")
	must.Succeed(t, command("go", "build", "-o", program, "./programs/gosessions"))
	want := k.answers(t, encoder)
	set := cache(t)
	k.patched(t, want, 2, run{args: []string{program, encoder, "2"}, set: set})
	out, talk, err := k.start(t, run{args: []string{program, encoder, "2", "enable"}, set: set})
	if err != nil || strings.Contains(talk, "blocks replaced") || strings.Contains(talk, "left as it is") ||
		strings.Count(talk, "graft: model planned") != 2 {
		t.Errorf("%v: %s", err, talk)
	}
	same(t, want, out)
}

// TestHeader: what libgraft.so knows of ONNX Runtime's table is what the header says.
func TestHeader(t *testing.T) {
	header := must.Value(headers())(t)
	if err := command("g++", "-std=c++17", "-Wno-invalid-offsetof", "-fsyntax-only", "-I"+header, "-I../../bindings/c",
		"programs/header.cc"); err != nil {
		t.Error(err)
	}
	// For programs in C, too.
	must.Succeed(t, command("gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c",
		"../../bindings/c/graft_enable.h"))
}

func TestSHA256(t *testing.T) {
	data := make([]byte, 70000)
	for i := range data {
		data[i] = byte(i*7 + i/256)
	}
	var want strings.Builder
	for n := 0; n <= len(data); n += 1 + n/60 {
		sum := sha256.Sum256(data[:n])
		for range 2 {
			fmt.Fprintln(&want, hex.EncodeToString(sum[:]))
		}
	}
	for _, how := range []string{"-DBY_INSTRUCTIONS", "-DGRAFT_PORTABLE"} {
		program := filepath.Join(t.TempDir(), "sha256")
		must.Succeed(t, command("g++", "-std=c++17", "-O2", "-Wall", how, "-I../../bindings/c", "programs/sha256.cc",
			"../../bindings/c/sha256.cc", "-o", program))
		must.Equal(t, string(must.Value(exec.Command(program).Output())(t, how)), want.String(), how)
	}
}

// TestManySessions: a thousand sessions, patched and without graft.
func TestManySessions(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	k := tools(t)
	want := k.answers(t, encoder)
	for _, how := range [][]string{nil, {"bytes"}, {"threads=4"}} {
		k.patched(t, want, 1000, run{args: append([]string{k.linked, encoder, "1000"}, how...), set: cache(t)})
	}
	// A runtime newer than those that are known to copy weights.
	newer := *k
	newer.library = filepath.Join(t.TempDir(), "libgraft.so")
	must.Succeed(t, newer.buildLibrary(newer.library, "-DGRAFT_COPYING_API=0"))
	newer.patched(t, want, 1000, run{args: []string{k.linked, encoder, "1000", "threads=2"}, set: cache(t)})
	newer.patched(t, want, 1, run{args: []string{k.linked, copyOf(t, encoder), "1", "spoil"}, set: cache(t)})
	k.left(t, want, "found no cache folder", 1,
		run{args: []string{k.linked, encoder, "1000"}, set: map[string]string{"XDG_CACHE_HOME": "", "HOME": ""}})
}

// csharp compiles the program in C# for the runtime in a folder, and says how it is started.
func csharp(t *testing.T, folder string) []string {
	t.Helper()
	find := func(pattern string) string {
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil || len(found) != 1 {
			t.Fatalf("%v: found %q, needed one %s", err, found, pattern)
		}
		return found[0]
	}
	binding, dotnet := find("*/*/*/Microsoft.ML.OnnxRuntime.dll"), find("*/bin/dotnet")
	core := find("*/bin/shared/Microsoft.NETCore.App/*/mscorlib.dll")
	shared := filepath.Dir(core)
	out := t.TempDir()
	program := filepath.Join(out, "Sessions.dll")
	args := []string{"-noconfig", "-nostdlib", "-langversion:7", "-out:" + program, "-r:" + core,
		"-r:" + filepath.Join(shared, "netstandard.dll"), "-r:" + binding}
	references := must.Value(filepath.Glob(filepath.Join(shared, "System*.dll")))(t)
	for _, path := range references {
		args = append(args, "-r:"+path)
	}
	must.Succeed(t, command("mcs", append(args, "programs/Sessions.cs")...))
	data := must.Value(os.ReadFile(binding))(t)
	settings := fmt.Sprintf(
		`{"runtimeOptions": {"framework": {"name": "Microsoft.NETCore.App", "version": %q}, "configProperties": {"System.Globalization.Invariant": true}}}`, filepath.Base(shared))
	for name, content := range map[string][]byte{"Microsoft.ML.OnnxRuntime.dll": data,
		"Sessions.runtimeconfig.json": []byte(settings)} {
		must.Succeed(t, os.WriteFile(filepath.Join(out, name), content, 0o600))
	}
	must.Succeed(t, os.Chmod(dotnet, 0o755))
	return []string{dotnet, program}
}

// TestBindings: a thousand sessions of each binding, or GRAFT_TEST_SESSIONS, from a path and from bytes, and some
// without graft. make languages sets the folder that the bindings are in.
func TestBindings(t *testing.T) {
	folder := os.Getenv("GRAFT_TEST_LANGUAGES")
	if folder == "" {
		t.Skip("make languages runs it")
	}
	sessions := os.Getenv("GRAFT_TEST_SESSIONS")
	if sessions == "" {
		sessions = "1000"
	}
	n := must.Value(strconv.Atoi(sessions))(t)
	k := tools(t)
	model := must.Value(filepath.Abs(encoder))(t)
	want := k.answers(t, model)
	jars, err := filepath.Glob(filepath.Join(folder, "java", "*.jar"))
	if err != nil || len(jars) != 1 {
		t.Fatalf("%v: found %q, needed one archive of onnxruntime", err, jars)
	}
	classes := t.TempDir()
	must.Succeed(t, command("javac", "-d", classes, "-cp", jars[0], "programs/Sessions.java"))
	// The name that linkers look for.
	link := t.TempDir()
	for _, name := range []string{"libonnxruntime.so", "libonnxruntime.so.1"} {
		must.Succeed(t, os.Symlink(k.runtime, filepath.Join(link, name)))
	}
	rust := func(name string, env []string, args ...string) string {
		target := filepath.Join(folder, name)
		cmd := exec.Command("cargo", append([]string{"build", "--release", "--locked", "--quiet"}, args...)...)
		cmd.Dir = filepath.Join("programs", "rust")
		cmd.Env = append(os.Environ(), append(env, "CARGO_TARGET_DIR="+target)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return filepath.Join(target, "release", "sessions")
	}
	for name, program := range map[string][]string{
		"csharp":      csharp(t, filepath.Join(folder, "csharp")),
		"java":        {"java", "-cp", classes + ":" + jars[0], "Sessions"},
		"node":        {"node", "programs/sessions.js"},
		"rust":        {rust("rust", nil, "--features", "load-dynamic")},
		"rust linked": {rust("rust-linked", []string{"ORT_LIB_LOCATION=" + link, "ORT_PREFER_DYNAMIC_LINK=1"})},
	} {
		t.Run(name, func(t *testing.T) {
			with := func(set map[string]string) map[string]string {
				set["COMPlus_EnableDiagnostics"] = "0" // whose sockets would stay in the folder of temporary files
				set["NODE_PATH"], set["LD_LIBRARY_PATH"] = filepath.Join(folder, "node", "node_modules"), link
				return set
			}
			set := with(cache(t))
			k.patched(t, want, n, run{args: append(program, model, sessions), set: set})
			k.patched(t, want, n, run{args: append(program, model, sessions, "bytes"), set: set})
			for what, set := range map[string]map[string]string{
				"no command":     {"GRAFT_BINARY": "/nowhere/graft", "LD_PRELOAD": k.library},
				"killed command": {"GRAFT_BINARY": script(t, "kill -9 $$"), "LD_PRELOAD": k.library},
				"hanging command": {"GRAFT_BINARY": script(t, "sleep 1000"), "GRAFT_GRAPH_DEADLINE": "0.5",
					"LD_PRELOAD": k.library},
				"no cache": {"XDG_CACHE_HOME": "/proc", "GRAFT_BINARY": k.graft, "LD_PRELOAD": k.library},
			} {
				if set["XDG_CACHE_HOME"] == "" {
					set["XDG_CACHE_HOME"] = t.TempDir()
				}
				out, talk, err := k.start(t,
					run{args: append(program, model, strconv.Itoa(max(n/10, 2))), set: with(set), plain: true})
				if err != nil || strings.Count(talk, "session created without graft") != 1 ||
					strings.Contains(talk, "blocks replaced") {
					t.Errorf("%s: %v: %s", what, err, talk)
				}
				same(t, want, out)
			}
		})
	}
}
