package sessions

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/cuda/cudatest"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
)

// noDriver makes this executable run its tests on a machine without a CUDA driver; otherwise it has a fake
// one, with a device.
const noDriver = "GRAFT_TEST_NO_DRIVER"

// checkFolder is where check put the plugin; "" before.
var checkFolder string

// check is the kit's test plugin, built for each device: the same code, so that what is said to be for CUDA
// would run on the CPU too if it were chosen.
var check = sync.OnceValues(func() (map[string]string, error) {
	include, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go").Output()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "graft-check-")
	if err != nil {
		return nil, err
	}
	checkFolder = folder
	libraries := map[string]string{}
	var started []*exec.Cmd
	for device, stem := range map[string]string{"cpu": "libkit_check.so", "cuda": "libkit_check_cuda.so"} {
		libraries[device] = filepath.Join(folder, stem)
		cmd := exec.Command("c++", "-std=c++17", "-O0", "-shared", "-fPIC", "-fvisibility=hidden", "-I../../../abi",
			"-I../../../abi/kit",
			"-I"+strings.TrimSpace(string(include)), `-DGRAFT_PLUGIN_NAME="kit-check"`, `-DGRAFT_PLUGIN_VERSION="0.1.0"`,
			`-DGRAFT_PLUGIN_SUMMARY="a test"`,
			`-DGRAFT_PLUGIN_DEVICE="`+device+`"`, `-DGRAFT_PLUGIN_ISA="baseline"`, `-DGRAFT_PLUGIN_SM="80"`,
			`-DGRAFT_PLUGIN_CUDA="13"`,
			"../../../abi/tests/kit-check/kit_check.cc", "-Wl,--version-script=../../../abi/cmake/graft.map,-z,nodelete", "-o",
			libraries[device])
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		started = append(started, cmd)
	}
	for _, cmd := range started {
		if err := cmd.Wait(); err != nil {
			return nil, fmt.Errorf("%v: %w", cmd, err)
		}
	}
	return libraries, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(checkFolder)
	os.Exit(code)
}

// pluginFor is the folder of the test plugin with libraries for these devices.
func pluginFor(t *testing.T, devices ...string) string {
	t.Helper()
	libraries := must.Value(check())(t)
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv(discovery.PathVariable, "")
	folder := t.TempDir()
	copyFile(t, "../../../abi/tests/kit-check/plugin.yaml", filepath.Join(folder, manifest.FileName))
	for _, d := range devices {
		copyFile(t, libraries[d], filepath.Join(folder, filepath.Base(libraries[d])))
	}
	return folder
}

// load loads that plugin.
func load(t *testing.T, devices ...string) *loaded.Set {
	t.Helper()
	set, err := loaded.Load([]string{pluginFor(t, devices...)}, true)
	if err != nil || len(set.Refused) > 0 {
		t.Fatal(err, set.Refused)
	}
	return set
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data := must.Value(os.ReadFile(from))(t)
	data = bytes.ReplaceAll(data, []byte("arch: amd64"), []byte("arch: "+runtime.GOARCH))
	must.Succeed(t, os.WriteFile(to, data, 0o644))
}

// joining is y = Concat(x, x) along the last axis, which the test plugin's Join replaces.
func joining(t *testing.T) []byte {
	t.Helper()
	value := func(name string, width int64) *onnx.ValueInfo {
		dim := func(n int64) *onnx.Shape_Dim {
			return &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: n}}
		}
		return &onnx.ValueInfo{Name: proto.String(name),
			Type: &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{
				ElemType: proto.Int32(int32(onnx.Tensor_FLOAT)), Shape: &onnx.Shape{Dim: []*onnx.Shape_Dim{dim(2), dim(width)}}}}}}
	}
	m := &onnx.Model{IrVersion: proto.Int64(10),
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(18)}},
		Graph: &onnx.Graph{Name: proto.String("test"), Input: []*onnx.ValueInfo{value("x", 3)},
			Output: []*onnx.ValueInfo{value("y", 6)},
			Node: []*onnx.Node{{OpType: proto.String("Concat"), Input: []string{"x", "x"}, Output: []string{"y"},
				Attribute: []*onnx.Attribute{{Name: proto.String("axis"), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(-1)}}}}}}
	b := must.Value(proto.Marshal(m))(t)
	return b
}

// made is a session of the model above: what was chosen, registered and logged for it.
type made struct {
	choice  plan.Choice
	domains []operator.Domain
	log     string
	session *session.Session
	err     error
}

// watched is the patcher of s, which tells what it planned.
func watched(s *Patcher, tell func(*patch.Analysis)) session.Patcher {
	return func(r session.Request) (*session.Patch, error) {
		p, err := s.Plan(context.Background(), r)
		if p == nil || err != nil {
			return nil, err
		}
		tell(p.Analysis)
		return p.Patch()
	}
}

// newSession makes one with these config entries, whose providers are ep.<name> as ONNX Runtime files them.
func newSession(t *testing.T, set *loaded.Set, config map[string]string) *made {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	m := &made{}
	var log bytes.Buffer
	s := &Patcher{Plugins: set.Plugins, CUDA: set.CUDA, Options: plan.Options{Force: true},
		Logger: slog.New(slog.NewTextHandler(&log, nil))}
	patcher := watched(s, func(a *patch.Analysis) {
		if len(a.Plan.Choices) > 0 {
			m.choice = a.Plan.Choices[0]
		}
	})
	m.session, m.err = session.FromBytes(l, joining(t),
		session.Options{Config: config, Patcher: func(r session.Request) (*session.Patch, error) {
			p, err := patcher(r)
			if p != nil {
				m.domains = p.Domains
			}
			return p, err
		}})
	m.log = log.String()
	if m.err == nil {
		t.Cleanup(m.session.Close)
	}
	return m
}

func (m *made) expectAnswer(t *testing.T) {
	t.Helper()
	if m.err != nil {
		t.Fatal(m.err)
	}
	l := must.Value(ort.FindAndOpen(""))(t)
	x := must.Value(ort.NewTensor(l, []int64{2, 3}, []float32{1, 2, 3, 4, 5, 6}))(t)
	defer x.Close()
	out := must.Value(m.session.Run(context.Background(), map[string]*ort.Value{"x": x}))(t)
	defer out[0].Close()
	y, err := ort.Data[float32](out[0])
	must.Succeed(t, err)
	must.Equal(t, y, []float32{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6})
}

// onCUDA is what ONNX Runtime leaves in the config of a session whose CUDA provider was appended by device.
var onCUDA = map[string]string{"ep.cudaexecutionprovider.device_id": "0"}

// TestSessionsChooseVariants makes sessions for the CPU and for CUDA with the same plugins. The runtime here
// has no GPU: a session "for CUDA" has both variants registered, and runs the CPU's kernels.
func TestSessionsChooseVariants(t *testing.T) {
	t.Setenv("GRAFT_CUDA_DRIVER", cudatest.Library(t))
	set := load(t, "cpu", "cuda")

	cpu := newSession(t, set, nil)
	cpu.expectAnswer(t)
	if cpu.choice.Variant != "cpu" || len(cpu.domains) != 1 || !strings.Contains(cpu.log, "device=cpu ") {
		t.Errorf("without providers: variant %q, %d domains, log %s", cpu.choice.Variant, len(cpu.domains), cpu.log)
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err == nil && bytes.Contains(maps, []byte("libkit_check_cuda.so")) {
		t.Error("a session on the CPU loaded the CUDA library")
	}

	gpu := newSession(t, set, onCUDA)
	gpu.expectAnswer(t)
	if gpu.choice.Variant != "cuda" || gpu.choice.Operator.Name != "Join" ||
		!strings.Contains(gpu.choice.Reason, "of the bytes") ||
		!strings.Contains(gpu.log, "device=cuda:0 ") {
		t.Errorf("with CUDA: variant %q because %q, log %s", gpu.choice.Variant, gpu.choice.Reason, gpu.log)
	}
	if len(gpu.domains) != 1 || len(gpu.domains[0].Operators) != 2*len(cpu.domains[0].Operators) ||
		!slices.Equal(gpu.domains[0].Operators[:len(cpu.domains[0].Operators)], cpu.domains[0].Operators) {
		t.Errorf("with CUDA: domains %v, want those of the CPU %v and as many again", gpu.domains, cpu.domains)
	}

	// The program's word counts before what its providers say.
	for text, want := range map[string]string{"cpu": "cpu", "cuda": "cuda", "cuda:0": "cuda"} {
		config := map[string]string{ConfigDevice: text}
		if text == "cpu" {
			config["ep.cudaexecutionprovider.device_id"] = "0"
		}
		said := newSession(t, set, config)
		said.expectAnswer(t)
		must.Equal(t, said.choice.Variant, want, text, said.choice.Reason)
	}
	if bad := newSession(t, set, map[string]string{ConfigDevice: "gpu"}); bad.err == nil ||
		!strings.HasSuffix(bad.err.Error(),
			`session config entry graft.device: found device "gpu", needed cpu, cuda or cuda:NUMBER`) {
		t.Errorf("a device that is none: %v", bad.err)
	}

	t.Run("not verified", func(t *testing.T) {
		t.Setenv(plugin.UnverifiedVariable, "")
		set, _ := loaded.Load([]string{pluginFor(t, "cpu", "cuda")}, false) // the CPU's neither, which is an error
		for i, want := range []bool{true, false} {                          // it is said once
			m := newSession(t, set, onCUDA)
			m.expectAnswer(t)
			if got := strings.Contains(m.log, "graft plugin verify "); got != want || m.choice.Operator != nil {
				t.Errorf("session %d: chose %+v, log %s", i, m.choice, m.log)
			}
		}
	})
	t.Run("a variant for the CPU alone", func(t *testing.T) {
		m := newSession(t, load(t, "cpu"), onCUDA)
		m.expectAnswer(t)
		if m.choice.Operator != nil || !strings.Contains(m.choice.Reason, "kit-check: none for cuda: ") ||
			!strings.Contains(m.choice.Reason, "libkit_check_cuda.so: no such file") || m.domains != nil {
			t.Errorf("chose %+v", m.choice)
		}
	})
	t.Run("a variant for CUDA alone", func(t *testing.T) {
		set := load(t, "cuda")
		must.Succeed(t, set.Require([]string{"kit-check"}))
		m := newSession(t, set, nil)
		m.expectAnswer(t)
		if m.choice.Operator != nil {
			t.Errorf("on the CPU: %+v", m.choice)
		}
		// This runtime has no provider for it; that it was registered is what the refusal shows.
		if m = newSession(t, set, onCUDA); m.choice.Variant != "cuda" || m.err == nil ||
			!strings.Contains(m.err.Error(), "Could not find an implementation for Join(1)") {
			t.Errorf("on CUDA: variant %q, %v", m.choice.Variant, m.err)
		}
	})
}

// TestSessionsWithoutADriver: a session that says it has CUDA, where no driver is, is left unchanged and
// says why; a session on the CPU needs none.
func TestSessionsWithoutADriver(t *testing.T) {
	if os.Getenv(noDriver) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSessionsWithoutADriver$", "-test.v")
		cmd.Env = append(os.Environ(), noDriver+"=1", "GRAFT_CUDA_DRIVER="+filepath.Join(t.TempDir(), "libcuda.so.1"))
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	set := load(t, "cpu", "cuda")
	cpu := newSession(t, set, nil)
	cpu.expectAnswer(t)
	must.Equal(t, cpu.choice.Variant, "cpu", cpu.choice.Reason)
	gpu := newSession(t, set, onCUDA)
	gpu.expectAnswer(t)
	if gpu.choice.Operator != nil ||
		!strings.Contains(gpu.choice.Reason,
			"needed a device and a driver for CUDA 13 or newer, as the library's ELF note says") {
		t.Errorf("on CUDA: %+v", gpu.choice)
	}
}

func TestDeviceFor(t *testing.T) {
	const say = "; the session config entry graft.device can say where it computes"
	for _, test := range []struct {
		appended  []ort.Appended
		automatic bool
		device    string
		obstacle  string
	}{
		{nil, false, "cpu", ""},
		{[]ort.Appended{{Name: "XNNPACKExecutionProvider"}, {Name: "OpenVINOExecutionProvider"}}, false, "cpu", ""},
		{[]ort.Appended{{Name: "CPUExecutionProvider"}, {Name: ort.CUDA, Device: 2}}, false, "cuda:2", ""},
		{[]ort.Appended{{Name: ort.CUDA}, {Name: "TensorrtExecutionProvider"}}, true, "cuda:0", ""},
		{[]ort.Appended{{Name: "TensorrtExecutionProvider"}, {Name: ort.CUDA}}, false, "cpu",
			"its tensors lie with TensorrtExecutionProvider, for which plugins have no operators" + say},
		{nil, true, "cpu", "ONNX Runtime chooses its providers" + say},
	} {
		if d, obstacle := deviceFor(test.appended, test.automatic); d.String() != test.device || obstacle != test.obstacle {
			t.Errorf("%v: %v, %q; want %s, %q", test.appended, d, obstacle, test.device, test.obstacle)
		}
	}
	for text, want := range map[string]string{"cpu": "cpu", "cuda": "cuda:0", "cuda:12": "cuda:12", "cuda:": "",
		"cuda:-1": "", "cpu:0": "", "cuda:99999": "", "": "", "tpu": ""} {
		if d, err := tensor.ParseDevice(text); (err == nil) != (want != "") || err == nil && d.String() != want {
			t.Errorf("%q: %v, %v; want %q", text, d, err, want)
		}
	}
}
