package deploy

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/must"
)

// holder is the variable of a process that has a session of the model at a path until its input ends.
const holder = "GRAFT_TEST_DEPLOY_HOLDER"

// TestHolder is that process.
func TestHolder(t *testing.T) {
	path := os.Getenv(holder)
	if path == "" {
		return
	}
	s := openLinear(t, path, shared.Always)
	defer s.Close()
	fmt.Printf("answers %s\nlies in %s\n", answerLinear(t, s), weightsFile(t))
	must.Value(io.Copy(io.Discard, os.Stdin))(t)
}

// TestProcesses: a session whose weights another process made answers as one with its own, also when that process was
// killed and when the model's file was overwritten or cut short; and what a process finds is never another version's.
func TestProcesses(t *testing.T) {
	folder := t.TempDir()
	var versions [2][]byte
	var want [2]string
	for i := range versions {
		versions[i] = linear(t, i)
		path := filepath.Join(folder, fmt.Sprintf("version%d.onnx", i))
		must.Succeed(t, os.WriteFile(path, versions[i], 0o644))
		s := openLinear(t, path, shared.Never)
		want[i] = answerLinear(t, s)
		must.Equal(t, weightsFile(t), "")
		s.Close()
	}
	path := filepath.Join(folder, "model.onnx")
	for _, change := range []func() error{
		func() error { return os.WriteFile(path, versions[1], 0o644) },
		func() error { return os.Truncate(path, 100) },
		func() error { return os.Remove(path) },
	} {
		must.Succeed(t, os.WriteFile(path, versions[0], 0o644))
		maker := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHolder$")
		maker.Env = append(os.Environ(), holder+"="+path)
		maker.Stderr = os.Stderr
		in := must.Value(maker.StdinPipe())(t)
		defer in.Close()
		out := must.Value(maker.StdoutPipe())(t)
		must.Succeed(t, maker.Start())
		said := bufio.NewScanner(out)
		line := func(begin string) string {
			for said.Scan() {
				if _, rest, ok := strings.Cut(said.Text(), begin); ok {
					return rest
				}
			}
			t.Fatalf("the process does not say %q", begin)
			return ""
		}
		must.Equal(t, line("answers "), want[0])
		made := line("lies in ")
		s := openLinear(t, path, shared.Always)
		if file := weightsFile(t); file == "" || file != made {
			t.Errorf("weights lie in %q, want the first process's %q", file, made)
		}
		must.Succeed(t, change())
		_ = maker.Process.Kill()
		_ = maker.Wait()
		must.Equal(t, answerLinear(t, s), want[0])
		other := openLinear(t, filepath.Join(folder, "version1.onnx"), shared.Always)
		must.Equal(t, answerLinear(t, other), want[1])
		other.Close()
		s.Close()
	}
}

const width = 1100 // of a matrix above shared.Least

// linear is a model of one linear layer. Versions differ in one weight.
func linear(t *testing.T, version int) []byte {
	raw := make([]byte, 0, 4*width*width)
	for i := range width * width {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(i%251)/251-0.5))
	}
	raw[len(raw)/3/4*4+2] += byte(version)
	value := func(name string) *onnx.ValueInfo {
		dim := func(n int64) *onnx.Shape_Dim {
			return &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: n}}
		}
		return &onnx.ValueInfo{Name: proto.String(name),
			Type: &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{
				ElemType: proto.Int32(int32(onnx.Tensor_FLOAT)), Shape: &onnx.Shape{Dim: []*onnx.Shape_Dim{dim(2), dim(width)}}}}}}
	}
	tensor := func(name string, raw []byte, dims ...int64) *onnx.Tensor {
		return &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)), Dims: dims,
			RawData: raw}
	}
	b := must.Value(proto.Marshal(&onnx.Model{IrVersion: proto.Int64(8),
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(18)}},
		Graph: &onnx.Graph{Name: proto.String("linear"), Input: []*onnx.ValueInfo{value("x")},
			Output:      []*onnx.ValueInfo{value("y")},
			Initializer: []*onnx.Tensor{tensor("w", raw, width, width), tensor("b", make([]byte, 4*width), width)},
			Node: []*onnx.Node{{OpType: proto.String("MatMul"), Input: []string{"x", "w"}, Output: []string{"p"}},
				{OpType: proto.String("Add"), Input: []string{"p", "b"}, Output: []string{"y"}}}}}))(t)
	return b
}

func openLinear(t *testing.T, path string, wish shared.Wish) *session.Session {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	p := &sessions.Patcher{Plugins: set.Plugins, Options: set.Plan(plan.Options{Force: true}), Share: wish}
	s := must.Value(session.Open(l, path, session.Options{IntraOpThreads: 1, Patcher: p.Patch}))(t)
	return s
}

func answerLinear(t *testing.T, s *session.Session) string {
	t.Helper()
	x := make([]float32, 2*width)
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	l := must.Value(ort.FindAndOpen(""))(t)
	v := must.Value(ort.NewTensor(l, []int64{2, width}, x))(t)
	defer v.Close()
	out := must.Value(s.Run(context.Background(), map[string]*ort.Value{"x": v}))(t)
	defer out[0].Close()
	b := must.Value(out[0].Bytes())(t)
	return fmt.Sprintf("%x", b)
}

var inMemoryFile = regexp.MustCompile(`(\d+) +/memfd:graft-weights-`)

// weightsFile is the inode of the memory file with weights that this process has; "" for none.
func weightsFile(t *testing.T) string {
	t.Helper()
	maps := must.Value(os.ReadFile("/proc/self/maps"))(t)
	if found := inMemoryFile.FindSubmatch(maps); found != nil {
		return string(found[1])
	}
	return ""
}
