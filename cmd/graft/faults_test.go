//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opgraft/graft/host/distribute/store"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/internal/sample"
	"github.com/opgraft/graft/tests/faults"
)

// asCommand makes the test's executable the command.
const asCommand = "GRAFT_TEST_AS_COMMAND"

// place is all that a command reads and writes, below one folder.
type place struct {
	t      *testing.T
	folder string
	below  []string // the folders in it whose files' calls fail; none for all
	env    []string // more of the environment
}

// newPlace makes one with empty folders.
func newPlace(t *testing.T) *place {
	t.Helper()
	folder := must.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	p := &place{t: t, folder: folder}
	for _, name := range []string{"tmp", "data", "cache", "in", "out"} {
		must.Succeed(t, os.Mkdir(p.at(name), 0o700))
	}
	return p
}

// copy is a place with the same files, in which paths are its own.
func (p *place) copy() *place {
	p.t.Helper()
	c := newPlace(p.t)
	c.below, c.env = p.below, p.env
	if output, err := exec.Command("cp", "-a", p.folder+"/.", c.folder).CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %s", err, output)
	}
	err := filepath.WalkDir(c.folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if own := bytes.ReplaceAll(text, []byte(p.folder), []byte(c.folder)); !bytes.Equal(own, text) {
			plugintest.WriteFile(p.t, path, own)
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

func (p *place) at(parts ...string) string {
	return filepath.Join(append([]string{p.folder}, parts...)...)
}

// libraryPath is ONNX Runtime's, which the commands would not find in a cache of their own.
var libraryPath = sync.OnceValue(func() string {
	found, err := ort.Find("")
	if err != nil {
		panic(err)
	}
	return found.Path
})

// command runs graft there with a fault.
func (p *place) command(fault faults.Fault, args ...string) *faults.Run {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	plugins, err := filepath.Abs("../../build/plugins")
	if err != nil {
		p.t.Fatal(err)
	}
	c := exec.Command(os.Args[0], args...)
	c.Dir = p.folder
	c.Env = append(os.Environ(), asCommand+"=1", "GRAFT_ONNXRUNTIME="+libraryPath(), "GRAFT_PLUGIN_PATH="+plugins,
		"GRAFT_PLUGIN_UNVERIFIED=1", "TMPDIR="+p.at("tmp"), "XDG_DATA_HOME="+p.at("data"), "XDG_CACHE_HOME="+p.at("cache"))
	c.Env = append(c.Env, p.env...)
	below := []string{p.folder} // plugins lie elsewhere: without one of them a model is patched otherwise, and well
	for i, name := range p.below {
		below = append(below[:i], p.at(name))
	}
	run, err := faults.Start(ctx, c, below, fault)
	if err != nil {
		p.t.Fatalf("%v with %+v: %v", args, fault, err)
	}
	return run
}

// files are those below a folder, with their content; folders have a slash at their end.
func files(t *testing.T, folder string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil || e.IsDir() {
			out[name+"/"] = ""
			return err
		}
		data, err := os.ReadFile(path)
		out[name] = string(data)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return out
}

// writing is a command that writes, and what must hold of what it wrote.
type writing struct {
	args    []string
	prepare func(p *place)
	// whole checks what is there after a fault: old or new, and new where the command went well.
	whole func(p *place, run *faults.Run) error
	// again are the arguments with which it goes on after a fault.
	again []string
	// clear makes room for that; nil where none is needed.
	clear func(p *place)
	// after checks what is there once it went well, with nothing left of runs before.
	after func(p *place, run *faults.Run) error
	below []string // as in place
	env   []string // as in place
}

// TestFaultsOfCommands makes calls of the system fail, and ends commands there. What they write is the old or the
// new, whole; an error is told once; and the next run leaves nothing of the one before. With GRAFT_TEST_FAULTS_ALL=1
// it walks over every call; else over some, by a seed, and a sample is a third of the commands.
func TestFaultsOfCommands(t *testing.T) {
	commands := map[string]func(*testing.T) *writing{"install": installing, "upgrade": upgrading,
		"upgrade of an older store": upgradingOlder, "rollback": rollingBack, "locked": installingLocked, "remove": removing,
		"lock": locking, "bundle": bundling, "patch": patching, "quantize": quantising, "generate": generating,
		"fold": folding, "tune": tabulating, "pull": pulling, "pull to a folder": pullingTo,
		"plugin new": beginning, "plugin sdk": unfolding}
	for i, name := range slices.Sorted(maps.Keys(commands)) {
		if os.Getenv("GRAFT_TEST_FAULTS_ALL") == "" && !sample.Has(i, 3) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			commands[name](t).walk(t)
		})
	}
}

func (w *writing) walk(t *testing.T) {
	prepared := newPlace(t)
	prepared.below, prepared.env = w.below, w.env
	w.prepare(prepared)
	fresh := prepared.copy
	p := fresh()
	calls := p.command(faults.Fault{}, w.args...)
	if err := w.after(p, calls); calls.Code != 0 || err != nil {
		t.Fatalf("without a fault: exit code %d, %v\n%s", calls.Code, err, calls.Stderr)
	}
	durable(t, calls.Trace)
	os.RemoveAll(p.folder)
	all := os.Getenv("GRAFT_TEST_FAULTS_ALL") != ""
	number, _ := sample.Number()
	seeded, hits := rand.New(rand.NewPCG(13, uint64(number))), 0
	for n := 1; n <= calls.Calls+10 && !t.Failed(); n++ {
		if all && n%20 == 0 {
			t.Logf("%d of %d calls, %d faults", n, calls.Calls, hits)
		}
		for _, kill := range []bool{false, true} {
			if !all && seeded.IntN(calls.Calls) >= 2 { // some two of each kind
				continue
			}
			if hit := w.one(t, fresh(), faults.Fault{At: n, Kill: kill}); hit {
				hits++
			}
		}
	}
	t.Logf("%d calls of the system on its files; %d faults, after each all was whole", calls.Calls, hits)
}

// durable checks that what was written is synced afterwards, and the folder of what was renamed too: after a loss of
// power what was said to be written is there.
func durable(t *testing.T, trace []faults.Call) {
	t.Helper()
	for i, c := range trace {
		path := c.Path
		switch c.Name {
		case "renameat", "renameat2":
			path = filepath.Dir(path)
		case "write", "pwrite", "writev", "copy_file_range", "sendfile":
		default:
			continue
		}
		synced := slices.ContainsFunc(trace[i+1:], func(later faults.Call) bool {
			return (later.Name == "fsync" || later.Name == "fdatasync") && later.Path == path
		})
		if !synced {
			t.Errorf("%s of %s, and no fsync of %s after it", c.Name, c.Path, path)
		}
	}
}

// one runs the command with one fault.
func (w *writing) one(t *testing.T, p *place, fault faults.Fault) (hit bool) {
	defer os.RemoveAll(p.folder)
	run := p.command(fault, w.args...)
	if run.Hit == "" {
		return false
	}
	wrong := func(format string, args ...any) {
		t.Errorf("%s (killed: %v): %s\nexit code %d, stderr: %s", run.Hit, fault.Kill, fmt.Sprintf(format, args...), run.Code,
			run.Stderr)
	}
	if err := w.whole(p, run); err != nil {
		wrong("%v", err)
	}
	told := strings.Count("\n"+run.Stderr, "\ngraft: ")
	switch {
	case run.Code > 0 && told != 1:
		wrong("%d errors told, want one", told)
	case run.Code > 5 || strings.Contains(run.Stderr, "goroutine ") || strings.Contains(run.Stderr, "panic"):
		wrong("a crash")
	}
	if w.clear != nil {
		w.clear(p)
	}
	again := p.command(faults.Fault{}, w.again...)
	if again.Code != 0 {
		wrong("the next run: exit code %d, %s", again.Code, again.Stderr)
	}
	if err := w.after(p, again); err != nil {
		wrong("after the next run: %v", err)
	}
	if left := files(t, p.at("tmp")); len(left) > 0 {
		wrong("after the next run the temporary folder holds %v", left)
	}
	return true
}

// installing replaces an installed plugin.
func installing(t *testing.T) *writing {
	sources := map[string]map[string]string{}
	made := t.TempDir()
	fixture := must.Value(filepath.Abs("../../host/plugin/plugintest/testdata/plugin.c"))(t)
	for name, level := range map[string]string{"old": "-O1", "new": "-O2"} {
		library := filepath.Join(made, name+".so")
		plugintest.Compile(t, library, level, "-DARCH=\""+runtime.GOARCH+"\"", "-I../../abi", fixture)
		plugintest.Write(t, filepath.Join(made, name), plugintest.Manifest+plugintest.Cases, library)
		sources[name] = files(t, filepath.Join(made, name))
	}
	// installed says which of the sources the store holds.
	installed := func(p *place) (string, error) {
		s := store.At(p.at("data", "graft"))
		list, err := s.List()
		if err != nil || len(list) != 1 || list[0].Problem != "" {
			return "", fmt.Errorf("the store holds %+v, %v", list, err)
		}
		found := files(t, list[0].Folder)
		delete(found, ".graft-record.json")
		for name, content := range sources {
			if fmt.Sprint(found) == fmt.Sprint(content) {
				return name, nil
			}
		}
		return "", errors.New("the plugin is neither the old nor the new one")
	}
	args := []string{"plugin", "install", "in/new", "--replace", "toy", "-q"}
	return &writing{args: args, again: args,
		prepare: func(p *place) {
			for name, content := range sources {
				lay(t, p.at("in", name), content)
			}
			if run := p.command(faults.Fault{}, "plugin", "install", "in/old", "-q"); run.Code != 0 {
				t.Fatal(run.Stderr)
			}
		},
		whole: func(p *place, run *faults.Run) error {
			name, err := installed(p)
			if err == nil && run.Code == 0 && name != "new" {
				err = errors.New("it went well, and the old plugin is there")
			}
			return err
		},
		after: func(p *place, _ *faults.Run) error {
			name, err := installed(p)
			if err != nil || name != "new" {
				return fmt.Errorf("the store has the %s plugin, %v", name, err)
			}
			return tidy(p, 1)
		}}
}

// lay makes the files below a folder.
func lay(t *testing.T, folder string, content map[string]string) {
	t.Helper()
	for name, text := range content {
		path := filepath.Join(folder, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if !strings.HasSuffix(name, "/") {
			plugintest.WriteFile(t, path, []byte(text))
		}
	}
}

// patching writes a model. It overwrites none: after a fault it is removed.
func patching(t *testing.T) *writing {
	model := must.Value(os.ReadFile("../../models/tiny-gpt2/model.onnx"))(t)
	var want []byte
	args := []string{"patch", "in/model.onnx", "-o", "out/model.onnx", "--force", "-q"}
	return &writing{args: args, again: args, clear: func(p *place) { os.Remove(p.at("out", "model.onnx")) },
		prepare: func(p *place) {
			plugintest.WriteFile(t, p.at("in", "model.onnx"), model)
			must.Succeed(t, os.MkdirAll(p.at("out"), 0o755))
		},
		whole: func(p *place, run *faults.Run) error {
			data, err := os.ReadFile(p.at("out", "model.onnx"))
			switch {
			case errors.Is(err, fs.ErrNotExist) && run.Code != 0:
				return nil
			case err == nil && !bytes.Equal(data, want):
				err = fmt.Errorf("found %d bytes, which are not the whole file", len(data))
			}
			return err
		},
		after: func(p *place, _ *faults.Run) error {
			data, err := os.ReadFile(p.at("out", "model.onnx"))
			if want == nil {
				want = data
			}
			if found := files(t, p.at("out")); err == nil && (len(found) != 1 || !bytes.Equal(data, want)) {
				err = fmt.Errorf("the folder holds %d files, the model's of %d bytes", len(found), len(data))
			}
			return errors.Join(err, unfinished(p))
		}}
}

// quantising writes a model folder where there is none.
func quantising(t *testing.T) *writing {
	return writingFolder(t, func(p *place) { lay(t, p.at("in"), files(t, "../../models/encoders/reranker")) },
		[]string{"model.onnx", "tokenizer.json"}, "quantize", "in", "-o", "out/folder", "--threads", "1", "-q")
}

// beginning writes a plugin's folder, and unfolding what plugins are built with.
func beginning(t *testing.T) *writing {
	return writingFolder(t, func(*place) {}, []string{"plugin.yaml", "my_plugin.cc"},
		"plugin", "new", "my-plugin", "--to", "out/folder")
}

func unfolding(t *testing.T) *writing {
	return writingFolder(t, func(*place) {}, []string{"graft_plugin.h"}, "plugin", "sdk", "out/folder")
}

// writingFolder writes one where there is none, with some files.
func writingFolder(t *testing.T, prepare func(*place), with []string, args ...string) *writing {
	var want map[string]string
	return &writing{args: args, again: args,
		prepare: func(p *place) {
			prepare(p)
			lay(t, p.at("out"), map[string]string{"other": "theirs"})
		},
		whole: func(p *place, run *faults.Run) error {
			_, err := os.Stat(p.at("out", "folder"))
			found := files(t, p.at("out", "folder"))
			switch {
			case err == nil && want != nil && !maps.Equal(found, want):
				return fmt.Errorf("found %d files, not those of the whole folder", len(found))
			case err != nil && run.Code == 0:
				return errors.New("it went well, and no folder is there")
			case err == nil: // in place before the fault; the next run needs an empty place
				return os.RemoveAll(p.at("out", "folder"))
			}
			return nil
		},
		after: func(p *place, run *faults.Run) error {
			found := files(t, p.at("out", "folder"))
			if want == nil {
				want = found
			}
			list, err := os.ReadDir(p.at("out"))
			missing := slices.ContainsFunc(with, func(name string) bool { return found[name] == "" })
			if err == nil && (len(list) != 2 || !maps.Equal(found, want) || missing) {
				err = fmt.Errorf("%d files are in the folder, %d beside it", len(found), len(list)-1)
			}
			return errors.Join(err, unfinished(p))
		}}
}

// unfinished finds what is left in the cache and should not be.
func unfinished(p *place) error {
	for name := range files(p.t, p.at("cache")) {
		if strings.HasSuffix(name, ".tmp") {
			return fmt.Errorf("%s is left in the cache", name)
		}
	}
	return nil
}

// generating writes outputs line by line, and goes on with --resume.
func generating(t *testing.T) *writing {
	var want string
	out := func(p *place) (string, error) {
		data, err := os.ReadFile(p.at("out", "text"))
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		if text := string(data); err == nil && want != "" && !strings.HasPrefix(want, text) {
			err = fmt.Errorf("found %q, needed a beginning of %q", text, want)
		}
		return string(data), err
	}
	args := []string{"generate", "in/g2p", "--input", "in/words", "--output", "out/text", "-q"}
	return &writing{args: args, again: append(args, "--resume"), below: []string{"out", "cache", "data", "tmp"},
		prepare: g2p,
		whole: func(p *place, run *faults.Run) error {
			text, err := out(p)
			if err == nil && run.Code == 0 && text != want {
				err = fmt.Errorf("it went well, and the output is %q", text)
			}
			return err
		},
		after: func(p *place, _ *faults.Run) error {
			text, err := out(p)
			if want == "" {
				want = text
			}
			if err == nil && (text != want || strings.Count(text, "\n") != 3) {
				err = fmt.Errorf("the output is %q", text)
			}
			for name := range files(t, p.at("out")) {
				if name != "text" && name != "text.graft.json" {
					err = fmt.Errorf("%s is left beside the output", name)
				}
			}
			return err
		}}
}

// g2p brings a model folder, and words for it.
func g2p(p *place) {
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
		"encoder_model.onnx", "decoder_model_merged.onnx", "vocab.json"} {
		data, err := os.ReadFile(filepath.Join("../../models/g2p", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			p.t.Fatal(err)
		}
		lay(p.t, p.at("in", "g2p"), map[string]string{name: string(data)})
	}
	plugintest.WriteFile(p.t, p.at("in", "words"), []byte("hello\nworld\ngraft\n"))
}

// folding stores what plugins compute from weights, and the machine's figures, in the cache. Neither is needed: what
// cannot be stored or read is computed again, and said.
func folding(t *testing.T) *writing {
	want := ""
	args := []string{"generate", "in/g2p", "--input", "in/words", "--attention", "first_layer_keys", "-q"}
	whole := func(p *place, run *faults.Run) error {
		if run.Code == 0 && want != "" && run.Stdout != want {
			return fmt.Errorf("it went well, and printed %q", run.Stdout)
		}
		return nil
	}
	return &writing{args: args, again: args, below: []string{"cache", "data", "tmp"}, prepare: g2p, whole: whole,
		after: func(p *place, run *faults.Run) error {
			if want == "" {
				want = run.Stdout
			}
			if strings.Contains(run.Stderr, "damaged") {
				return fmt.Errorf("the run before left a damaged file: %s", run.Stderr)
			}
			stored := 0
			for name := range files(t, p.at("cache")) {
				if strings.HasSuffix(name, ".fold") {
					stored++
				}
			}
			if stored == 0 || strings.Count(want, "\n") != 3 {
				return fmt.Errorf("%d folds are stored, and it printed %q", stored, run.Stdout)
			}
			return errors.Join(whole(p, run), unfinished(p))
		}}
}

// tabulating stores tables, and the machine's figures.
func tabulating(t *testing.T) *writing {
	args := []string{"tune", "in/g2p", "--beam", "1", "--batch-size", "1", "--rounds", "1", "--max-new-tokens", "2", "-q"}
	whole := func(p *place, run *faults.Run) error {
		stored := 0
		for name, text := range files(t, p.at("cache")) {
			if strings.HasSuffix(name, ".json") && !strings.HasPrefix(filepath.Base(name), ".") {
				stored++
				if !json.Valid([]byte(text)) {
					return fmt.Errorf("%s is cut short: %q", name, text)
				}
			}
		}
		if run.Code == 0 && stored < 2 { // the machine's own may be missing, with a warning
			return fmt.Errorf("it went well, and %d tables are stored", stored)
		}
		return nil
	}
	return &writing{args: args, again: args, below: []string{"cache", "data", "tmp"}, prepare: g2p, whole: whole,
		after: func(p *place, run *faults.Run) error { return errors.Join(whole(p, run), unfinished(p)) }}
}
