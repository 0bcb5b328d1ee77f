package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// large writes a model that has what a plugin replaces, and a weight of 1.5 GiB
// beside it: a file of one hole, which takes no room until it is copied.
func large(t *testing.T, folder string) string {
	t.Helper()
	const size = 3 << 29
	data, err := os.ReadFile("../../models/tiny-gpt2/model.onnx")
	must.Succeed(t, err)
	m := &onnx.Model{}
	must.Succeed(t, proto.Unmarshal(data, m))
	entry := func(key, value string) *onnx.Entry {
		return &onnx.Entry{Key: proto.String(key), Value: proto.String(value)}
	}
	m.Graph.Initializer = append(m.Graph.Initializer, &onnx.Tensor{
		Name: proto.String("large"), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)), Dims: []int64{size / 4},
		DataLocation: onnx.Tensor_EXTERNAL.Enum(),
		ExternalData: []*onnx.Entry{entry("location", "large.bin"), entry("length", fmt.Sprint(size))},
	})
	m.Graph.Node = append(m.Graph.Node,
		&onnx.Node{OpType: proto.String("Identity"), Input: []string{"large"}, Output: []string{"large_out"}})
	m.Graph.Output = append(m.Graph.Output,
		&onnx.ValueInfo{Name: proto.String("large_out"), Type: &onnx.Type{Value: &onnx.Type_TensorType_{
			TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(int32(onnx.Tensor_FLOAT))}}}})
	path := filepath.Join(folder, "model.onnx")
	if data, err = proto.Marshal(m); err == nil {
		err = os.WriteFile(path, data, 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "large.bin"), nil, 0o644)
	}
	if err == nil {
		err = os.Truncate(filepath.Join(folder, "large.bin"), size)
	}
	must.Succeed(t, err)
	return path
}

// TestInterrupt: Ctrl-C while a large file is written leaves what was there
// before and nothing else. A file that is there is refused before anything is written.
func TestInterrupt(t *testing.T) {
	plugins := must.Value(filepath.Abs("../../build/plugins/fused-gelu"))(t)
	model, out := large(t, t.TempDir()), t.TempDir()
	before := []byte("the file of before")
	must.Succeed(t, os.WriteFile(filepath.Join(out, "old.onnx"), before, 0o644))
	for _, name := range []string{"new.onnx", "newer.onnx"} {
		t.Run(name, func(t *testing.T) {
			var talk, data bytes.Buffer
			cmd := exec.Command("graft", "patch", model, "-o", filepath.Join(out, name), "--force")
			cmd.Env = append(os.Environ(), "GRAFT_PLUGIN_PATH="+plugins, "GRAFT_PLUGIN_UNVERIFIED=1")
			cmd.Stdout, cmd.Stderr = &data, &talk
			must.Succeed(t, cmd.Start())
			defer func() { _ = cmd.Process.Kill() }()
			if !begun(out) {
				t.Fatalf("nothing was written within a minute: %s", talk.String())
			}
			must.Succeed(t, cmd.Process.Signal(syscall.SIGINT))
			_ = cmd.Wait()
			must.Equal(t, cmd.ProcessState.ExitCode(), exitInterrupted)
			if got, want := talk.String(), "graft: interrupted; nothing was left half-written\n"; got != want {
				t.Errorf("standard error %q, want %q", got, want)
			}
			if data.Len() > 0 {
				t.Errorf("standard output %q", data.String())
			}
			must.Equal(t, strings.Join(holds(t, out), " "), "old.onnx")
			if got, err := os.ReadFile(filepath.Join(out, "old.onnx")); err != nil || !bytes.Equal(got, before) {
				t.Errorf("the file of before holds %d bytes, %v", len(got), err)
			}
		})
	}
}

// begun waits for a file under another name that has bytes in it.
func begun(folder string) bool {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return false
		}
		for _, e := range entries {
			if info, err := e.Info(); err == nil && e.Name() != "old.onnx" && info.Size() > 0 {
				return true
			}
		}
	}
	return false
}

func holds(t *testing.T, folder string) []string {
	t.Helper()
	entries := must.Value(os.ReadDir(folder))(t)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
