package plugin

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FuzzManifest holds ParseManifest to what Manifest promises.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(head + variantLines + geluOperator))
	f.Add([]byte(toyManifest + toyCases))
	plugins, err := filepath.Glob("../../plugins/*/" + ManifestName)
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range plugins {
		f.Add(readFile(f, path))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseManifest("p", data)
		if err != nil {
			if !errors.Is(err, ErrManifest) || !strings.HasPrefix(err.Error(), "p:") {
				t.Fatalf("error %v, want one of kind ErrManifest that names the file", err)
			}
			return
		}
		if _, err := json.Marshal(m); err != nil {
			t.Fatalf("no JSON: %v", err)
		}
		if len(m.Operators) == 0 || len(m.Variants) == 0 || !namePattern.MatchString(m.Name) {
			t.Fatalf("accepted %+v", m)
		}
		for _, v := range m.Variants {
			if filepath.Base(v.File) != v.File {
				t.Fatalf("accepted the file %q", v.File)
			}
		}
		for _, op := range m.Operators {
			if op.Replaces.Pattern == nil {
				if op.With != nil || op.Replaces.Block == "" && op.Where != nil {
					t.Fatalf("accepted %+v", op)
				}
				continue
			}
			promised(t, &op)
		}
		for _, c := range m.Cases {
			if _, ok := m.Operator(c.Operator); !ok {
				t.Fatalf("accepted the case %+v", c)
			}
		}
	})
}

// promised checks the graphs of an operator that replaces a pattern: values are defined before they are
// used, and the outputs are there.
func promised(t *testing.T, op *Operator) {
	p := op.Replaces.Pattern
	defined := append([]string{""}, p.Inputs...)
	for _, c := range p.Constants {
		defined = append(defined, c.Name)
		if (c.Value == nil) != c.Any {
			t.Fatalf("accepted the constant %+v", c)
		}
	}
	outer := slices.Concat(defined, op.With.Fold)
	for _, n := range p.Nodes {
		for _, in := range n.In {
			if !slices.Contains(defined, in) {
				t.Fatalf("pattern: %s uses %q before it is there", n.Op, in)
			}
		}
		defined = append(defined, n.Out...)
	}
	for _, n := range op.With.Nodes {
		for _, in := range n.In {
			if !slices.Contains(outer, in) {
				t.Fatalf("replacement: %s uses %q before it is there", n.Op, in)
			}
		}
		outer = append(outer, n.Out...)
	}
	for _, out := range p.Outputs {
		if !slices.Contains(defined, out) || !slices.Contains(outer, out) {
			t.Fatalf("output %q is not made", out)
		}
	}
}

// FuzzELFNote reads the bytes of a note section.
func FuzzELFNote(f *testing.F) {
	f.Add(note("graft", 1, cudaNote))
	f.Add(append(note("GNU", 3, "12345678901234567890"), note("graft", 1, cudaNote)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			n, found, err := ParseNote(data, order)
			if err != nil || !found {
				continue
			}
			if n.Name == "" || n.Version == "" || !slices.Contains(Devices, n.Device) {
				t.Fatalf("accepted %+v", n)
			}
			if strings.ContainsAny(n.Name+n.Version+n.OS+n.Arch, "\x00\n\x1b") {
				t.Fatalf("accepted control characters: %+v", n)
			}
		}
	})
}

// FuzzLibrary reads whole ELF files.
func FuzzLibrary(f *testing.F) {
	f.Add(readFile(f, buildFixture(f, "-s", "-nostdlib", "-Wl,-z,max-page-size=4096", "-Dmalloc=__builtin_malloc")))
	f.Fuzz(func(t *testing.T, data []byte) {
		lib, err := inspectELF("p", bytes.NewReader(data), int64(len(data)))
		if err == nil {
			err = lib.Check(HostABI, ThisPlatform)
		}
		if err != nil && !errors.Is(err, ErrIncompatible) {
			t.Fatalf("error %v, want one of kind ErrIncompatible", err)
		}
	})
}

// FuzzArchive unpacks archives: nothing may appear outside, and nothing but files and folders inside.
func FuzzArchive(f *testing.F) {
	entries := []archived{{name: "a/", kind: '5'}, {name: "a/plugin.yaml", data: []byte("x")}, {name: "../b", data: []byte("y")}, {name: "c", kind: '2', link: "/etc"}}
	f.Add(tarBytes(f, entries), ".tar")
	f.Add(gzipBytes(f, tarBytes(f, entries[:2])), ".tar.gz")
	f.Add(zipBytes(f, entries[1:]), ".zip")
	f.Fuzz(func(t *testing.T, data []byte, kind string) {
		if !slices.Contains([]string{".tar", ".tar.gz", ".zip"}, kind) {
			return
		}
		outer := t.TempDir()
		inner := filepath.Join(outer, "in", "side")
		if err := os.MkdirAll(inner, 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(outer, "x"+kind)
		writeFile(t, path, data)
		l := defaultLimits
		l.bytes, l.files = 1<<20, 64
		_ = unpack(context.Background(), path, inner, l)
		var total int64
		err := filepath.WalkDir(outer, func(at string, e os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if !e.IsDir() && !e.Type().IsRegular() {
				t.Errorf("found a %s at %s", kindOfFile(e.Type()), at)
			}
			if !e.IsDir() && at != path {
				if !strings.HasPrefix(at, inner+"/") {
					t.Errorf("found %s outside", at)
				}
				if info, err := e.Info(); err == nil {
					total += info.Size()
				}
			}
			return nil
		})
		if err != nil || total > l.bytes {
			t.Errorf("%d bytes unpacked, %v; want at most %d", total, err, l.bytes)
		}
	})
}
