package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// external makes w external data.
func external(m *onnx.Model, pairs ...string) *onnx.Model {
	w := m.Graph.Initializer[0]
	w.RawData, w.DataLocation = nil, onnx.Tensor_EXTERNAL.Enum()
	for i := 0; i < len(pairs); i += 2 {
		w.ExternalData = append(w.ExternalData, &onnx.Entry{Key: proto.String(pairs[i]), Value: proto.String(pairs[i+1])})
	}
	return m
}

// nested puts the Exp of a model inside `depth` branches.
func nested(depth int) *onnx.Model {
	m := simple("Exp")
	m.Graph.Initializer = append(m.Graph.Initializer,
		&onnx.Tensor{Name: proto.String("yes"), DataType: proto.Int32(int32(onnx.Tensor_BOOL)), RawData: []byte{1}})
	inner := m.Graph.Node[1]
	for i := range depth {
		yes, no := fmt.Sprintf("yes%d", i), fmt.Sprintf("no%d", i)
		inner.Output = []string{yes}
		outer := node("If", []string{"yes"}, "y")
		for name, branch := range map[string]*onnx.Graph{
			"then_branch": {Name: proto.String("t"), Node: []*onnx.Node{inner}, Output: []*onnx.ValueInfo{value(yes, 4)}},
			"else_branch": {Name: proto.String("e"), Node: []*onnx.Node{node("Identity", []string{"a"}, no)},
				Output: []*onnx.ValueInfo{value(no, 4)}},
		} {
			outer.Attribute = append(outer.Attribute,
				&onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_GRAPH.Enum(), G: branch})
		}
		inner = outer
	}
	m.Graph.Node[1] = inner
	return m
}

func change(f func(m *onnx.Model)) *onnx.Model {
	m := simple("Exp")
	f(m)
	return m
}

// TestModels: what graft says of a model, and what becomes of a session of it:
// ONNX Runtime's own refusal, word for word, or a session without graft and one
// warning.
func TestModels(t *testing.T) {
	whole := encode(t, simple("Exp"))
	cases := []struct {
		name string
		data []byte
		want string // of graft inspect, after the path; "" when it accepts the model
		runs bool   // whether ONNX Runtime makes a session of it
	}{
		{name: "empty", data: []byte{}, want: "the file is empty, needed an ONNX model"},
		{name: "text", data: []byte("hello\n"), want: `not an ONNX model: found text that begins with "hello"`},
		{name: "truncated", data: whole[:len(whole)-9], want: "is truncated or damaged"},
		{name: "of no graph", data: encode(t, &onnx.Model{IrVersion: proto.Int64(8)}), want: "holds no graph"},
		{name: "path traversal", data: encode(t, external(simple("Exp"), "location", "../secret.bin")),
			want: "which leads upwards"},
		{name: "path traversal within", data: encode(t, external(simple("Exp"), "location", "a/../../secret.bin")),
			want: "which leads upwards"},
		{name: "absolute path", data: encode(t, external(simple("Exp"), "location", "/etc/passwd")), want: "absolute"},
		{name: "link out of the folder", data: encode(t, external(simple("Exp"), "location", "link.bin")), want: "link.bin"},
		{name: "a folder as data", data: encode(t, external(simple("Exp"), "location", "folder")), want: "folder"},
		{name: "data that are not there", data: encode(t, external(simple("Exp"), "location", "nowhere.bin")),
			want: "nowhere.bin"},
		{name: "no location", data: encode(t, external(simple("Exp"))), want: "location"},
		{name: "beyond the end", data: encode(t,
			external(simple("Exp"), "location", "eight.bin", "offset", "4", "length", "16")), want: "eight.bin"},
		{name: "negative offset", data: encode(t, external(simple("Exp"), "location", "eight.bin", "offset", "-4")),
			want: "offset"},
		{name: "offset that overflows",
			data: encode(t, external(simple("Exp"), "location", "eight.bin", "offset", "9223372036854775807", "length", "16")),
			want: "eight.bin"},
		{name: "length that is no number",
			data: encode(t, external(simple("Exp"), "location", "eight.bin", "length", "many")), want: `"many"`},
		{name: "huge dimensions",
			data: encode(t, change(func(m *onnx.Model) { m.Graph.Initializer[0].Dims = []int64{1 << 40, 1 << 40} })),
			want: "more elements than can be counted"},
		{name: "negative dimension",
			data: encode(t, change(func(m *onnx.Model) { m.Graph.Initializer[0].Dims = []int64{-4} })),
			want: "has a negative dimension: found [-4]"},
		{name: "less data than the shape",
			data: encode(t, change(func(m *onnx.Model) { m.Graph.Initializer[0].Dims = []int64{1 << 30} })),
			want: "does not hold what its shape says"},
		{name: "rank", data: encode(t, change(func(m *onnx.Model) {
			m.Graph.Initializer[0].Dims = append(make([]int64, 99), 4)
			for i := range 99 {
				m.Graph.Initializer[0].Dims[i] = 1
			}
		})), want: "too many dimensions", runs: true},
		{name: "deep nesting", data: encode(t, nested(40)), want: "nest"},
		{name: "deeper nesting", data: encode(t, nested(300)), want: "nest"},
		{name: "an unknown operator", data: encode(t, simple("NoSuchOperator"))},
		{name: "a value made twice", data: encode(t, change(func(m *onnx.Model) { m.Graph.Node[1].Output[0] = "a" })),
			want: `"a"`},
		{name: "a circle", data: encode(t, change(func(m *onnx.Model) { m.Graph.Node[0].Input[0] = "y" })), want: "y"},
		{name: "a value from nowhere", data: encode(t, change(func(m *onnx.Model) { m.Graph.Node[0].Input[0] = "z" })),
			want: "z"},
		{name: "a negative length of an input",
			data: encode(t, change(func(m *onnx.Model) { m.Graph.Input[0] = value("x", -4) })), runs: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			folder := filepath.Join(root, "model")
			for _, sub := range []string{folder, filepath.Join(folder, "folder"), filepath.Join(folder, "a")} {
				must.Succeed(t, os.Mkdir(sub, 0o755))
			}
			write(t, filepath.Join(root, "secret.bin"), make([]byte, 16))
			write(t, filepath.Join(folder, "eight.bin"), make([]byte, 8))
			must.Succeed(t, os.Symlink("../secret.bin", filepath.Join(folder, "link.bin")))
			path := write(t, filepath.Join(folder, "model.onnx"), c.data)
			before := names(t, folder)

			code, stdout, stderr := command(t, trapped(), "inspect", path)
			if c.want == "" {
				if code != 0 || stderr != "" {
					t.Errorf("graft inspect: exit code %d, %q", code, stderr)
				}
			} else if code != 1 || stdout != "" || !strings.HasPrefix(stderr, "graft: "+path+": ") ||
				!strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("graft inspect: exit code %d, %q, %q, want one line with the path and %q", code, stdout, stderr, c.want)
			}
			if c.want != "" {
				out := filepath.Join(folder, "out.onnx")
				if code, _, _ := command(t, trapped(), "patch", path, "-o", out, "--force"); code != 1 {
					t.Errorf("graft patch: exit code %d", code)
				}
			}
			sessions(t, path, c.runs, c.want)
			must.Equal(t, names(t, folder), before)
		})
	}
}

// sessions makes a session without graft, with it, and with it strictly.
func sessions(t *testing.T, path string, runs bool, want string) {
	t.Helper()
	unpatched := attempt(path)
	must.Equal(t, unpatched == nil, runs)
	log := enable(t, graft.Options{})
	err := attempt(path)
	lines := log.take(t)
	switch {
	case unpatched != nil:
		must.FailExactly(t, err, unpatched.Error())
		for _, l := range lines {
			if l.Level == "WARN" {
				t.Errorf("a warning beside ONNX Runtime's own error: %+v", l)
			}
		}
	case err != nil:
		t.Errorf("no session with graft: %v", err)
	case want != "" && (len(lines) != 1 || lines[0].Level != "WARN" || lines[0].Model != path ||
		!strings.Contains(lines[0].Reason, want)):
		t.Errorf("the log says %+v, want one warning with %q", lines, want)
	}
	enable(t, graft.Options{Strict: true})
	if err := attempt(path); (err == nil) != (want == "" && runs) {
		t.Errorf("strictly: %v", err)
	} else if err != nil && want != "" &&
		!(strings.Contains(err.Error(), "graft: "+path+" was not patched: ") && strings.Contains(err.Error(), want)) {
		t.Errorf("strictly: %v, want %q", err, want)
	}
	disable(t)
}
