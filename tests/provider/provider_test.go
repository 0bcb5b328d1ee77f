// Package provider registers both variants of a plugin with ONNX Runtime's own CUDA provider and sees which
// one it chooses and what that is given: device, stream, memory. There is no GPU in it: the provider's library
// is the real one, the CUDA runtime under it is played by testdata/cudart.c, and the plugin's code is the CPU's.
// So it shows registration, choice and bookkeeping, and nothing of execution on a device.
//
// The provider is an optional peer of 256 MB. The tests look for it in the folder that GRAFT_ORT_CUDA names:
//
//	pip download --no-deps --only-binary :all: onnxruntime-gpu==1.31.1
//	unzip onnxruntime_gpu-*.whl 'onnxruntime/capi/*'
//	GRAFT_ORT_CUDA=$PWD/onnxruntime/capi go test ./tests/provider
package provider

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/cuda/cudatest"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/hook"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/must"
)

const (
	peer     = "GRAFT_ORT_CUDA"     // folder of the provider's library
	scenario = "GRAFT_TEST_SESSION" // makes this executable a child that makes one session
	folder   = "GRAFT_TEST_PLUGIN"  // the child's plugin
)

func TestMain(m *testing.M) {
	if what := os.Getenv(scenario); what != "" {
		if err := child(what); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// program is one that uses another binding, which needs cgo; nil without.
var program func(library string) error

// child makes and runs a session and prints what was chosen for it and what it answers. What the provider and
// the plugin do is printed by themselves.
func child(what string) error {
	at, err := runtimeIn(os.Getenv(peer))
	if err != nil {
		return err
	}
	if what == "program" {
		return program(at)
	}
	l, err := ort.Open(at)
	if err != nil {
		return err
	}
	o := session.Options{Providers: []session.Provider{{Name: "CUDA", Options: map[string]string{"device_id": "2"}}}}
	op, domain := "Concat", ""
	switch what {
	case "cpu", "cuda":
		set, err := loaded.Load([]string{os.Getenv(folder)}, true)
		if err != nil {
			return err
		}
		s := &sessions.Patcher{Plugins: set.Plugins, CUDA: set.CUDA, Options: plan.Options{Force: true}}
		patcher := func(r session.Request) (*session.Patch, error) {
			p, err := s.Plan(context.Background(), r)
			if err != nil {
				return nil, err
			}
			for _, c := range p.Analysis.Plan.Choices {
				fmt.Printf("choice: variant %q: %s\n", c.Variant, c.Reason)
			}
			return p.Patch()
		}
		if err := hook.Install(l, hook.Hook{Patcher: patcher, Strict: true}); err != nil {
			return err
		}
		if what == "cpu" {
			o.Providers = nil
		}
	case "cpu first", "cuda first": // as a program in another language registers what graft patch names
		op, domain, o.Unpatched = "Join", manifest.Domain, true
		o.Libraries = []string{filepath.Join(os.Getenv(folder), "liblooks.so"),
			filepath.Join(os.Getenv(folder), "liblooks_cuda.so")}
		if what == "cuda first" {
			o.Libraries[0], o.Libraries[1] = o.Libraries[1], o.Libraries[0]
		}
	}
	s, err := session.FromBytes(l, joining(op, domain), o)
	if err != nil {
		return err
	}
	defer s.Close()
	x, err := ort.NewTensor(l, []int64{2, 3}, []float32{1, 2, 3, 4, 5, 6})
	if err != nil {
		return err
	}
	defer x.Close()
	out, err := s.Run(context.Background(), map[string]*ort.Value{"x": x})
	if err != nil {
		return err
	}
	defer out[0].Close()
	y, err := ort.Data[float32](out[0])
	fmt.Println("answer:", y)
	return err
}

// joining is y = op(x, x).
func joining(op, domain string) []byte {
	dim := func(n int64) *onnx.Shape_Dim {
		return &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: n}}
	}
	value := func(name string, width int64) *onnx.ValueInfo {
		return &onnx.ValueInfo{Name: proto.String(name),
			Type: &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{
				ElemType: proto.Int32(int32(onnx.Tensor_FLOAT)), Shape: &onnx.Shape{Dim: []*onnx.Shape_Dim{dim(2), dim(width)}}}}}}
	}
	node := &onnx.Node{OpType: &op, Domain: &domain, Input: []string{"x", "x"}, Output: []string{"y"}}
	m := &onnx.Model{IrVersion: proto.Int64(10),
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(18)}},
		Graph: &onnx.Graph{Name: proto.String("test"), Input: []*onnx.ValueInfo{value("x", 3)},
			Output: []*onnx.ValueInfo{value("y", 6)}, Node: []*onnx.Node{node}}}
	if domain == "" {
		node.Attribute = []*onnx.Attribute{{Name: proto.String("axis"), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(-1)}}
	} else {
		m.OpsetImport = append(m.OpsetImport, &onnx.OperatorSet{Domain: &domain, Version: proto.Int64(1)})
	}
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err) // of a model made here
	}
	return b
}

func runtimeIn(folder string) (string, error) {
	found, err := filepath.Glob(filepath.Join(folder, "libonnxruntime.so*"))
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("%s: no libonnxruntime.so", folder)
	}
	return found[0], nil
}

func build(t *testing.T, compiler string, args ...string) {
	t.Helper()
	if out, err := exec.Command(compiler,
		append([]string{"-shared", "-fPIC", "-O1"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", compiler, args, err, out)
	}
}

// played makes the libraries that the provider needs of a machine with CUDA, and gives their folder.
func played(t *testing.T, provider string) string {
	t.Helper()
	f := must.Value(elf.Open(provider))(t)
	defer f.Close()
	symbols := must.Value(f.ImportedSymbols())(t)
	needed := must.Value(f.ImportedLibraries())(t)
	source := must.Value(os.ReadFile("testdata/cudart.c"))(t)
	// Offsets in cudaDeviceProp of CUDA 13.0.
	rest := "#define PROPERTIES 1008\n#define TOTAL_MEMORY 288\n#define MAJOR 360\n#define PROCESSORS 384\n" +
		string(source)
	for _, s := range symbols {
		ofCUDA := regexp.MustCompile(`^(__)?(cu|cuda|cublas|cublasLt|curand|cudnn)[A-Z]`).MatchString(s.Name)
		if ofCUDA && !regexp.MustCompile(`\b`+s.Name+`\(`).Match(source) {
			rest += fmt.Sprintf("int %s(void) { return 0; }\n", s.Name)
		}
	}
	dir := t.TempDir()
	whole := filepath.Join(dir, "played.c")
	must.Succeed(t, os.WriteFile(whole, []byte(rest), 0o600))
	cuda := regexp.MustCompile(`^lib(cudart|cublas|cublasLt|curand|cudnn|cuda)\.so\.`)
	for _, name := range needed {
		switch {
		case strings.HasPrefix(name, "libcudart."):
			build(t, "cc", whole, "-o", filepath.Join(dir, name))
		case cuda.MatchString(name):
			build(t, "cc", "-x", "c", "/dev/null", "-o", filepath.Join(dir, name))
		}
	}
	return dir
}

// looks makes the plugin's folder.
func looks(t *testing.T) string {
	t.Helper()
	include, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go").Output()
	must.Succeed(t, err)
	dir := t.TempDir()
	for device, name := range map[string]string{"cpu": "liblooks.so", "cuda": "liblooks_cuda.so"} {
		build(t, "c++", "-std=c++17", "-fvisibility=hidden", "-I../../abi", "-I../../abi/kit",
			"-I"+strings.TrimSpace(string(include)),
			`-DGRAFT_PLUGIN_NAME="looks"`, `-DGRAFT_PLUGIN_VERSION="0.1.0"`, `-DGRAFT_PLUGIN_SUMMARY="looks"`,
			`-DGRAFT_PLUGIN_DEVICE="`+device+`"`,
			`-DGRAFT_PLUGIN_ISA="baseline"`, `-DGRAFT_PLUGIN_SM="80"`, `-DGRAFT_PLUGIN_CUDA="13"`,
			"testdata/looks.cc", "-Wl,--version-script=../../abi/cmake/graft.map,-z,nodelete", "-o", filepath.Join(dir, name))
	}
	text := strings.ReplaceAll(`schema_version: 1
name: looks
version: 0.1.0
abi: "1.0"
license: Apache-2.0
summary: looks
variants:
  - {device: cpu, os: linux, arch: ARCH, file: liblooks.so}
  - {device: cuda, os: linux, arch: ARCH, file: liblooks_cuda.so}
operators:
  - name: Join
    replaces:
      pattern: {inputs: [a, b], outputs: [y], nodes: [{op: Concat, in: [a, b], out: [y], attributes: {axis: -1}}]}
    cost: {bandwidth: 1, flops: 1, overhead_us: 1}
`, "ARCH", runtime.GOARCH)
	must.Succeed(t, os.WriteFile(filepath.Join(dir, manifest.FileName), []byte(text), 0o600))
	return dir
}

func TestProviderChooses(t *testing.T) {
	at := os.Getenv(peer)
	if at == "" {
		t.Skip(peer + " names no folder with ONNX Runtime's CUDA provider")
	}
	libraries := played(t, filepath.Join(at, "libonnxruntime_providers_cuda.so"))
	whole, driver := looks(t), cudatest.Library(t)
	part := t.TempDir() // the same plugin without its library for CUDA
	for _, name := range []string{manifest.FileName, "liblooks.so"} {
		must.Succeed(t, os.Link(filepath.Join(whole, name), filepath.Join(part, name)))
	}
	const right = "answer: [1 2 3 1 2 3 4 5 6 4 5 6]\n"
	// One stream, that of the device that the options name; a on the device, b where the operator asked for
	// it, y on the device.
	onDevice := []string{"cuda create device 2:2\n", "stream 0x5010 on device 2\n", "cuda run stream 0x5010\n",
		"cuda input a device 2:2\n",
		"cuda input b device 1:0\n", "cuda output device 2:2\n", "copy of 24 bytes, kind 1\n", "copy of 48 bytes, kind 2\n",
		right}
	for _, test := range []struct {
		what, plugin string
		want         []string
		never        []string
	}{
		{"cpu", whole, []string{`choice: variant "cpu"`, "cpu run stream (nil)\n", right}, []string{"cuda", "copy"}},
		{"cuda", whole, append(slices.Clone(onDevice), `choice: variant "cuda"`), []string{"cpu run"}},
		{"cuda", part, []string{`choice: variant "": looks: none for cuda: `, "liblooks_cuda.so: no such file"},
			[]string{" run "}},
		{"program", whole, append(slices.Clone(onDevice), "device=cuda:2 "), []string{"cpu run"}},
		{"cpu first", whole, onDevice, []string{"cpu run"}},
		{"cuda first", whole, onDevice, []string{"cpu run"}},
	} {
		if test.what == "program" && program == nil {
			continue
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), scenario+"="+test.what, folder+"="+test.plugin, "LD_LIBRARY_PATH="+libraries,
			"GRAFT_CUDA_DRIVER="+driver,
			discovery.PathVariable+"=", "XDG_DATA_HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", test.what, err, out)
			continue
		}
		for _, w := range test.want {
			if !strings.Contains(string(out), w) {
				t.Errorf("%s: no %q in\n%s", test.what, w, out)
			}
		}
		for _, n := range test.never {
			if strings.Contains(string(out), n) {
				t.Errorf("%s: %q in\n%s", test.what, n, out)
			}
		}
	}
}
