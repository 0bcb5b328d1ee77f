package graft_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	onnx "github.com/yalue/onnxruntime_go"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/internal/must"
)

const tiny = "models/tiny-gpt2/model.onnx"

// asProgram makes the test executable a program that calls Enable too early.
const asProgram = "GRAFT_TEST_ENABLE_FIRST"

func TestMain(m *testing.M) {
	graft.Worker() // where it was started as one
	if os.Getenv(asProgram) != "" {
		fmt.Println(graft.Enable(), graft.Disable())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// environment initialises onnxruntime_go for a test, away from the plugins of
// whoever runs it.
func environment(t *testing.T) {
	t.Helper()
	path := must.Value(graft.RuntimePath())(t)
	t.Setenv("GRAFT_PLUGIN_PATH", "")
	t.Setenv("GRAFT_PLUGIN_UNVERIFIED", "")
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	onnx.SetSharedLibraryPath(path)
	must.Succeed(t, onnx.InitializeEnvironment())
	t.Cleanup(func() {
		if err := graft.Disable(); err != nil {
			t.Error(err)
		}
		if err := onnx.DestroyEnvironment(); err != nil {
			t.Error(err)
		}
	})
}

// built are the folders of plugins of this repository, as `make plugins` built them.
func built(t *testing.T, names ...string) []string {
	t.Helper()
	var folders []string
	for _, name := range names {
		folder, err := filepath.Abs(filepath.Join("build/plugins", name))
		if err == nil {
			_, err = os.Stat(filepath.Join(folder, "plugin.yaml"))
		}
		if err != nil {
			t.Fatalf("%v: run make plugins", err)
		}
		folders = append(folders, folder)
	}
	return folders
}

// flash are the options with which flash-decode takes all that it can.
func flash(t *testing.T) graft.Common {
	t.Helper()
	return graft.Common{Folders: built(t, "flash-decode"), AcceptUnverified: true, Force: true}
}

// all are those of two plugins.
func all(t *testing.T) graft.Common {
	t.Helper()
	return graft.Common{Folders: built(t, "flash-decode", "fused-gelu"), AcceptUnverified: true, Force: true}
}

// record is what a logger was told.
type record struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.Write(p)
}

func (r *record) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(r, nil)) }

// line is what a logger was told of one session.
type line struct {
	Level, Msg, Model, Reason string
	Replaced, Blocks          int
	Plugins                   []string
}

// take gives the lines since the last time.
func (r *record) take(t *testing.T) []line {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []line
	for d := json.NewDecoder(&r.all); d.More(); {
		var l line
		must.Succeed(t, d.Decode(&l))
		list = append(list, l)
	}
	r.all.Reset()
	return list
}

// expect takes one line about one session.
func (r *record) expect(t *testing.T, replaced int, plugins ...string) {
	t.Helper()
	list := r.take(t)
	if len(list) != 1 || list[0].Level != "INFO" || list[0].Replaced != replaced ||
		!slices.Equal(list[0].Plugins, plugins) {
		t.Errorf("the log says %+v, want one session with %d replaced by %v", list, replaced, plugins)
	}
}

// decoder is a model with a past and the names of its inputs and outputs.
type decoder struct {
	inputs, outputs []string
	shapes          map[string]onnx.Shape
}

// signature reads the names of a model's inputs and outputs from a file that ONNX
// Runtime reads by itself.
func signature(t *testing.T, path string) decoder {
	t.Helper()
	ins, outs, err := onnx.GetInputOutputInfo(path)
	must.Succeed(t, err)
	d := decoder{shapes: map[string]onnx.Shape{}}
	for _, in := range ins {
		d.inputs, d.shapes[in.Name] = append(d.inputs, in.Name), in.Dimensions
	}
	for _, out := range outs {
		d.outputs = append(d.outputs, out.Name)
	}
	return d
}

func (d decoder) open(path string, o *onnx.SessionOptions) (*onnx.DynamicAdvancedSession, error) {
	return onnx.NewDynamicAdvancedSession(path, d.inputs, d.outputs, o)
}

// answers opens a session by path, runs it and closes it.
func (d decoder) answers(t *testing.T, path string, o *onnx.SessionOptions) []float32 {
	t.Helper()
	s := must.Value(d.open(path, o))(t)
	defer s.Destroy()
	list := must.Value(d.run(s))(t)
	return list
}

// run feeds three tokens after a past of two and gives all outputs in a row.
func (d decoder) run(s *onnx.DynamicAdvancedSession) ([]float32, error) {
	const queries, past = 3, 2
	var inputs []onnx.Value
	for _, name := range d.inputs {
		var v onnx.Value
		var err error
		switch name {
		case "input_ids":
			v, err = onnx.NewTensor(onnx.NewShape(1, queries), []int64{40, 101, 12})
		case "attention_mask":
			v, err = onnx.NewTensor(onnx.NewShape(1, past+queries), []int64{1, 1, 1, 1, 1})
		case "position_ids":
			v, err = onnx.NewTensor(onnx.NewShape(1, queries), []int64{2, 3, 4})
		default:
			shape := onnx.NewShape(1, d.shapes[name][1], past, d.shapes[name][3])
			data := make([]float32, shape.FlattenedSize())
			for i := range data {
				data[i] = float32(i%13-6) / 8
			}
			v, err = onnx.NewTensor(shape, data)
		}
		if err != nil {
			return nil, err
		}
		defer v.Destroy()
		inputs = append(inputs, v)
	}
	outputs := make([]onnx.Value, len(d.outputs))
	if err := s.Run(inputs, outputs); err != nil {
		return nil, err
	}
	var all []float32
	for _, out := range outputs {
		all = append(all, out.(*onnx.Tensor[float32]).GetData()...)
		out.Destroy()
	}
	return all, nil
}

// same requires answers within the tolerance of float32.
func same(t *testing.T, got, want []float32) {
	t.Helper()
	must.Equal(t, cmp.Diff(want, got, cmpopts.EquateApprox(1e-4, 1e-5)), "")
}
