// Package hostile feeds bad models, bad plugins and bad places to graft by its
// public interface: graft.Enable under onnxruntime_go, graft.Patch, and the command.
// Each gets one clear error, or a session that is made unpatched with one
// warning; nothing is left half-written, and the process goes on.
package hostile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	onnxruntime "github.com/yalue/onnxruntime_go"
	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/tests/graftcommand"
)

// made is what the tests share: the command and the trap plugin, built once.
var made struct {
	folder  string
	command string
	trap    string // folder
	library string // of ONNX Runtime
}

func TestMain(m *testing.M) {
	graft.Worker() // of isolated plugins
	code := 1
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(made.folder)
	os.Exit(code)
}

func prepare() (err error) {
	at, err := ort.Find("")
	if err != nil {
		return err
	}
	made.library = at.Path
	if made.folder, err = os.MkdirTemp("", "graft-hostile-"); err != nil {
		return err
	}
	// The user's own plugins and the builder's settings stay out of it.
	for key, value := range map[string]string{"GRAFT_PLUGIN_PATH": "", "GRAFT_PLUGIN_UNVERIFIED": "",
		"XDG_DATA_HOME": filepath.Join(made.folder, "data"), "GRAFT_ONNXRUNTIME": at.Path} {
		if err := os.Setenv(key, value); err != nil {
			return err
		}
	}
	made.command = filepath.Join(made.folder, "graft")
	if err := graftcommand.Write(made.command); err != nil {
		return err
	}
	made.trap = filepath.Join(made.folder, "trap")
	if err := buildTrap(made.trap); err != nil {
		return err
	}
	onnxruntime.SetSharedLibraryPath(at.Path)
	return onnxruntime.InitializeEnvironment()
}

// buildTrap compiles the trap plugin into a folder, with macros.
func buildTrap(folder string, macros ...string) error {
	include, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go").Output()
	if err != nil {
		return fmt.Errorf("looking for onnxruntime_c_api.h: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	manifest, err := os.ReadFile("testdata/trap/plugin.yaml")
	if err != nil {
		return err
	}
	manifest = bytes.ReplaceAll(manifest, []byte("amd64"), []byte(runtime.GOARCH))
	if err := os.WriteFile(filepath.Join(folder, "plugin.yaml"), manifest, 0o644); err != nil {
		return err
	}
	args := []string{"-shared", "-fPIC", "-std=c++17", "-O1", "-fvisibility=hidden", "-static-libstdc++", "-static-libgcc",
		"-I../../abi", "-I../../abi/kit", "-isystem", strings.TrimSpace(string(include)),
		`-DGRAFT_PLUGIN_NAME="trap"`, `-DGRAFT_PLUGIN_VERSION="0.1.0"`, `-DGRAFT_PLUGIN_SUMMARY="operators that misbehave"`,
		`-DGRAFT_PLUGIN_DEVICE="cpu"`, `-DGRAFT_PLUGIN_ISA="x86-64"`,
		"-Wl,--version-script=../../abi/cmake/graft.map", "-Wl,-z,nodelete", "-o", filepath.Join(folder, "libtrap.so"),
		"testdata/trap/trap.cc"}
	if out, err := exec.Command("c++", append(args, macros...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("building the trap plugin: %w\n%s", err, out)
	}
	return nil
}

// command runs graft and gives its exit code and what it wrote.
func command(t *testing.T, environment []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, talk bytes.Buffer
	cmd := exec.Command(made.command, args...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = &out, &talk
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), talk.String()
}

// trapped are the surroundings in which graft uses the trap.
func trapped() []string {
	return []string{"GRAFT_PLUGIN_PATH=" + made.trap, "GRAFT_PLUGIN_UNVERIFIED=1"}
}

// report is what a logger was told.
type report struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (r *report) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.Write(p)
}

type line struct {
	Level, Msg, Model, Reason string
	Replaced                  int
}

func (r *report) take(t *testing.T) []line {
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

// enable patches sessions of a test with the trap.
func enable(t *testing.T, o graft.Options) *report {
	t.Helper()
	r := &report{}
	o.Folders = append(o.Folders, made.trap)
	o.AcceptUnverified, o.Force, o.Logger = true, true, slog.New(slog.NewJSONHandler(r, nil))
	must.Succeed(t, graft.EnableWith(o))
	t.Cleanup(func() { disable(t) })
	return r
}

func disable(t *testing.T) {
	t.Helper()
	must.Succeed(t, graft.Disable())
}

// session makes a session of a model with input x and output y.
func session(path string) (*onnxruntime.DynamicAdvancedSession, error) {
	return onnxruntime.NewDynamicAdvancedSession(path, []string{"x"}, []string{"y"}, nil)
}

// value declares a vector.
func value(name string, dims ...int64) *onnx.ValueInfo {
	shape := &onnx.Shape{}
	for _, d := range dims {
		shape.Dim = append(shape.Dim, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: d}})
	}
	return &onnx.ValueInfo{Name: proto.String(name), Type: &onnx.Type{Value: &onnx.Type_TensorType_{
		TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(int32(onnx.Tensor_FLOAT)), Shape: shape}}}}
}

func node(op string, inputs []string, outputs ...string) *onnx.Node {
	return &onnx.Node{OpType: proto.String(op), Input: inputs, Output: outputs}
}

// simple is y = op(x + w) over four elements, w an initializer.
func simple(op string) *onnx.Model {
	return &onnx.Model{
		IrVersion:   proto.Int64(8),
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)}},
		Graph: &onnx.Graph{
			Name: proto.String("g"), Input: []*onnx.ValueInfo{value("x", 4)}, Output: []*onnx.ValueInfo{value("y", 4)},
			Initializer: []*onnx.Tensor{{Name: proto.String("w"), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)),
				Dims: []int64{4}, RawData: make([]byte, 16)}},
			Node: []*onnx.Node{node("Add", []string{"x", "w"}, "a"), node(op, []string{"a"}, "y")},
		},
	}
}

func encode(t testing.TB, m *onnx.Model) []byte {
	t.Helper()
	data := must.Value(proto.MarshalOptions{AllowPartial: true}.Marshal(m))(t)
	return data
}

func write(t testing.TB, path string, data []byte) string {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, data, 0o644))
	return path
}

// names lists a folder.
func names(t testing.TB, folder string) string {
	t.Helper()
	entries := must.Value(os.ReadDir(folder))(t)
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return strings.Join(list, " ")
}
