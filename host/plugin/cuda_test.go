package plugin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/diagnostic"

	"github.com/opgraft/graft/host/cuda"
)

// playedMachine tells this executable, as a child too, which machine to play: the CUDA of its driver as it
// counts, and its devices, "13000 1"; "none" has no driver.
const playedMachine = "GRAFT_TEST_MACHINE"

var errNoDriver = &diagnostic.Error{Kind: cuda.ErrNoDriver, Path: "libcuda.so.1", Found: "found no such library", Needed: "NVIDIA's driver", Fix: "install it"}

func played(text string) machine {
	var version cuda.Version
	var devices int
	if _, err := fmt.Sscan(text, &version, &devices); err != nil {
		fail := func() (int, error) { return 0, errNoDriver }
		return machine{version: func() (cuda.Version, error) { return 0, errNoDriver }, devices: fail}
	}
	return machine{
		version: func() (cuda.Version, error) { return version, nil },
		devices: func() (int, error) {
			if devices == 0 {
				return 0, &diagnostic.Error{Kind: cuda.ErrNoDevice, Found: "found a driver without a device", Fix: "see nvidia-smi"}
			}
			return devices, nil
		},
	}
}

// play makes this process and its children that machine.
func play(t testing.TB, text string) {
	t.Helper()
	before := here
	t.Cleanup(func() { here = before })
	here = played(text)
	t.Setenv(playedMachine, text)
}

// twoVariants is the fixture's manifest with a library for each device.
var twoVariants = strings.Replace(toyManifest, "operators:", "  - {device: cuda, os: linux, arch: amd64, file: libtoy_cuda.so}\noperators:", 1)

// bothVariants makes the folder of a plugin with the libraries of these paths; "" for an absent one.
func bothVariants(t testing.TB, manifest, cpu, cuda string) string {
	t.Helper()
	folder := writePlugin(t, filepath.Join(t.TempDir(), "toy-source"), manifest, cpu)
	if cuda != "" {
		writeFile(t, filepath.Join(folder, "libtoy_cuda.so"), readFile(t, cuda))
	}
	return folder
}

// marked is a CUDA variant of the fixture that leaves a file when any of it runs.
func marked(t testing.TB, flags ...string) (library, mark string) {
	t.Helper()
	mark = filepath.Join(t.TempDir(), "ran")
	return buildFixture(t, append([]string{`-DFOR_CUDA="13"`, `-DMARK_IN_CONSTRUCTOR="` + mark + `"`}, flags...)...), mark
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestOpenForCUDA(t *testing.T) {
	const need = ", needed a device and a driver for CUDA 13 or newer, as the library's ELF note says; "
	for _, test := range []struct{ machine, want string }{
		{"none", "found no such library (libcuda.so.1)" + need + "install it, or use the plugin's CPU variant"},
		{"12040 1", "found a driver for CUDA 12.4, needed one for CUDA 13 or newer, as the library's ELF note says; install a newer NVIDIA driver, or use the plugin's CPU variant"},
		{"13000 0", "found a driver without a device" + need + "see nvidia-smi, or use the plugin's CPU variant"},
		{"13000 1", ""},
		{"14020 2", ""},
	} {
		t.Run(test.machine, func(t *testing.T) {
			play(t, test.machine)
			library, mark := marked(t)
			folder := bothVariants(t, twoVariants, buildFixture(t), library)
			p, err := Open(folder, OpenOptions{Device: "cuda", AcceptUnverified: true})
			if test.want != "" {
				if err == nil || err.Error() != folder+"/libtoy_cuda.so: "+test.want {
					t.Errorf("error\n%v\nwant\n%s", err, test.want)
				}
				if !errors.Is(err, ErrDevice) || !errors.Is(err, ErrIncompatible) {
					t.Error("the error is not of kind ErrDevice and ErrIncompatible")
				}
				if exists(mark) {
					t.Error("the library was loaded")
				}
				return
			}
			if err != nil || p.Info.Device != "cuda" || !exists(mark) {
				t.Fatalf("open: %v", err)
			}
			if score, _, err := p.Probe(Device{Kind: "cuda", Index: 1}); score != 50 || err != nil {
				t.Errorf("probe of its device: %d, %v", score, err)
			}
			if score, reason, err := p.Probe(CPU); score != 0 || reason == "" || err != nil {
				t.Errorf("probe of another: %d %q, %v", score, reason, err)
			}
			cpu, err := Open(folder, OpenOptions{AcceptUnverified: true})
			if err != nil || cpu.Info.Device != "cpu" || cpu.Path == p.Path {
				t.Errorf("the CPU variant beside it: %v", err)
			}
		})
	}
}

func TestOpenForCUDARefusals(t *testing.T) {
	play(t, "13000 1")
	places(t)
	folder := bothVariants(t, twoVariants, buildFixture(t), buildFixture(t, `-DFOR_CUDA=""`))
	_, err := Open(folder, OpenOptions{Device: "cuda", AcceptUnverified: true})
	want := folder + `/libtoy_cuda.so: found cuda="" in the ELF note of a CUDA library, needed the major version of CUDA that it is built for; build the library with the CMake function of abi/, which states it`
	if err == nil || err.Error() != want {
		t.Errorf("no CUDA in the note: %v", err)
	}
	library, mark := marked(t)
	folder = bothVariants(t, twoVariants, buildFixture(t), library)
	if _, err := Open(folder, OpenOptions{Device: "cuda"}); !errors.Is(err, ErrVerification) || exists(mark) {
		t.Errorf("a library that was not verified: %v", err)
	}
	folder = bothVariants(t, twoVariants, buildFixture(t), "")
	if _, err := Open(folder, OpenOptions{Device: "cuda"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("an absent library: %v", err)
	}
	// A variant need not have every operator of the plugin; what it has is for the planner to see.
	library = buildFixture(t, `-DFOR_CUDA="13"`, `-DOPERATOR_NAME="Other"`)
	p, err := Open(bothVariants(t, twoVariants, buildFixture(t), library), OpenOptions{Device: "cuda", AcceptUnverified: true})
	if err != nil || p.Info.Operators[0].Name != "Other" {
		t.Errorf("a variant with other operators: %v", err)
	}
}

func TestInstallVariants(t *testing.T) {
	library, _ := marked(t)
	absent := Skipped{"libtoy_cuda.so", "cuda", "absent"}
	cpuAbsent := Skipped{"libtoy.so", "cpu", "absent"}
	for _, test := range []struct {
		name, machine string
		cpu, cuda     string
		run           []string // devices
		skipped       []Skipped
		reason        string // of the one that is skipped, when it is not absent
		refusal       string
	}{
		{name: "both on a machine with a device", machine: "13000 1", cpu: buildFixture(t), cuda: library, run: []string{"cpu", "cuda"}},
		{name: "both on a machine without", machine: "none", cpu: buildFixture(t), cuda: library, run: []string{"cpu"}, reason: "found no such library (libcuda.so.1)"},
		{name: "the device's is not liked there", machine: "13000 1", cpu: buildFixture(t), cuda: buildFixture(t, `-DFOR_CUDA="13"`, "-DSCORE=0"), run: []string{"cpu"},
			reason: "found that it cannot run on this machine: the fixture does not like this machine"},
		{name: "the CPU's alone", machine: "13000 1", cpu: buildFixture(t), run: []string{"cpu"}, skipped: []Skipped{absent}},
		{name: "CUDA's alone", machine: "13000 1", cuda: library, run: []string{"cuda"}, skipped: []Skipped{cpuAbsent}},
		{name: "CUDA's alone on a machine without", machine: "none", cuda: library, refusal: "found no such library (libcuda.so.1)"},
		{name: "none", machine: "13000 1", refusal: "libtoy.so: no such file"},
		{name: "CUDA's crashes", machine: "13000 1", cpu: buildFixture(t), cuda: buildFixture(t, `-DFOR_CUDA="13"`, "-DCRASH_IN_CONSTRUCTOR"), refusal: "SIGSEGV"},
		{name: "CUDA's is of another version", machine: "none", cpu: buildFixture(t), cuda: buildFixture(t, `-DNOTE="abi=1.0\nname=toy\nversion=0.3.0\ndevice=cuda\nos=linux\narch=" ARCH "\ncuda=13\n"`), refusal: `found version "0.3.0"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			play(t, test.machine)
			s := StoreAt(t.TempDir())
			from := bothVariants(t, twoVariants+toyCases, test.cpu, test.cuda)
			in, err := s.Install(context.Background(), from, CheckOptions{})
			if test.refusal != "" {
				if err == nil || !strings.Contains(err.Error(), test.refusal) || strings.Contains(err.Error(), ".staging") {
					t.Errorf("error %v, want %q", err, test.refusal)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var run []string
			for _, c := range in.Checked {
				run = append(run, c.Device)
				if _, ok, err := s.Trust().Lookup(c.SHA256); !ok || err != nil {
					t.Errorf("the hash for %s is not recorded", c.Device)
				}
				if _, err := Open(in.Folder, OpenOptions{Device: c.Device, Trust: s.Trust()}); err != nil {
					t.Errorf("the installed library for %s: %v", c.Device, err)
				}
			}
			if fmt.Sprint(run) != fmt.Sprint(test.run) {
				t.Errorf("ran %v, want %v", run, test.run)
			}
			if test.reason != "" {
				if len(in.Skipped) != 1 || in.Skipped[0].Device != "cuda" || !strings.Contains(in.Skipped[0].Reason, test.reason) || strings.Contains(in.Skipped[0].Reason, ".staging") {
					t.Errorf("skipped %+v, want for %q", in.Skipped, test.reason)
				}
				if sha, err := hashFile(filepath.Join(in.Folder, "libtoy_cuda.so")); err != nil {
					t.Error(err)
				} else if _, ok, _ := s.Trust().Lookup(sha); ok {
					t.Error("the hash of a library that did not pass is recorded")
				}
			} else if fmt.Sprint(in.Skipped) != fmt.Sprint(append([]Skipped{}, test.skipped...)) {
				t.Errorf("skipped %+v, want %+v", in.Skipped, test.skipped)
			}
			list, err := s.Verify(context.Background(), []string{"toy"}, CheckOptions{})
			if err != nil || len(list) != 1 || len(list[0].Checked) != len(test.run) || len(list[0].Skipped) != len(in.Skipped) {
				t.Errorf("verify %+v, %v", list, err)
			}
			if list, err := s.List(); err != nil || list[0].Problem != "" {
				t.Errorf("list %+v, %v", list, err)
			}
		})
	}
}

func TestInspectVariants(t *testing.T) {
	play(t, "none")
	library, mark := marked(t)
	for _, test := range []struct {
		cpu, cuda string
		absent    []bool
		problems  []string
	}{
		{buildFixture(t), library, []bool{false, false}, []string{"", ""}},
		{buildFixture(t), "", []bool{false, true}, []string{"", ""}},
		{"", library, []bool{true, false}, []string{"", ""}},
		{"", "", []bool{false, false}, []string{"no such file; build it", "no such file; build it"}},
	} {
		in, err := Inspect(context.Background(), bothVariants(t, twoVariants, test.cpu, test.cuda))
		if err != nil || len(in.Libraries) != 2 {
			t.Fatal(err)
		}
		for i, l := range in.Libraries {
			if l.Absent != test.absent[i] || !strings.Contains(l.Problem, test.problems[i]) || (l.Problem != "") != (test.problems[i] != "") {
				t.Errorf("%v %v: library %d absent %v, problem %q", test.cpu != "", test.cuda != "", i, l.Absent, l.Problem)
			}
		}
	}
	if exists(mark) {
		t.Error("inspection ran the library")
	}
}

func TestSameFace(t *testing.T) {
	face := func(change func(*OperatorInfo)) *OperatorInfo {
		op := &OperatorInfo{Name: "A",
			Inputs:  []Parameter{{Name: "x", Types: []DType{Float32}}, {Name: "b", Types: []DType{Int64}, Optional: true}},
			Outputs: []Parameter{{Name: "y", Types: []DType{Float32}}},
			Attributes: []AttributeInfo{{Name: "by", Kind: "ints", Default: []int64{1, 2}}, {Name: "to", Kind: "int", Default: int64(1)},
				{Name: "fill", Kind: "float", Default: math.NaN()}}}
		if change != nil {
			change(op)
		}
		return op
	}
	for _, test := range []struct {
		want   string
		change func(*OperatorInfo)
	}{
		{"", nil},
		{"", func(op *OperatorInfo) { op.Inputs[0].Types = []DType{BFloat16, Float16} }},
		{"", func(op *OperatorInfo) { op.Inputs[1].HostMemory = true }},
		{"", func(op *OperatorInfo) { op.Attributes[0], op.Attributes[1] = op.Attributes[1], op.Attributes[0] }},
		{"2 inputs in one, 1 in the other", func(op *OperatorInfo) { op.Inputs = op.Inputs[:1] }},
		{"input 1, b, differs", func(op *OperatorInfo) { op.Inputs[1].Optional = false }},
		{"output 0, y, differs", func(op *OperatorInfo) { op.Outputs[0].Name = "z" }},
		{"attribute to differs", func(op *OperatorInfo) { op.Attributes = append(op.Attributes[:1], op.Attributes[2]) }},
		{"attribute more differs", func(op *OperatorInfo) { op.Attributes = append(op.Attributes, AttributeInfo{Name: "more"}) }},
		{"attribute by differs", func(op *OperatorInfo) { op.Attributes[0].Default = []int64{1, 3} }},
	} {
		err := SameFace(face(nil), face(test.change))
		if (err == nil) != (test.want == "") || err != nil && err.Error() != test.want {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
}
