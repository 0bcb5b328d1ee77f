package profile

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// node is an event of a node as the runtime writes it.
func node(name, operator string, index, start, duration int) string {
	return fmt.Sprintf(
		`{"cat" : "Node","pid" :1,"tid" :2,"dur" :%d,"ts" :%d,"ph" : "X","name" :"%s_kernel_time","args" : {"op_name" : "%s",`+
			`"provider" : "CPUExecutionProvider","node_index" : "%d","activation_size" : "32","parameter_size" : "8","output_size" : "16",`+
			`"thread_scheduling_stats" : {"main_thread": {"block_size": []}},"input_type_shape" : [{"float":[2,4]},{"int64":[]}],"output_type_shape" : [{"float":[2,2]}]}}`,
		duration, start, name, operator, index)
}

func run(start, duration int) string {
	return fmt.Sprintf(
		`{"cat" : "Session","pid" :1,"tid" :2,"dur" :%d,"ts" :%d,"ph" : "X","name" :"model_run","args" : {}}`, duration,
		start)
}

func file(events ...string) string { return "[\n" + strings.Join(events, ",\n") + "\n]\n" }

// TestRead: calls are in the runs that they started in; times of subgraphs are out of the nodes that have them; what
// is no call of a node in a run is passed over.
func TestRead(t *testing.T) {
	text := file(
		`{"cat" : "Session","pid" :1,"tid" :2,"dur" :9,"ts" :1,"ph" : "X","name" :"model_loading_uri","args" : {}}`,
		node("early", "Add", 9, 5, 3),
		node("a", "MatMul", 0, 101, 40),
		node("in", "Add", 0, 151, 10),
		node("in", "Add", 0, 171, 10),
		node("loop", "Loop", 1, 150, 40),
		node("after", "Relu", 2, 190, 1), // it starts as the loop ends
		run(100, 100),
		node("a", "MatMul", 0, 301, 60),
		node("loop", "Loop", 1, 362, 4),
		run(300, 80))
	p := must.Value(Read(strings.NewReader(text), "p.json"))(t)
	must.Equal(t, p.Runs, []float64{0.1, 0.08})
	var got []string
	for _, n := range p.Nodes {
		parent := "-"
		if n.Parent != nil {
			parent = n.Parent.Name
		}
		got = append(got, fmt.Sprintf("%s %s in %s %d %.3f %.3f", n.Name, n.Operator, parent, n.Calls, n.Self, n.Fastest))
	}
	want := []string{
		"a MatMul in - 2 [0.040 0.060] 0.040",
		"loop Loop in - 2 [0.020 0.004] 0.004",
		"in Add in loop 2 [0.020 0.000] 0.010",
		"after Relu in - 1 [0.001 0.000] 0.001",
	}
	must.Equal(t, got, want, strings.Join(got, "\n"), strings.Join(want, "\n"))
	a := p.Nodes[0]
	if a.Activations != 32 || a.Parameters != 8 || a.Results != 16 || a.Provider != "CPUExecutionProvider" {
		t.Errorf("bytes and provider %+v", a)
	}
	must.Equal(t, fmt.Sprint(a.Inputs, a.Outputs), "[{float [2 4]} {int64 []}] [{float [2 2]}]")
}

// TestReadSumsUp: self times of all nodes of a run are the time that its outermost nodes took.
func TestReadSumsUp(t *testing.T) {
	p := must.Value(Read(strings.NewReader(file(
		node("x", "Add", 0, 22, 3), node("inner", "If", 4, 21, 5), node("y", "Add", 1, 27, 2),
		node("outer", "Loop", 7, 20, 11),
		node("z", "Add", 8, 32, 7), run(19, 40))), "p.json"))(t)
	sum := 0.0
	for _, n := range p.Nodes {
		sum += n.Self[0]
	}
	if math.Abs(sum-0.018) > 1e-12 {
		t.Errorf("times sum up to %v ms, the outermost nodes took 0.018", sum)
	}
}

// endless is a list of events without an end.
type endless struct{ event string }

func (e endless) Read(p []byte) (int, error) { return copy(p, e.event), nil }

func TestReadRefuses(t *testing.T) {
	one := node("a", "MatMul", 0, 101, 40)
	cases := []struct{ name, text, want string }{
		{"nothing", "", "it ends in event 0"},
		{"an object", `{"a": 1}`, "no list of events"},
		{"cut in an event", file(one)[:60], "it ends in event 1, needed the whole file; close"},
		{"cut after an event", strings.TrimSuffix(file(one), "\n]\n"), "it ends in event 1"},
		{"a name with a quotation mark", file(node(`a"b`, "MatMul", 0, 1, 2)), "rename those with a quotation mark"},
		{"a negative time", file(node("a", "MatMul", 0, 101, -40)), `event 1: dur is "-40"`},
		{"a negative start", file(one, node("a", "MatMul", 0, -101, 40)), `event 2: ts is "-101"`},
		{"a time beyond all measure", file(strings.Replace(one, ":101", ":1e300", 1)), `ts is "1e300"`},
		{"no time", file(strings.Replace(one, `"dur" :40,`, "", 1)), `dur is ""`},
		{"a time as text", file(strings.Replace(one, ":101", `:"soon"`, 1)), "soon"},
		{"no thread", file(strings.Replace(one, `"tid" :2,`, "", 1)), `tid is ""`},
		{"a negative length", file(strings.Replace(one, "[2,4]", "[2,-4]", 1)), "a tensor has the length -4"},
		{"a tensor of two types", file(strings.Replace(one, `{"float":[2,4]}`, `{"float":[2],"int8":[2]}`, 1)),
			"a tensor of 2 types"},
		{"a negative index", file(strings.Replace(one, `"node_index" : "0"`, `"node_index" : "-1"`, 1)),
			`node_index of node "a" is "-1"`},
		{"negative bytes", file(strings.Replace(one, `"8"`, `"-8"`, 1)), `parameter_size is "-8"`},
		{"runs at the same time", file(run(0, 10), run(5, 10)), "runs at the same time"},
		{"an event of many megabytes", file(node(strings.Repeat("a", 5<<20), "MatMul", 0, 1, 2)),
			"an event of more than 1 MiB"},
		{"too many shapes", file(
			strings.Replace(one, `{"float":[2,4]}`, `{"float":[2,4]}`+strings.Repeat(`,{"float":[]}`, maxShapes), 1)),
			"at most 4096"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Read(strings.NewReader(c.text), "p.json")
			if err == nil || !strings.HasPrefix(err.Error(), "p.json: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	t.Run("events without an end", func(t *testing.T) {
		if testing.Short() {
			t.Skip("reads two million events")
		}
		_, err := Read(io.MultiReader(strings.NewReader("["), endless{`{"cat":"Node"},`}), "p.json")
		must.Fail(t, err, "more than 2097152 events")
	})
	t.Run("more times than memory", func(t *testing.T) {
		var b strings.Builder
		for i := range 5000 {
			b.WriteString(node(fmt.Sprint(i), "Add", i, 10*i, 1) + "," + run(10*i, 5) + ",")
		}
		_, err := Read(strings.NewReader("["+b.String()+run(1e6, 1)+"]"), "p.json")
		must.Fail(t, err, "5000 nodes in 5001 runs")
	})
}

// TestReadFile: what is no file of this user's own is not waited for.
func TestReadFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "p.json")
	must.Succeed(t, os.WriteFile(path, []byte(file(node("a", "MatMul", 0, 1, 2), run(0, 9))), 0o600))
	must.Equal(t, len(must.Value(ReadFile(path))(t).Nodes), 1)
	link := filepath.Join(folder, "link")
	must.Succeed(t, os.Symlink(path, link))
	if _, err := ReadFile(link); err == nil {
		t.Error("a link was followed")
	}
}

// FuzzRead: whatever it reads, times are finite and not negative, and nodes are in a tree.
func FuzzRead(f *testing.F) {
	f.Add(file(node("a", "MatMul", 0, 101, 40), node("in", "Add", 0, 151, 10), node("loop", "If", 1, 150, 40),
		run(100, 100)))
	f.Add(file())
	f.Fuzz(func(t *testing.T, text string) {
		var p *Profile
		var err error
		must.CostLittle(t, len(text), func() { p, err = Read(strings.NewReader(text), "p.json") })
		if err != nil {
			return
		}
		for _, n := range p.Nodes {
			for _, ms := range n.Self {
				if !(ms >= 0) || math.IsInf(ms, 0) {
					t.Errorf("%s takes %v ms", n.Name, ms)
				}
			}
			for m, steps := n, 0; m != nil; m = m.Parent {
				if steps++; steps > 100 {
					t.Fatal("nodes inside of each other")
				}
			}
		}
	})
}

// empty is a graph without nodes.
func empty(t *testing.T) *graph.Graph {
	t.Helper()
	g := must.Value(graph.New(&onnx.Model{Graph: &onnx.Graph{}}, nil))(t)
	return g
}
