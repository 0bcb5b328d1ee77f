package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/cuda/cudatest"
	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/internal/sample"
	"github.com/opgraft/graft/tests/faults"
)

func TestMain(m *testing.M) {
	faults.Main()
	worker.Main(tasks())                          // graft plugin install runs this executable as its child
	if len(os.Args) > 1 && os.Args[1] == abSide { // and so does graft ab
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	if os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	testscript.Main(m, map[string]func(){
		"graft": func() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) },
	})
}

// longScripts take half a minute or more: they compile plugins, compare and generate.
var longScripts = []string{"attention", "author", "author_rust", "cache", "compare", "drafts"}

func scripts(t *testing.T) (list []string) {
	t.Helper()
	for n, path := range must.Value(filepath.Glob("testdata/script/*.txt*"))(t) {
		name, _, _ := strings.Cut(filepath.Base(path), ".")
		if i := slices.Index(longScripts, name); i < 0 && sample.Has(n, 2) || i >= 0 && sample.Has(i, 3) {
			list = append(list, path)
		}
	}
	return list
}

// TestScripts runs the commands as a shell would. In the scripts, $TINY is a
// model, $TIED one with a block that is planned and cannot be placed, $G2P a model folder, $ENCODERS the folder of
// small encoders, $PLUGINS the folder of the plugins just built, $CUDA_DRIVER a driver without a device, and graft
// knows of none unless told. $FIXTURE is the loader's test plugin, in C over $HEADER.
// A sample is a third of those that take long and half of the others.
func TestScripts(t *testing.T) {
	tiny := must.Value(filepath.Abs("../../models/tiny-gpt2/model.onnx"))(t)
	g2p := must.Value(filepath.Abs("../../models/g2p"))(t)
	plugins := must.Value(filepath.Abs("../../build/plugins"))(t)
	for _, name := range []string{"flash-decode", "fused-gelu"} {
		if _, err := os.Stat(filepath.Join(plugins, name, manifest.FileName)); err != nil {
			t.Fatalf("%v: run make plugins", err)
		}
	}
	fixture := must.Value(filepath.Abs("../../host/plugin/plugintest/testdata/plugin.c"))(t)
	header := must.Value(filepath.Abs("../../abi"))(t)
	encoders := must.Value(filepath.Abs("../../models/encoders"))(t)
	tied := filepath.Join(t.TempDir(), "tied.onnx")
	if data, err := proto.Marshal(blockstest.Proto(t, blockstest.Tied)); err != nil {
		t.Fatal(err)
	} else if err := os.WriteFile(tied, data, 0o644); err != nil {
		t.Fatal(err)
	}
	cudaDriver := cudatest.Library(t)
	runtime := must.Value(ort.Find(""))(t)
	testscript.Run(t, testscript.Params{
		Files:               scripts(t),
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			for _, v := range []string{"GRAFT_PLUGIN_PATH", "GRAFT_PLUGIN_UNVERIFIED"} {
				e.Setenv(v, "")
			}
			e.Setenv("GRAFT_ONNXRUNTIME", runtime.Path)
			e.Setenv("XDG_DATA_HOME", filepath.Join(e.WorkDir, "data"))
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("TINY", tiny)
			e.Setenv("TIED", tied)
			e.Setenv("PLUGINS", plugins)
			e.Setenv("G2P", g2p)
			e.Setenv("ENCODERS", encoders)
			e.Setenv("CUDA_DRIVER", cudaDriver)
			e.Setenv("FIXTURE", fixture)
			e.Setenv("HEADER", header)
			e.Setenv("ARCH", goruntime.GOARCH)
			e.Setenv("AUTHOR_PATH", authorPath(t, e))
			// of who runs the tests
			for name, folder := range map[string]string{"RUSTUP_HOME": ".rustup", "CARGO_HOME": ".cargo"} {
				if os.Getenv(name) == "" {
					e.Setenv(name, filepath.Join(os.Getenv("HOME"), folder))
				} else {
					e.Setenv(name, os.Getenv(name))
				}
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": code, "json": jsonCommand, "refusal": refused, "poke": poke, "folder-of": folderOf,
		},
	})
}

// authorPath is testscript's PATH with the author's programs, and nothing else.
func authorPath(t *testing.T, e *testscript.Env) string {
	own, _, _ := strings.Cut(e.Getenv("PATH"), string(os.PathListSeparator)) // testscript's, with graft in it
	return own + string(os.PathListSeparator) + authorPrograms(t, filepath.Join(e.WorkDir, "author-bin"))
}

// code runs a program and requires its exit code: code 2 graft nope.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM [ARGUMENT]...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		m := regexp.MustCompile(`exit status (\d+)`).FindStringSubmatch(err.Error())
		if m == nil {
			ts.Fatalf("%v", err)
		}
		got, _ = strconv.Atoi(m[1])
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// jsonCommand looks a path up in the one JSON object on standard output:
//
//	json blocks.0.kind attention     the value, as a regular expression of the whole
//	json blocks.*.facts              every item of the array has it
//	! json plugins.0                 it is not there
func jsonCommand(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 1 || len(args) > 2 || neg && len(args) == 2 {
		ts.Fatalf("usage: [!] json PATH [REGEXP]")
	}
	d := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	d.UseNumber()
	var root map[string]any
	ts.Check(d.Decode(&root))
	if d.More() {
		ts.Fatalf("more than one object on standard output")
	}
	if _, ok := root["schema_version"]; !ok {
		ts.Fatalf("the object has no schema_version")
	}
	found, err := lookup(root, strings.Split(args[0], "."))
	if neg {
		if err == nil {
			ts.Fatalf("%s is there: %v", args[0], found)
		}
		return
	}
	ts.Check(err)
	if len(args) == 1 {
		return
	}
	want, err := regexp.Compile("^(?:" + args[1] + ")$")
	ts.Check(err)
	for _, v := range found {
		if text, ok := v.(string); ok && want.MatchString(text) || !ok && want.MatchString(fmt.Sprint(v)) {
			continue
		}
		ts.Fatalf("%s is %v, want %s", args[0], v, args[1])
	}
}

// refused looks a part of the one JSON object on standard error up, beside which nothing stands there:
//
//	refusal found 'opset \d+'     the part, as a regular expression of the whole
//	! refusal path                it is not there
func refused(ts *testscript.TestScript, neg bool, args []string) {
	if neg && len(args) != 1 || !neg && len(args) != 2 {
		ts.Fatalf("usage: [!] refusal PART [REGEXP]")
	}
	var object map[string]string
	text := ts.ReadFile("stderr")
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		ts.Fatalf("standard error is not one JSON object: %v\n%s", err, text)
	}
	part, ok := object[args[0]]
	if neg == ok {
		ts.Fatalf("%s: there is %t: %s", args[0], ok, text)
	}
	if !neg && !regexp.MustCompile("^(?:"+args[1]+")$").MatchString(part) {
		ts.Fatalf("%s is %q, want %s", args[0], part, args[1])
	}
}

// lookup gives the values at a path; * stands for every item, of which there
// must be one.
func lookup(v any, path []string) ([]any, error) {
	if len(path) == 0 {
		return []any{v}, nil
	}
	switch v := v.(type) {
	case map[string]any:
		inner, ok := v[path[0]]
		if !ok {
			return nil, fmt.Errorf("no key %q", path[0])
		}
		return lookup(inner, path[1:])
	case []any:
		if path[0] == "*" && len(v) > 0 {
			var all []any
			for i, item := range v {
				found, err := lookup(item, path[1:])
				if err != nil {
					return nil, fmt.Errorf("item %d: %w", i, err)
				}
				all = append(all, found...)
			}
			return all, nil
		}
		i, err := strconv.Atoi(path[0])
		if err != nil || i < 0 || i >= len(v) {
			return nil, fmt.Errorf("no item %s of %d", path[0], len(v))
		}
		return lookup(v[i], path[1:])
	}
	return nil, fmt.Errorf("no %s in %v", strings.Join(path, "."), v)
}

// poke writes one byte: poke FILE OFFSET VALUE.
func poke(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: poke FILE OFFSET VALUE")
	}
	offset, err := strconv.ParseInt(args[1], 0, 64)
	ts.Check(err)
	value, err := strconv.ParseUint(args[2], 0, 8)
	ts.Check(err)
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_RDWR, 0)
	ts.Check(err)
	_, err = f.WriteAt([]byte{byte(value)}, offset)
	ts.Check(err)
	ts.Check(f.Close())
}

// folderOf requires a folder to hold exactly the names given.
func folderOf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: folder-of FOLDER [NAME]...")
	}
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(args[1:], " ") {
		ts.Fatalf("%s holds %v, want %v", args[0], got, args[1:])
	}
}
