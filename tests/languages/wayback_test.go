package languages

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// tinyModel writes y = -x over float32[n]; or one that reads the fourth element on the way, and fails where there is
// none.
func tinyModel(t *testing.T, path string, fails bool) string {
	t.Helper()
	value := func(name string) *onnx.ValueInfo {
		shape := &onnx.Shape{Dim: []*onnx.Shape_Dim{{Value: &onnx.Shape_Dim_DimParam{DimParam: "n"}}}}
		return &onnx.ValueInfo{Name: proto.String(name), Type: &onnx.Type{Value: &onnx.Type_TensorType_{
			TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(int32(onnx.Tensor_FLOAT)), Shape: shape}}}}
	}
	g := &onnx.Graph{Name: proto.String("g"), Input: []*onnx.ValueInfo{value("x")}, Output: []*onnx.ValueInfo{value("y")}}
	node := func(op string, in []string, out string) {
		g.Node = append(g.Node, &onnx.Node{OpType: proto.String(op), Input: in, Output: []string{out}})
	}
	if fails {
		g.Initializer = []*onnx.Tensor{
			{Name: proto.String("at"), DataType: proto.Int32(int32(onnx.Tensor_INT64)), Int64Data: []int64{3}},
			{Name: proto.String("zero"), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)), FloatData: []float32{0}},
		}
		node("Gather", []string{"x", "at"}, "fourth")
		node("Mul", []string{"fourth", "zero"}, "nothing")
		node("Sub", []string{"nothing", "x"}, "y")
	} else {
		node("Neg", []string{"x"}, "y")
	}
	data := must.Value(proto.Marshal(
		&onnx.Model{IrVersion: proto.Int64(8), Graph: g,
			OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)}}}))(t)
	must.Succeed(t, os.WriteFile(path, data, 0o600))
	return path
}

// failing is a run whose sessions of a model are those of a graph, as if the command graft had made it.
func failing(t *testing.T, k *kit, graph string, args ...string) run {
	t.Helper()
	set := cache(t)
	set["LD_PRELOAD"] = k.library
	set["GRAFT_BINARY"] = script(t, fmt.Sprintf(`folder="$XDG_CACHE_HOME/graft/graphs"
mkdir -p "$folder"
cp '%s' "$folder/$4.onnx"
model="$2"
case "$model" in "$folder"/*) model="$0";; esac
printf 'graft graph 2\nreplaced 1\ngraph %%s %%s\nfile %%s %%s %%s\n' "$(sha256sum <"$folder/$4.onnx" | cut -c1-64)" \
  "$folder/$4.onnx" "$(stat -c '%%s %%.9Y %%.9Z %%d %%i' "$model" | tr -d .)" \
  "$(sha256sum <"$model" | cut -c1-64)" "$model" >"$folder/$4"`, graph))
	return run{args: args, set: set, plain: true}
}

const (
	reverts = ": runs without graft from now on, since an operator failed: "
	nothing = ": an operator failed, and there is no session without graft: "
)

// TestWayBack: where an operator fails, the run is repeated in the program's own model, and later ones go there, with
// one line.
func TestWayBack(t *testing.T) {
	k := tools(t)
	folder := t.TempDir()
	model, graph := tinyModel(t, filepath.Join(folder, "model.onnx"), false),
		tinyModel(t, filepath.Join(folder, "graph.onnx"), true)
	want := k.answers(t, model)
	// lines fails where a run does not end as it should, or does not print as many lines of graft's, with a text in them.
	lines := func(t *testing.T, r run, n int, text string) string {
		t.Helper()
		out, talk, err := k.start(t, r)
		if err != nil {
			t.Fatalf("%v: %s", err, talk)
		}
		if strings.Count(talk, "graft: ") != n || strings.Count(talk, text) != n {
			t.Errorf("found %q, needed %d lines with %q", talk, n, text)
		}
		must.Equal(t, out, want)
		return talk
	}
	for _, how := range []string{"", "async", "place", "binding"} {
		for _, from := range []string{"", "bytes", "prepacked"} {
			t.Run("run "+how+" "+from, func(t *testing.T) {
				args := []string{k.linked, model, "2", "runs=3", "refused", "how=" + how}
				if from != "" {
					args = append(args, from)
				}
				talk := lines(t, failing(t, k, graph, args...), 2, reverts) // a line a session
				if !strings.Contains(talk, "Gather") {
					t.Errorf("the line lacks the failure: %s", talk)
				}
			})
		}
	}
	t.Run("a file that was written just now", func(t *testing.T) {
		r := failing(t, k, graph, k.linked, copyOf(t, model), "2", "runs=3")
		r.set["GLIBC_TUNABLES"] = "glibc.malloc.tcache_count=0:glibc.malloc.perturb=85" // what was freed is overwritten
		lines(t, r, 2, reverts)
	})
	t.Run("several threads", func(t *testing.T) {
		lines(t, failing(t, k, graph, k.linked, model, "8", "threads=2", "shared=4", "runs=20"), 8, reverts)
	})
	t.Run("counted", func(t *testing.T) {
		r := failing(t, k, graph, k.enabled, model, "3", "enable")
		delete(r.set, "LD_PRELOAD")
		if talk := lines(t, r, 3, reverts); !strings.Contains(talk, "native: 3 patched, 0 left, 3 reverted") {
			t.Errorf("found %s", talk)
		}
	})
	t.Run("nothing fails", func(t *testing.T) {
		for _, how := range []string{"", "async", "place", "overlap", "binding"} {
			r := failing(t, k, graph, k.linked, model, "2", "refused", "rows=4", "how="+how)
			out, talk, err := k.start(t, r)
			if err != nil || strings.Contains(talk, "graft: ") || strings.Count(out, "\n") != 4 {
				t.Errorf("%v: %s%s", err, out, talk)
			}
		}
	})
	t.Run("lost", func(t *testing.T) {
		// What failed may have written over the inputs.
		for _, how := range []string{"overlap", "binding-overlap"} {
			talk := lines(t, failing(t, k, graph, k.linked, model, "1", "runs=2", "fails", "how="+how), 1, reverts)
			if !strings.Contains(talk, "native: Non-zero status code returned while running Gather") {
				t.Errorf("found %s", talk)
			}
		}
	})
	t.Run("the model fails too", func(t *testing.T) {
		// It is the program's error, and the session stays patched.
		out, talk, err := k.start(t, failing(t, k, graph, k.linked, graph, "1", "refused", "runs=2"))
		if err == nil || strings.Contains(talk, "graft: ") || !strings.Contains(talk, "while running Gather") {
			t.Errorf("%v: %s%s", err, out, talk)
		}
	})
	t.Run("changed model", func(t *testing.T) {
		for _, how := range []string{"", "async", "binding"} {
			args := []string{k.linked, copyOf(t, model), "1", "spoil", "runs=2", "fails", "how=" + how}
			_, talk, err := k.start(t, failing(t, k, graph, args...))
			if err == nil || strings.Count(talk, nothing) != 1 ||
				!strings.Contains(talk, "changed since the session was created") {
				t.Errorf("%v: %s", err, talk)
			}
		}
	})
	t.Run("lost bytes", func(t *testing.T) {
		r := failing(t, k, graph, k.linked, model, "1", "bytes")
		lines(t, r, 1, reverts)
		copies, err := filepath.Glob(filepath.Join(r.set["XDG_CACHE_HOME"], "graft", "graphs", "*.model"))
		if err != nil || len(copies) != 1 {
			t.Fatalf("%v: found %q, needed one copy of the model's bytes", err, copies)
		}
		for _, spoil := range []func(
			string) error{func(p string) error { return os.WriteFile(p, []byte("other bytes"), 0o600) }, os.Remove} {
			must.Succeed(t, spoil(copies[0]))
			_, talk, err := k.start(t, r)
			if err == nil || strings.Count(talk, nothing) != 1 || !strings.Contains(talk, "found no copy of the model's bytes") {
				t.Errorf("%v: %s", err, talk)
			}
		}
	})
	t.Run("files that the session writes", func(t *testing.T) {
		// The program's own session writes neither of them again.
		copied := copyOf(t, model)
		lines(t, failing(t, k, graph, k.linked, copied, "1", "profile"), 1, reverts)
		data, err := os.ReadFile(copied + ".optimized")
		profiles, err2 := filepath.Glob(copied + ".profile*")
		if err != nil || err2 != nil || len(profiles) != 1 || !strings.Contains(string(data), "Gather") {
			t.Errorf("%v, %v: found profiles %q and an optimised model of %d bytes", err, err2, profiles, len(data))
		}
	})
}

// TestWayBackOfRuntimes: the oldest and the newest runtime of the peers too.
func TestWayBackOfRuntimes(t *testing.T) {
	k := tools(t)
	folder := t.TempDir()
	model, graph := tinyModel(t, filepath.Join(folder, "model.onnx"), false),
		tinyModel(t, filepath.Join(folder, "graph.onnx"), true)
	want := k.answers(t, model)
	for _, library := range peers(t) {
		for _, how := range []string{"", "async", "place", "binding"} {
			r := failing(t, k, graph, k.opened, model, "1", "runs=2", "refused", "how="+how)
			r.set["ORT_LIBRARY"] = library
			out, talk, err := k.start(t, r)
			if err != nil || out != want || strings.Count(talk, reverts) != 1 {
				t.Errorf("%s: %v: %s%s", library, err, out, talk)
			}
		}
		for _, how := range []string{"overlap", "binding-overlap"} {
			r := failing(t, k, graph, k.opened, model, "1", "runs=2", "fails", "how="+how)
			r.set["ORT_LIBRARY"] = library
			if out, talk, err := k.start(t, r); err != nil || out != want || strings.Count(talk, reverts) != 1 {
				t.Errorf("%s: %v: %s%s", library, err, out, talk)
			}
		}
	}
}

// TestMemoryEnds: whichever call for memory of libgraft.so fails, the program gets its answers, or at worst the error
// of an operator.
func TestMemoryEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	k := tools(t)
	folder := t.TempDir()
	shim := filepath.Join(folder, "nomemory.so")
	if err := command("g++", "-std=c++17", "-O1", "-Wall", "-fno-builtin", "-fPIC", "-shared", "programs/nomemory.cc",
		"-o", shim); err != nil {
		t.Fatal(err)
	}
	model, graph := tinyModel(t, filepath.Join(folder, "model.onnx"), false),
		tinyModel(t, filepath.Join(folder, "graph.onnx"), true)
	cached := cache(t) // an entry of the model below, which the command is not asked for
	k.patched(t, k.answers(t, encoder), 1, run{args: []string{k.linked, encoder, "1"}, set: cached})
	for name, r := range map[string]run{
		"path":    failing(t, k, graph, k.linked, model, "1", "runs=2"),
		"bytes":   failing(t, k, graph, k.linked, model, "1", "runs=2", "bytes"),
		"async":   failing(t, k, graph, k.linked, model, "1", "runs=2", "how=async"),
		"binding": failing(t, k, graph, k.linked, model, "1", "runs=2", "how=binding"),
		"cached": {args: []string{k.linked, encoder, "1"},
			set: map[string]string{"XDG_CACHE_HOME": cached["XDG_CACHE_HOME"], "GRAFT_BINARY": k.graft}, plain: true},
	} {
		t.Run(name, func(t *testing.T) {
			want := k.answers(t, r.args[1])
			r.set["LD_PRELOAD"] = shim + ":" + k.library
			n := 1
			for ; ; n++ {
				r.set["NO_MEMORY"] = fmt.Sprint(n)
				out, talk, err := k.start(t, r)
				if err != nil && !strings.Contains(talk, "native: Non-zero status code returned while running Gather") {
					t.Errorf("call %d: %v: %s", n, err, talk)
				}
				if err == nil {
					same(t, want, out)
				}
				if !strings.Contains(talk, "nomemory: failed") {
					break
				}
				if name != "cached" {
					os.RemoveAll(filepath.Join(r.set["XDG_CACHE_HOME"], "graft"))
				}
			}
			if n < 20 {
				t.Errorf("only %d calls for memory were seen", n)
			}
		})
	}
}
