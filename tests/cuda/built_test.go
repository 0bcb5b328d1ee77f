//go:build cuda

package cuda

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/host/plugin/library"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/sample"
)

// What any Linux has; whatever else a library needs must be inside of it.
var everywhere = []string{
	"ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1",
}

func TestLibraries(t *testing.T) {
	for name, path := range built(t) {
		t.Run(name, func(t *testing.T) {
			lib, err := library.Read(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := lib.Check(library.HostABI, manifest.Platform{OS: "linux", Arch: "amd64"}); err != nil {
				t.Error(err)
			}
			if len(lib.Unexpected) > 0 {
				t.Errorf("found the exported symbols %s, need %s and %s alone", strings.Join(lib.Unexpected, ", "),
					library.EntrySymbol, library.RegisterSymbol)
			}
			for _, needed := range lib.Needed {
				if !slices.Contains(everywhere, needed) {
					t.Errorf("found a link to %s, need none but to %s", needed, strings.Join(everywhere, ", "))
				}
			}
			m, err := manifest.Read(filepath.Dir(path))
			if err != nil {
				t.Fatal(err)
			}
			want := &library.Note{
				ABI: m.ABI, Name: m.Name, Version: m.Version, Device: "cuda", OS: "linux", Arch: "amd64",
				ISA: []string{"x86-64"}, SM: capabilities(t), CUDA: "13",
			}
			if diff := cmp.Diff(want, lib.Note); diff != "" {
				t.Errorf("note: %s", diff)
			}
		})
	}
}

func TestHardening(t *testing.T) {
	for name, path := range built(t) {
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		relro := false
		for _, p := range f.Progs {
			relro = relro || p.Type == elf.PT_GNU_RELRO
			if p.Type == elf.PT_GNU_STACK && p.Flags&elf.PF_X != 0 {
				t.Errorf("%s: found an executable stack", name)
			}
		}
		if !relro {
			t.Errorf("%s: found no relro segment, need -z relro", name)
		}
		flags, err := f.DynValue(elf.DT_FLAGS_1)
		if err != nil {
			t.Fatal(err)
		}
		const need = uint64(elf.DF_1_NOW | elf.DF_1_NODELETE)
		if len(flags) != 1 || flags[0]&need != need {
			t.Errorf("%s: found flags %x, need -z now and -z nodelete", name, flags)
		}
	}
}

func TestDeviceCode(t *testing.T) {
	for name, path := range built(t) {
		all, err := DeviceCode(path)
		if err != nil {
			t.Error(err)
			continue
		}
		for i, codes := range all {
			if missing := MissingCode(codes, capabilities(t)); missing != "" {
				t.Errorf("%s: fat binary %d of %d has %v and lacks %s", name, i+1, len(all), codes, missing)
			}
		}
	}
}

func TestBudgets(t *testing.T) {
	file := filepath.Join(root, "kernels-cuda", "budgets.txt")
	text, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	budgets, err := ParseBudgets(text)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	var kernels []Resources
	for name, library := range built(t) {
		files, err := filepath.Glob(filepath.Join(reports, name, "*.txt"))
		if err != nil {
			t.Fatal(err)
		}
		// A source gives a report and a fat binary.
		codes, err := DeviceCode(library)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) != len(codes) {
			t.Errorf("%s: found %d reports in %s for %d fat binaries; run: rm -r %s && make cuda-test", name, len(files),
				reports,
				len(codes), reports)
		}
		for _, file := range files {
			r, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			list, err := ParseReport(r)
			if err != nil {
				t.Errorf("%s: %v", file, err)
			}
			kernels = append(kernels, list...)
		}
	}
	if err := Demangle(kernels); err != nil {
		t.Fatal(err)
	}
	_, all := sample.Number()
	for _, problem := range CheckBudgets(budgets, kernels, all) {
		t.Errorf("%s: %s", file, problem)
	}
}
