package store

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/verification"
	"github.com/opgraft/graft/internal/must"
)

func TestInstallVariants(t *testing.T) {
	library := plugintest.Build(t, `-DFOR_CUDA="13"`)
	absent := verification.Skipped{File: "libtoy_cuda.so", Device: "cuda", Reason: "absent"}
	cpuAbsent := verification.Skipped{File: "libtoy.so", Device: "cpu", Reason: "absent"}
	for _, test := range []struct {
		name, machine string
		cpu, cuda     string
		run           []string // devices
		skipped       []verification.Skipped
		reason        string // of the one that is skipped, when it is not absent
		refusal       string
	}{
		{name: "both on a machine with a device", machine: "13000 1", cpu: plugintest.Build(t), cuda: library,
			run: []string{"cpu", "cuda"}},
		{name: "both on a machine without", machine: "none", cpu: plugintest.Build(t), cuda: library, run: []string{"cpu"},
			reason: "found no such library (libcuda.so.1)"},
		{name: "the device's is not liked there", machine: "13000 1", cpu: plugintest.Build(t),
			cuda: plugintest.Build(t, `-DFOR_CUDA="13"`, "-DSCORE=0"), run: []string{"cpu"},
			reason: "found that it cannot run on this machine: the fixture does not like this machine"},
		{name: "the CPU's alone", machine: "13000 1", cpu: plugintest.Build(t), run: []string{"cpu"},
			skipped: []verification.Skipped{absent}},
		{name: "CUDA's alone", machine: "13000 1", cuda: library, run: []string{"cuda"},
			skipped: []verification.Skipped{cpuAbsent}},
		{name: "CUDA's alone on a machine without", machine: "none", cuda: library,
			refusal: "found no such library (libcuda.so.1)"},
		{name: "none", machine: "13000 1", refusal: "libtoy.so: no such file"},
		{name: "CUDA's crashes", machine: "13000 1", cpu: plugintest.Build(t),
			cuda: plugintest.Build(t, `-DFOR_CUDA="13"`, "-DCRASH_IN_CONSTRUCTOR"), refusal: "SIGSEGV"},
		{name: "CUDA's is of another version", machine: "none", cpu: plugintest.Build(t),
			cuda: plugintest.Build(t,
				`-DNOTE="abi=1.0\nname=toy\nversion=0.3.0\ndevice=cuda\nos=linux\narch=" ARCH "\ncuda=13\n"`),
			refusal: `found version "0.3.0"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			plugintest.Play(t, test.machine)
			s := At(t.TempDir())
			from := plugintest.WriteBoth(t, plugintest.TwoVariants+plugintest.Cases, test.cpu, test.cuda)
			in, err := s.Install(context.Background(), from, verification.Options{})
			if test.refusal != "" {
				if err == nil || !strings.Contains(err.Error(), test.refusal) || strings.Contains(err.Error(), ".staging") {
					t.Errorf("error %v, want %q", err, test.refusal)
				}
				return
			}
			must.Succeed(t, err)
			var run []string
			for _, c := range in.Checked {
				run = append(run, c.Device)
				if !recorded(t, s, filepath.Base(c.Path), c.SHA256) {
					t.Errorf("the library for %s is not recorded", c.Device)
				}
				if _, err := plugin.Open(in.Folder, plugin.OpenOptions{Device: c.Device, Trust: s.Trust()}); err != nil {
					t.Errorf("the installed library for %s: %v", c.Device, err)
				}
			}
			must.Equal(t, fmt.Sprint(run), fmt.Sprint(test.run))
			if test.reason != "" {
				if len(in.Skipped) != 1 || in.Skipped[0].Device != "cuda" || !strings.Contains(in.Skipped[0].Reason, test.reason) ||
					strings.Contains(in.Skipped[0].Reason, ".staging") {
					t.Errorf("skipped %+v, want for %q", in.Skipped, test.reason)
				}
				if sha := plugintest.SHA256(t, filepath.Join(in.Folder, "libtoy_cuda.so")); recorded(t, s, "libtoy_cuda.so", sha) {
					t.Error("a library that did not pass is recorded")
				}
			} else if fmt.Sprint(in.Skipped) != fmt.Sprint(append([]verification.Skipped{}, test.skipped...)) {
				t.Errorf("skipped %+v, want %+v", in.Skipped, test.skipped)
			}
			list, err := s.Verify(context.Background(), []string{"toy"}, verification.Options{})
			if err != nil || len(list) != 1 || len(list[0].Checked) != len(test.run) || len(list[0].Skipped) != len(in.Skipped) {
				t.Errorf("verify %+v, %v", list, err)
			}
			must.Equal(t, must.Value(s.List())(t)[0].Problem, "")
		})
	}
}

// recorded reports whether a library of this hash is one that ran and passed.
func recorded(t *testing.T, s *Store, file, sha string) bool {
	t.Helper()
	known := must.Value(s.Trust().Read())(t)
	for _, v := range known.Plugins {
		if _, ran := v.Libraries[file]; ran && v.Files[file].SHA256 == sha {
			return true
		}
	}
	return false
}

func TestInspectVariants(t *testing.T) {
	plugintest.Play(t, "none")
	library, mark := plugintest.Marked(t)
	for _, test := range []struct {
		cpu, cuda string
		absent    []bool
		problems  []string
	}{
		{plugintest.Build(t), library, []bool{false, false}, []string{"", ""}},
		{plugintest.Build(t), "", []bool{false, true}, []string{"", ""}},
		{"", library, []bool{true, false}, []string{"", ""}},
		{"", "", []bool{false, false}, []string{"no such file; build it", "no such file; build it"}},
	} {
		in, err := Inspect(context.Background(), plugintest.WriteBoth(t, plugintest.TwoVariants, test.cpu, test.cuda))
		if err != nil || len(in.Libraries) != 2 {
			t.Fatal(err)
		}
		for i, l := range in.Libraries {
			if l.Absent != test.absent[i] || !strings.Contains(l.Problem, test.problems[i]) ||
				(l.Problem != "") != (test.problems[i] != "") {
				t.Errorf("%v %v: library %d absent %v, problem %q", test.cpu != "", test.cuda != "", i, l.Absent, l.Problem)
			}
		}
	}
	if plugintest.Exists(mark) {
		t.Error("inspection ran the library")
	}
}

// TestInstalledAgainForDevice: a library for a GPU that a machine lacks is no reason to install the same plugin
// again, and one is, where the GPU came later.
func TestInstalledAgainForDevice(t *testing.T) {
	plugintest.Play(t, "none")
	s := At(t.TempDir())
	from := plugintest.WriteBoth(t, plugintest.TwoVariants+plugintest.Cases, plugintest.Build(t),
		plugintest.Build(t, `-DFOR_CUDA="13"`))
	for _, test := range []struct {
		machine       string
		already, runs bool
	}{
		{machine: "none", runs: true},
		{machine: "none", already: true, runs: true}, // a driver may have come
		{machine: "13000 1", runs: true},
		{machine: "13000 1", already: true},
		{machine: "none", already: true},
	} {
		plugintest.Play(t, test.machine)
		runs := false
		in, err := s.Install(t.Context(), from,
			verification.Options{Progress: func(p verification.Progress) { runs = runs || p.Total > 0 }})
		if err != nil || in.Already != test.already || runs != test.runs {
			t.Errorf("on the machine %q: %+v, %v, and ran %v; want %+v", test.machine, in, err, runs, test)
		}
	}
}
