package graft_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	onnx "github.com/yalue/onnxruntime_go"
	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

func TestEnableBeforeRuntime(t *testing.T) {
	exe := must.Value(os.Executable())(t)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := cmd.CombinedOutput()
	want := "onnxruntime is not loaded in this process; call this after the runtime's own initialisation " +
		"(ort.InitializeEnvironment with onnxruntime_go) <nil>\n"
	must.Succeed(t, err, out)
	must.Equal(t, string(out), want, out)
}

// TestEnable: sessions are patched while it is on, once however often it is
// called, with the same answers.
func TestEnable(t *testing.T) {
	environment(t)
	d := signature(t, tiny)
	unpatched := d.answers(t, tiny, nil)
	var log record
	for range 2 {
		must.Succeed(t, graft.EnableWith(graft.Options{Common: flash(t), Logger: log.logger()}))
	}
	same(t, d.answers(t, tiny, nil), unpatched)
	log.expect(t, 5, "flash-decode")

	// The last call's options hold.
	var other record
	must.Succeed(t, graft.EnableWith(graft.Options{Common: all(t), Logger: other.logger()}))
	same(t, d.answers(t, tiny, nil), unpatched)
	other.expect(t, 10, "flash-decode", "fused-gelu")

	for range 2 {
		must.Succeed(t, graft.Disable())
	}
	must.Equal(t, d.answers(t, tiny, nil), unpatched)
	must.Empty(t, slices.Concat(log.take(t), other.take(t)))
}

// TestSessionsOutliveDisable: a session that was patched runs on.
func TestSessionsOutliveDisable(t *testing.T) {
	environment(t)
	d := signature(t, tiny)
	unpatched := d.answers(t, tiny, nil)
	must.Succeed(t, graft.EnableWith(graft.Options{Common: flash(t), Strict: true}))
	s := must.Value(d.open(tiny, nil))(t)
	defer s.Destroy()
	must.Succeed(t, graft.Disable())
	got := must.Value(d.run(s))(t)
	same(t, got, unpatched)
}

func TestOptions(t *testing.T) {
	environment(t)
	d := signature(t, tiny)
	unpatched := d.answers(t, tiny, nil)
	cases := []struct {
		name     string
		options  graft.Options
		replaced int
		plugins  []string
	}{
		{"all", graft.Options{Common: graft.Common{Force: true}}, 10, []string{"flash-decode", "fused-gelu"}},
		{"one by name", graft.Options{Common: graft.Common{Force: true, Plugins: []string{"fused-gelu"}}}, 5,
			[]string{"fused-gelu"}},
		{"two by name", graft.Options{Common: graft.Common{Force: true, Plugins: []string{"fused-gelu", "flash-decode"}}}, 10,
			[]string{"flash-decode", "fused-gelu"}},
		{"except", graft.Options{Common: graft.Common{Force: true, Except: []string{"fused-gelu"}}}, 5,
			[]string{"flash-decode"}},
		{"except what is not there", graft.Options{Common: graft.Common{Force: true, Except: []string{"other"}}}, 10,
			[]string{"flash-decode", "fused-gelu"}},
		{"except all", graft.Options{Common: graft.Common{Force: true, Except: []string{"fused-gelu", "flash-decode"}}}, 0,
			nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var log record
			c.options.Folders, c.options.AcceptUnverified = built(t, "flash-decode", "fused-gelu"), true
			c.options.Strict, c.options.Logger = true, log.logger()
			must.Succeed(t, graft.EnableWith(c.options))
			same(t, d.answers(t, tiny, nil), unpatched)
			log.expect(t, c.replaced, c.plugins...)
		})
	}
}

// TestEnableRefuses: an error says what is missing, and changes nothing.
func TestEnableRefuses(t *testing.T) {
	environment(t)
	d := signature(t, tiny)
	var log record
	must.Succeed(t, graft.EnableWith(graft.Options{Common: flash(t), Logger: log.logger()}))
	broken := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(broken, "plugin.yaml"), []byte("schema_version: 9\n"), 0o644))
	cases := []struct {
		name    string
		options graft.Options
		kind    error
		want    []string
	}{
		{"no plugins", graft.Options{}, graft.ErrNoPlugin,
			[]string{"found no plugin; looked in:", "graft/plugins (user data folder)", "(beside the executable)",
				"install one with: graft plugin install DIR"}},
		{"an empty folder", graft.Options{Common: graft.Common{Folders: []string{t.TempDir()}}}, graft.ErrNoPlugin,
			[]string{"(option)", "found no plugin"}},
		{"not verified", graft.Options{Common: graft.Common{Folders: built(t, "flash-decode")}}, graft.ErrBadPlugin,
			[]string{"has not been verified here", "run: graft plugin install "}},
		{"a broken manifest", graft.Options{Common: graft.Common{Folders: []string{broken}}}, graft.ErrBadPlugin,
			[]string{broken, "schema_version"}},
		{"a name that no plugin has",
			graft.Options{Common: graft.Common{Folders: built(t, "flash-decode"), AcceptUnverified: true,
				Plugins: []string{"flash"}}}, graft.ErrNoPlugin,
			[]string{`no plugin "flash" is loaded, found flash-decode`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := graft.EnableWith(c.options)
			must.Fail(t, err, c.kind)
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q in it", err, want)
				}
			}
			d.answers(t, tiny, nil)
			log.expect(t, 5, "flash-decode")
		})
	}
}

// TestSessionConfig: a session steers itself by entries of ONNX Runtime's own
// config.
func TestSessionConfig(t *testing.T) {
	environment(t)
	d := signature(t, tiny)
	unpatched := d.answers(t, tiny, nil)
	var log record
	enable := func(strict bool) {
		t.Helper()
		must.Succeed(t, graft.EnableWith(graft.Options{Common: all(t), Strict: strict, Logger: log.logger()}))
	}
	enable(false)
	with := func(t *testing.T, key, value string) *onnx.SessionOptions {
		t.Helper()
		o := must.Value(onnx.NewSessionOptions())(t)
		t.Cleanup(func() { o.Destroy() })
		must.Succeed(t, o.AddSessionConfigEntry(key, value))
		return o
	}
	for _, c := range []struct {
		key, value string
		replaced   int
		plugins    []string
	}{
		{graft.ConfigDisable, "0", 10, []string{"flash-decode", "fused-gelu"}},
		{graft.ConfigPlugins, "fused-gelu", 5, []string{"fused-gelu"}},
		{graft.ConfigPlugins, " flash-decode , fused-gelu,", 10, []string{"flash-decode", "fused-gelu"}},
		{graft.ConfigPlugins, "", 0, nil},
	} {
		t.Run(c.key+"="+c.value, func(t *testing.T) {
			same(t, d.answers(t, tiny, with(t, c.key, c.value)), unpatched)
			log.expect(t, c.replaced, c.plugins...)
		})
	}
	t.Run("disabled", func(t *testing.T) {
		must.Equal(t, d.answers(t, tiny, with(t, graft.ConfigDisable, "1")), unpatched)
		must.Empty(t, log.take(t))
	})
	const reason = `session config entry graft.plugins: no plugin "other" is loaded, found flash-decode, fused-gelu`
	t.Run("wrong name", func(t *testing.T) {
		must.Equal(t, d.answers(t, tiny, with(t, graft.ConfigPlugins, "other")), unpatched)
		list := log.take(t)
		if len(list) != 1 || list[0].Level != "WARN" || !strings.Contains(list[0].Reason, reason) || list[0].Model != tiny {
			t.Errorf("the log says %+v, want one warning with %q", list, reason)
		}
	})
	t.Run("wrong name, strict", func(t *testing.T) {
		enable(true)
		s, err := d.open(tiny, with(t, graft.ConfigPlugins, "other"))
		if err == nil {
			s.Destroy()
			t.Fatal("a session was made")
		}
		if !strings.Contains(err.Error(), "graft: "+tiny+" was not patched: "+reason) {
			t.Errorf("error %q, want %q in it", err, reason)
		}
		must.Empty(t, log.take(t))
	})
}

// TestBytes: a model given as bytes, which may go once the session is made.
func TestBytes(t *testing.T) {
	environment(t)
	d := signature(t, tiny)
	unpatched := d.answers(t, tiny, nil)
	var log record
	must.Succeed(t, graft.EnableWith(graft.Options{Common: flash(t), Strict: true, Logger: log.logger()}))
	data := must.Value(os.ReadFile(tiny))(t)
	s := must.Value(onnx.NewDynamicAdvancedSessionWithONNXData(data, d.inputs, d.outputs, nil))(t)
	defer s.Destroy()
	clear(data)
	got := must.Value(d.run(s))(t)
	same(t, got, unpatched)
	log.expect(t, 5, "flash-decode")
}

// TestHuggingFaceCache: a model whose files are links into a folder of blobs,
// external data included.
func TestHuggingFaceCache(t *testing.T) {
	environment(t)
	f := must.Value(models.Lookup("optimum", "gpt2"))(t)
	root := t.TempDir()
	whole := filepath.Join(root, "whole.onnx")
	blobs, snapshot := filepath.Join(root, "blobs"), filepath.Join(root, "snapshots", "8f2c")
	for _, folder := range []string{blobs, snapshot} {
		must.Succeed(t, os.MkdirAll(folder, 0o755))
	}
	must.Succeed(t, f.Write(whole, 1))
	path := filepath.Join(snapshot, "model.onnx")
	must.Succeed(t, f.WriteExternal(path, 1))
	for name, blob := range map[string]string{path: "1f5a", path + ".data": "77e0"} {
		must.Succeed(t, os.Rename(name, filepath.Join(blobs, blob)))
		must.Succeed(t, os.Symlink(filepath.Join("..", "..", "blobs", blob), name))
	}
	d := signature(t, whole)
	unpatched := d.answers(t, whole, nil)
	var log record
	must.Succeed(t, graft.EnableWith(graft.Options{Common: flash(t), Strict: true, Logger: log.logger()}))
	same(t, d.answers(t, path, nil), unpatched)
	if list := log.take(t); len(list) != 1 || list[0].Replaced == 0 {
		t.Errorf("the log says %+v, want a patched session", list)
	}
}

// TestConcurrent: Enable, Disable, and sessions that are made, run and released,
// from several goroutines at once.
func TestConcurrent(t *testing.T) {
	environment(t)
	d := signature(t, tiny)
	unpatched := d.answers(t, tiny, nil)
	on := graft.Options{Common: all(t), Strict: true, Logger: slog.New(slog.DiscardHandler)}
	must.Succeed(t, graft.EnableWith(on))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 3 {
				if i == 0 {
					if err := graft.Disable(); err != nil {
						t.Error(err)
					}
				}
				if err := graft.EnableWith(on); err != nil {
					t.Error(err)
				}
				s, err := d.open(tiny, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := d.run(s); err != nil {
					t.Error(err)
				} else {
					same(t, got, unpatched)
				}
				s.Destroy()
			}
		})
	}
	wg.Wait()
}

// TestTwoSessions: two patched sessions run at once, each from two goroutines.
func TestTwoSessions(t *testing.T) {
	environment(t)
	d := signature(t, tiny)
	unpatched := d.answers(t, tiny, nil)
	must.Succeed(t, graft.EnableWith(graft.Options{Common: all(t), Strict: true}))
	var wg sync.WaitGroup
	for range 2 {
		s := must.Value(d.open(tiny, nil))(t)
		defer s.Destroy()
		for range 2 {
			wg.Go(func() {
				for range 10 {
					got, err := d.run(s)
					if err != nil {
						t.Error(err)
						return
					}
					same(t, got, unpatched)
				}
			})
		}
	}
	wg.Wait()
}

func TestPatch(t *testing.T) {
	environment(t)
	folder := t.TempDir()
	options := graft.Options{Common: flash(t)}
	out := filepath.Join(folder, "patched.onnx")
	patched, err := graft.Patch(t.Context(), tiny, out, options)
	if err != nil || patched.Replaced != 5 || patched.Blocks != 5 || len(patched.Libraries) != 1 {
		t.Fatalf("%+v, %v", patched, err)
	}
	// Its operators are in no library of the runtime's own.
	d := signature(t, tiny)
	if s, err := d.open(out, nil); err == nil {
		s.Destroy()
		t.Error("the patched file loads without the plugin's library")
	}
	o := must.Value(onnx.NewSessionOptions())(t)
	defer o.Destroy()
	must.Succeed(t, o.RegisterCustomOpsLibrary(patched.Libraries[0]))
	same(t, d.answers(t, out, o), d.answers(t, tiny, nil))
}

// TestPatchRefuses: an error has its kind and says why, and no file is written.
func TestPatchRefuses(t *testing.T) {
	environment(t)
	folder := t.TempDir()
	nowhere, no := filepath.Join(folder, "nowhere.onnx"), filepath.Join(folder, "no.onnx")
	must.Succeed(t, os.WriteFile(no, []byte("no model"), 0o644))
	tied := filepath.Join(folder, "tied.onnx")
	if data, err := proto.Marshal(blockstest.Proto(t, blockstest.Tied)); err != nil {
		t.Fatal(err)
	} else if err := os.WriteFile(tied, data, 0o644); err != nil {
		t.Fatal(err)
	}
	with := func(change func(*graft.Options)) graft.Options {
		o := graft.Options{Common: graft.Common{Folders: built(t, "flash-decode"), AcceptUnverified: true}}
		change(&o)
		return o
	}
	here := with(func(*graft.Options) {})
	for _, c := range []struct {
		name, model string
		options     graft.Options
		kind        error
		want        []string
	}{
		{"every plugin is excepted", tiny, with(func(o *graft.Options) { o.Except = []string{"flash-decode"} }),
			graft.ErrNothingReplaced,
			[]string{tiny + ": nothing to replace among 5 blocks: 5 because ", "graft inspect"}},
		{"no block that can be placed", tied, with(func(o *graft.Options) { o.Force = true }), graft.ErrNothingReplaced,
			[]string{"nothing to replace among 1 blocks: 1 because what it reads is made from the shape of what it makes"}},
		{"no block", "host/generate/pipeline/pipeline.go", here, graft.ErrBadModel,
			[]string{"host/generate/pipeline/pipeline.go"}},
		{"no file", nowhere, here, graft.ErrBadModel, []string{"nowhere.onnx: cannot open the file"}},
		{"no file, as the system tells it", nowhere, here, fs.ErrNotExist, nil},
		{"no model", no, here, graft.ErrBadModel, []string{no}},
		{"no plugin", tiny, graft.Options{}, graft.ErrNoPlugin, []string{"found no plugin"}},
		{"a name that no plugin has", tiny, with(func(o *graft.Options) { o.Plugins = []string{"flash"} }), graft.ErrNoPlugin,
			[]string{`no plugin "flash"`}},
		{"an option of sessions", tiny, with(func(o *graft.Options) { o.Strict = true }), graft.ErrOption,
			[]string{"Strict is set and would be ignored"}},
		{"not verified", tiny, with(func(o *graft.Options) { o.AcceptUnverified = false }), graft.ErrBadPlugin,
			[]string{"has not been verified here"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(folder, "out.onnx")
			patched, err := graft.Patch(t.Context(), c.model, out, c.options)
			if patched != nil || !errors.Is(err, c.kind) {
				t.Fatalf("%+v, %v, want an error of the kind %v", patched, err, c.kind)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q in it", err, want)
				}
			}
			must.Fail(t, must.Error(os.Stat(out)), fs.ErrNotExist)
		})
	}
}
