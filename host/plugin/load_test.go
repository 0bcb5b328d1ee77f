package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/host/plugin/trust"
	"github.com/opgraft/graft/internal/must"
)

// open loads a variation of the fixture.
func open(t *testing.T, flags ...string) (*Plugin, error) {
	t.Helper()
	folder := plugintest.Write(t, t.TempDir(), plugintest.Manifest, plugintest.Build(t, flags...))
	return Open(folder, OpenOptions{AcceptUnverified: true})
}

func mustOpen(t *testing.T, flags ...string) *Plugin {
	t.Helper()
	p := must.Value(open(t, flags...))(t)
	return p
}

func TestOpen(t *testing.T) {
	p := mustOpen(t)
	want := &Info{Name: "toy", Version: "0.1.0", Summary: "a toy", Device: "cpu", Operators: []signature.Operator{{
		Name: "Scale", Summary: "y = by * x", SinceVersion: 1,
		Inputs:     []signature.Parameter{{Name: "x", Types: []tensor.DType{tensor.Float32}}},
		Outputs:    []signature.Parameter{{Name: "y", Types: []tensor.DType{tensor.Float32}}},
		Attributes: []signature.Attribute{{Name: "by", Kind: "float", Default: 2.0}},
	}}}
	must.Equal(t, cmp.Diff(want, p.Info), "")
	again, err := Open(p.Folder, OpenOptions{AcceptUnverified: true})
	if err != nil || again.table != p.table {
		t.Errorf("opened again: %v; want the same library", err)
	}
	if score, reason, err := p.Probe(tensor.CPU); score != 50 || reason != "" || err != nil {
		t.Errorf("probe of the CPU: %d %q %v; want 50", score, reason, err)
	}
	if score, reason, err := p.Probe(tensor.Device{Kind: "cuda"}); score != 0 ||
		reason != "the fixture does not like this machine" || err != nil {
		t.Errorf("probe of CUDA: %d %q %v; want 0 with a reason", score, reason, err)
	}
	if _, err := p.OrtOps(0); err == nil ||
		err.Error() != p.Path+": handing out operators failed: no runtime given (invalid argument)" {
		t.Errorf("operators without a runtime: %v", err)
	}
	if ops, err := p.OrtOps(1); err != nil || len(ops) != 1 || ops[0] == 0 {
		t.Errorf("operators: %v, %v; want one", ops, err)
	}
}

// recordFolder makes a record of a folder as it is, in another.
func recordFolder(t *testing.T, data, folder string) *trust.Record {
	t.Helper()
	files := must.Value(content.Read(folder, nil))(t)
	known := trust.Content{SchemaVersion: 2, Plugins: map[string]trust.Verified{}}
	known.Add(trust.Verified{Name: "toy", Folders: []string{folder}, Files: files,
		Libraries: map[string]trust.Ran{"libtoy.so": {Device: "cpu"}}})
	text := must.Value(json.Marshal(known))(t)
	plugintest.WriteFile(t, filepath.Join(data, trust.FileName), text)
	return trust.At(data)
}

func TestOpenRefusals(t *testing.T) {
	const source = "; build the library and the manifest from the same source"
	for _, test := range []struct {
		name  string
		flags []string
		want  string
	}{
		{"another name", []string{`-DDESCRIBED_NAME="tory"`},
			`found name "tory" in the library's description, needed "toy" as in plugin.yaml` + source},
		{"another operator", []string{`-DOPERATOR_NAME="Skale"`},
			"found operators Skale in the library's description, needed Scale too, as in plugin.yaml; give the operator one " +
				"name in both, and build the library again"},
		{"bad operator name", []string{`-DOPERATOR_NAME="\033[2J"`},
			`found a faulty description: operator 0 is called "\x1b[2J", needed one as abi/graft_plugin.h says; report this to its author`},
		{"short table", []string{"-DTABLE_SIZE=24"},
			"found a table of 24 bytes, needed at least 88; build the plugin with the header of ABI 1.0"},
		{"table of a later minor", []string{"-DTABLE_MINOR=3"},
			"found a table for ABI 1.3, needed ABI 1.0; update graft to one that speaks ABI 1.3, or install an older release " +
				"of the plugin"},
		{"no run", []string{"-DNO_RUN"},
			"found a table without the function run, needed all but fold; report this to its author"},
		{"no extension", []string{"-DNO_ORT_OPS"},
			"found no extension graft.ort_ops, needed the operators for ONNX Runtime; build the plugin with one of the kits " +
				"that graft plugin sdk writes, which have it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := open(t, test.flags...)
			var e *diagnostic.Error
			if !errors.As(err, &e) || !strings.HasSuffix(e.Path, "/libtoy.so") || err.Error() != e.Path+": "+test.want {
				t.Errorf("error\n%v\nwant\n%s", err, test.want)
			}
			must.Fail(t, err, refusal.ErrIncompatible)
		})
	}
	t.Run("missing symbol", func(t *testing.T) {
		_, err := open(t, "-Dmalloc=graft_gone")
		if err == nil || !strings.HasSuffix(err.Error(),
			"libtoy.so: found that the system cannot load it: undefined symbol: graft_gone; install what it needs, or a "+
				"build of the plugin for this system") ||
			!errors.Is(err, refusal.ErrIncompatible) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("private library", func(t *testing.T) {
		mark := filepath.Join(t.TempDir(), "ran")
		folder := plugintest.Write(t, t.TempDir(), plugintest.Manifest, "")
		plugintest.Compile(t, filepath.Join(folder, "libhelper.so"), `-DMARK="`+mark+`"`, "-x", "c",
			plugintest.Constructor(t))
		library := plugintest.Build(t, "-L"+folder, "-Wl,--no-as-needed", "-lhelper", "-Wl,-rpath,$ORIGIN")
		plugintest.WriteFile(t, filepath.Join(folder, "libtoy.so"), plugintest.ReadFile(t, library))
		_, err := Open(folder, OpenOptions{AcceptUnverified: true})
		want := folder +
			`/libtoy.so: found the RUNPATH "$ORIGIN", by which the system would load other files with it, needed a library without; ` +
			"link it without -rpath, --audit, --filter and the like (CMake: SKIP_RPATH), and what it needs statically"
		if err == nil || err.Error() != want || plugintest.Exists(mark) {
			t.Errorf("error %v, want %s; the helper ran: %v", err, want, plugintest.Exists(mark))
		}
	})
	t.Run("no variant", func(t *testing.T) {
		_, err := Open(plugintest.Write(t, t.TempDir(), plugintest.Manifest, ""), OpenOptions{Device: "cuda"})
		must.Fail(t, err, "needed cuda on "+manifest.ThisPlatform.String(), refusal.ErrIncompatible)
	})
	t.Run("the folder of its sources", func(t *testing.T) {
		folder := plugintest.Write(t, t.TempDir(), plugintest.Manifest, "")
		built := filepath.Join(folder, "build", "toy")
		for _, in := range []string{filepath.Join(folder, "build", "objects"), built} {
			must.Succeed(t, os.MkdirAll(in, 0o755))
			must.Succeed(t, os.WriteFile(filepath.Join(in, "libtoy.so"), nil, 0o644))
		}
		must.Succeed(t, os.WriteFile(filepath.Join(built, manifest.FileName), []byte(plugintest.Manifest), 0o644))
		_, err := Open(folder, OpenOptions{})
		want := folder + "/libtoy.so: no such file; the folder holds the plugin's sources, needed a shared library; name " +
			"the folder that it was built into: " + built
		must.FailExactly(t, err, want, refusal.ErrNotFound)
	})
	t.Run("no library", func(t *testing.T) {
		folder := plugintest.Write(t, t.TempDir(), plugintest.Manifest, "")
		_, err := Open(folder, OpenOptions{})
		want := folder + "/libtoy.so: no such file, needed a shared library; correct the file name in plugin.yaml or " +
			"build the library"
		must.FailExactly(t, err, want, refusal.ErrNotFound)
	})
}

func TestOpenWithoutRecord(t *testing.T) {
	data := plugintest.Places(t)
	mark := filepath.Join(t.TempDir(), "ran")
	folder := plugintest.Write(t, filepath.Join(t.TempDir(), "it's"), plugintest.Manifest,
		plugintest.Build(t, `-DMARK_IN_CONSTRUCTOR="`+mark+`"`))
	_, err := Open(folder, OpenOptions{})
	quoted := strings.ReplaceAll("'"+folder+"'", "it's", `it'\''s`)
	sha := plugintest.SHA256(t, filepath.Join(folder, "libtoy.so"))
	want := folder + "/libtoy.so: found a library that has not been verified here (sha256 " + sha[:12] +
		"...), needed one that graft has run apart from this program first; run: graft plugin install " +
		quoted + " (or, to use it where it is: graft plugin verify " + quoted + ")"
	must.FailExactly(t, err, want, refusal.ErrVerification)
	if _, err := os.Stat(mark); err == nil {
		t.Error("the library ran before it was verified")
	}
	must.Succeed(t, os.MkdirAll(data, 0o755))
	plugintest.WriteFile(t, filepath.Join(data, trust.FileName), []byte("{"))
	if _, err := Open(folder, OpenOptions{}); err == nil || !errors.Is(err, refusal.ErrStore) ||
		!strings.Contains(err.Error(), "cannot read the record of verified libraries: unexpected end of JSON input") {
		t.Errorf("a damaged record: %v", err)
	}
	must.Succeed(t, os.Remove(filepath.Join(data, trust.FileName)))
	recordFolder(t, data, folder)
	must.Value(Open(folder, OpenOptions{}))(t, "a recorded library")
	must.Value(os.Stat(mark))(t, "the library did not run")
	// Another version stands beside it, though the process has loaded the file of this path before.
	must.Succeed(t, os.Remove(filepath.Join(folder, "libtoy.so")))
	plugintest.WriteFile(t, filepath.Join(folder, "libtoy.so"), plugintest.ReadFile(t, plugintest.Build(t, "-DSCORE=40")))
	t.Setenv(UnverifiedVariable, "1")
	p := must.Value(Open(folder, OpenOptions{}))(t)
	if score, _, err := p.Probe(tensor.CPU); score != 40 || err != nil {
		t.Errorf("a replaced library: score %d, %v; want that of the new one", score, err)
	}
}

func TestKernel(t *testing.T) {
	p := mustOpen(t)
	k, err := p.Create("Scale", []manifest.Attribute{{Name: "by", Value: 3.0}}, []*tensor.Tensor{nil}, tensor.CPU)
	must.Succeed(t, err)
	defer k.Destroy()
	x := must.Value(tensor.New(tensor.Float32, 5, 7))(t)
	for i := range tensor.Elems[float32](x) {
		tensor.Elems[float32](x)[i] = float32(i)
	}
	shapes, err := k.Infer([]*tensor.Tensor{{DType: tensor.Float32, Shape: []int64{5, -1}}}, []bool{true})
	if err != nil || len(shapes) != 1 || shapes[0].DType != tensor.Float32 ||
		!slices.Equal(shapes[0].Shape, []int64{5, -1}) {
		t.Fatalf("shapes %v, %v", shapes, err)
	}
	for _, threads := range []int{1, 3} {
		y := must.Value(tensor.New(tensor.Float32, 5, 7))(t)
		size, err := k.Workspace([]*tensor.Tensor{x}, []*tensor.Tensor{y}, threads)
		if err != nil || size != 4096 {
			t.Fatalf("workspace %d, %v", size, err)
		}
		var lines []string
		log := func(level int, text string) { lines = append(lines, fmt.Sprint(level, " ", text)) }
		ctx := &RunContext{Workspace: NewWorkspace(size), Threads: threads, Log: log}
		must.Succeed(t, k.Run(ctx, []*tensor.Tensor{x}, []*tensor.Tensor{y}))
		for i, v := range tensor.Elems[float32](y) {
			if v != float32(3*i) {
				t.Fatalf("%d threads: element %d is %v, want %d", threads, i, v, 3*i)
			}
		}
		must.Equal(t, lines, []string{"1 the fixture runs"})
	}
	if err := k.Run(&RunContext{}, []*tensor.Tensor{x}, []*tensor.Tensor{x}); err == nil ||
		err.Error() != p.Path+": run of Scale failed: the workspace is not as asked for (invalid argument)" {
		t.Errorf("without workspace: %v", err)
	}
	k.Destroy() // the second, by defer, does nothing
}

func TestKernelConcurrently(t *testing.T) {
	p := mustOpen(t)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			k, err := p.Create("Scale", []manifest.Attribute{{Name: "by", Value: float64(n)}}, nil, tensor.CPU)
			if err != nil {
				t.Error(err)
				return
			}
			defer k.Destroy()
			for range 20 {
				x, _ := tensor.New(tensor.Float32, 100)
				y, _ := tensor.New(tensor.Float32, 100)
				tensor.Elems[float32](x)[99] = 1
				if err := k.Run(&RunContext{Workspace: NewWorkspace(4096), Threads: 2}, []*tensor.Tensor{x},
					[]*tensor.Tensor{y}); err != nil {
					t.Error(err)
				} else if got := tensor.Elems[float32](y)[99]; got != float32(n) {
					t.Errorf("got %v, want %d", got, n)
				}
				runtime.GC()
			}
		})
	}
	all.Wait()
}

func TestKernelErrors(t *testing.T) {
	p := mustOpen(t)
	for _, test := range []struct {
		name string
		do   func() error
		want string
	}{
		{"no such operator", func() error { _, err := p.Create("Skale", nil, nil, tensor.CPU); return err },
			`found no operator "Skale", needed one of Scale`},
		{"refused attribute", func() error {
			_, err := p.Create("Scale", []manifest.Attribute{{Name: "on", Value: int64(3)}}, nil, tensor.CPU)
			return err
		},
			"create of Scale failed: the fixture knows only the float attribute by (invalid argument)"},
		{"odd attribute", func() error {
			_, err := p.Create("Scale", []manifest.Attribute{{Name: "by", Value: 1i}}, nil, tensor.CPU)
			return err
		},
			"create of Scale: attribute by: found a value of type complex128, needed int64, float64, string, []int64 or " +
				"[]float64"},
		{"odd device", func() error { _, err := p.Create("Scale", nil, nil, tensor.Device{Kind: "abacus"}); return err },
			`create of Scale: found device "abacus", needed cpu or cuda`},
		{"odd type", func() error {
			_, err := p.Create("Scale", nil, []*tensor.Tensor{{DType: "decimal"}}, tensor.CPU)
			return err
		},
			`create of Scale: constant 0: found element type "decimal", needed one of [float32 float16 bfloat16 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool]`},
		{"failing create", func() error {
			_, err := mustOpen(t, "-DCREATE_FAILS").Create("Scale", nil, nil, tensor.CPU)
			return err
		},
			"create of Scale failed: the fixture makes no kernels (not supported)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.do()
			var e *diagnostic.Error
			if !errors.As(err, &e) || err.Error() != e.Path+": "+test.want {
				t.Errorf("error\n%v\nwant\n%s", err, test.want)
			}
		})
	}
	for _, shape := range [][]int64{{-1}, {1 << 40, 1 << 40}, make([]int64, 17)} {
		if _, err := tensor.New(tensor.Float32, shape...); err == nil {
			t.Errorf("a tensor of shape %v is accepted", shape)
		}
	}
}

func TestAttributesReachC(t *testing.T) {
	values := []manifest.Attribute{{Name: "a", Value: int64(-3)}, {Name: "b", Value: 0.5}, {Name: "c", Value: "text"},
		{Name: "d", Value: []int64{1, 2}}, {Name: "e", Value: []float64{0.25, 4}}, {Name: "f", Value: []int64{}}}
	c := must.Value(cAttributes(values))(t)
	d := &describer{p: &Plugin{}}
	for i, a := range c {
		got := d.attribute(a, "x")
		if diff := cmp.Diff(signature.Attribute{Name: values[i].Name, Kind: attributeKinds[i%5+1], Required: false,
			Default: values[i].Value}, got); i < 5 && diff != "" {
			t.Errorf("attribute %d (-want +got):\n%s", i, diff)
		}
	}
	if d.err != nil {
		t.Error(d.err)
	}
}

func TestFold(t *testing.T) {
	p := mustOpen(t)
	got, err := p.Fold("Scale",
		[]tensor.Weight{{Name: "w", Shape: []int64{3}, Floats: []float64{1, 2, 4}},
			{Name: "e", Shape: []int64{0}, Floats: []float64{}}}, nil)
	must.Succeed(t, err)
	want := []tensor.Weight{
		{Name: "w", Shape: []int64{3}, Floats: []float64{2, 4, 8}},
		{Name: "e", Shape: []int64{0}, Floats: []float64{}},
		{Name: "sum", Shape: []int64{}, Floats: []float64{7}},
	}
	must.Equal(t, cmp.Diff(want, got), "")
	_, err = p.Fold("Scale", []tensor.Weight{{Name: "w", Shape: []int64{1, 1}, Floats: []float64{1}}}, nil)
	if !errors.Is(err, refusal.ErrFold) ||
		err.Error() != p.Path+": fold of Scale failed: the fixture folds only float vectors (refused)" {
		t.Errorf("constants that do not qualify: %v", err)
	}
	_, err = p.Fold("Scale", []tensor.Weight{{Name: "w", Shape: []int64{2}, Floats: []float64{1}}}, nil)
	must.FailExactly(t, err, p.Path+": fold of Scale: constant w: found 1 elements, needed 2 for shape [2], as "+
		"floats or as ints")
	_, err = p.Fold("Scale", []tensor.Weight{{Name: "not a name", Shape: []int64{1}, Floats: []float64{1}}}, nil)
	must.FailExactly(t, err, p.Path+`: fold of Scale: it emitted a constant called "not a name"`)
}
