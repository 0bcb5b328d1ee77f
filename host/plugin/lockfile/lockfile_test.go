package lockfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/internal/must"
)

var (
	a = strings.Repeat("a", 64)
	b = strings.Repeat("b", 64)
)

// written is a lock as stored on the disk.
var written = `# Plugins that are used, by the hashes of their files. Written by: graft plugin lock
schema_version: 1
plugins:
  - name: flash-decode
    version: 0.2.0+cuda
    abi: "1.0"
    source: oci://ghcr.io/me/flash-decode:0.2.0_cuda
    key: RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3
    variants:
      - device: cpu
        os: linux
        arch: amd64
        file: libflash_decode.so
        sha256: ` + a + `
      - device: cuda
        os: linux
        arch: amd64
        file: libflash_decode_cuda.so
        sha256: ` + b + `
    files:
      data/table: ` + a + `
      plugin.yaml: ` + b + `
  - name: toy
    version: 0.1.0
    abi: "1.0"
    variants: []
    files:
      plugin.yaml: ` + a + `
`

// TestWrite: a lock is written as it is read, to the byte, whatever order its entries came in.
func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	f := must.Value(Parse(path, []byte(written)))(t)
	f.Plugins[0], f.Plugins[1] = f.Plugins[1], f.Plugins[0]
	v := f.Plugins[1].Variants
	v[0], v[1] = v[1], v[0]
	must.Succeed(t, f.Write())
	got, err := os.ReadFile(path)
	must.Succeed(t, err, got)
	must.Equal(t, string(got), written, got)
	again, err := Read(path)
	if err != nil || again.Plugin("toy") == nil || again.Plugin("flash-decode").Key == "" || again.Plugin("none") != nil {
		t.Errorf("read is %+v, %v", again, err)
	}
}

// TestRefused: what a lock may not say, each with one error.
func TestRefused(t *testing.T) {
	for _, test := range []struct{ from, to, want string }{
		{written, "", "found an empty file, needed one that begins with schema_version: 1"},
		{written, "- 1", "found line 1: cannot unmarshal !!seq into lockfile.File, needed a lock file"},
		{"schema_version: 1", "schema_version: 2", "found schema_version 2, needed 1"},
		{"schema_version: 1", "surprise: 1", "field surprise not found"},
		{"schema_version: 1", "---\n---\nschema_version: 1", "found more than one document, needed one"},
		{"name: toy", "name: flash-decode", "found the plugin flash-decode twice, needed each once"},
		{"name: toy", "name: ../toy", "found the name ../toy in plugin 2 of the list"},
		{"version: 0.1.0", "version: newest", "found the version newest in plugin 2"},
		{`abi: "1.0"`, "abi: one", "found the abi one in plugin 1"},
		{"key: RWQ", `key: "\u001b[2J" # `, "found the key "},
		{"oci://ghcr.io", `"oci://\n" # `, "found the source "},
		{"file: libflash_decode.so", "file: ../libflash_decode.so",
			"found the file ../libflash_decode.so of a variant in plugin 1 of the list, needed a plain name, once"},
		{"file: libflash_decode.so", "file: plugin.yaml", "found the file plugin.yaml of a variant"},
		{"file: libflash_decode.so", "file: libflash_decode_cuda.so",
			"found the file libflash_decode_cuda.so of two variants"},
		{"sha256: " + a, "sha256: short", "found the sha256 short in plugin 1 of the list, needed 64 hexadecimal digits"},
		{"data/table: " + a, "data/table: " + strings.ToUpper(a), "found the hash AAAAAAA"},
		{"data/table:", "../table:", "found the file ../table in plugin 1 of the list, needed a path inside the plugin's " +
			"folder, with slashes"},
		{"data/table:", "/table:", "found the file /table in plugin 1"},
		{"      plugin.yaml: " + a, "      other.yaml: " + a,
			"found no hash of plugin.yaml in plugin 2 of the list, needed one under files"},
	} {
		text := strings.Replace(written, test.from, test.to, 1)
		if text == written {
			t.Fatalf("nothing is replaced by %q", test.to)
		}
		_, err := Parse("l", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), "l: ") || !strings.Contains(err.Error(), test.want) ||
			!errors.Is(err, refusal.ErrLockFile) || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%q: error\n%q\nwant\n%s", test.to, err, test.want)
		}
	}
	missing := filepath.Join(t.TempDir(), FileName)
	want := missing + ": cannot read: no such file or directory, needed a lock file; write one with: graft plugin lock " +
		"--out " + missing
	must.FailExactly(t, must.Error(Read(missing)), want, os.ErrNotExist)
	f := New(missing)
	f.Set(Plugin{Name: "toy"})
	if err := f.Write(); err == nil {
		t.Error("what cannot be read is written")
	} else if _, err := os.Lstat(missing); err == nil {
		t.Error("a file is left")
	}
}

// TestDifference: a folder is what the lock says when it has these files, with these hashes, and no other.
func TestDifference(t *testing.T) {
	m := &manifest.Manifest{Name: "toy", Version: "0.1.0", ABI: manifest.ABIVersion{Major: 1},
		Variants: []manifest.Variant{{Device: "cpu", OS: "linux", Arch: "amd64", File: "lib.so"},
			{Device: "cuda", OS: "linux", Arch: "amd64", File: "absent.so"}}}
	files := content.Files{"plugin.yaml": {SHA256: a}, "lib.so": {SHA256: b, Executable: true}, "data/x": {SHA256: a}}
	entry := Of(m, files)
	if len(entry.Variants) != 1 || entry.Variants[0].SHA256 != b || len(entry.Files) != 2 || entry.ABI != "1.0" {
		t.Errorf("the entry is %+v", entry)
	}
	for _, test := range []struct {
		file      string
		now       *content.File
		name, how string
	}{
		{"lib.so", &content.File{SHA256: b}, "", ""},
		{"lib.so", &content.File{}, "", ""}, // not read
		{"lib.so", &content.File{SHA256: a}, "lib.so", "found sha256 aaaaaaaaaaaa..., needed bbbbbbbbbbbb..."},
		{"lib.so", nil, "lib.so", "found no such file"},
		{"data/x", &content.File{SHA256: b}, "data/x", "found sha256 bbbbbbbbbbbb..., needed aaaaaaaaaaaa..."},
		{"absent.so", &content.File{SHA256: a}, "absent.so", "found a file that the lock does not name"},
	} {
		changed := content.Files{}
		for name, f := range files {
			changed[name] = f
		}
		if delete(changed, test.file); test.now != nil {
			changed[test.file] = *test.now
		}
		if name, how := entry.Difference(changed); name != test.name || how != test.how {
			t.Errorf("%s: %q %q, want %q %q", test.file, name, how, test.name, test.how)
		}
	}
	f := New("/m/graft.lock")
	want := "/p/lib.so: found sha256 aaaaaaaaaaaa..., needed bbbbbbbbbbbb..., needed what /m/graft.lock says of toy " +
		"0.1.0; run: graft plugin install --locked --lock /m/graft.lock"
	must.FailExactly(t, f.Loaded(&entry, "/p", a, "lib.so", a), want, refusal.ErrVerification)
	must.Succeed(t, f.Loaded(&entry, "/p", a, "lib.so", b))
}

// TestSources: a path below the lock's folder moves with it.
func TestSources(t *testing.T) {
	f := New("/m/graft.lock")
	for _, test := range []struct{ source, inLock, resolved string }{
		{"/m/dist/toy.tar.gz", "./dist/toy.tar.gz", "/m/dist/toy.tar.gz"},
		{"/n/toy.tar.gz", "/n/toy.tar.gz", "/n/toy.tar.gz"},
		{"oci://h/toy:1.0.0", "oci://h/toy:1.0.0", "oci://h/toy:1.0.0"},
		{"", "", ""},
	} {
		if got := f.Relative(test.source); got != test.inLock || f.Resolve(got) != test.resolved {
			t.Errorf("%q is %q in the lock, and %q from it", test.source, got, f.Resolve(got))
		}
	}
	p := Plugin{Name: "toy", Version: "1.0.0", Files: map[string]string{}}
	for source, want := range map[string]string{"/n/toy.tar.gz": "/n/toy.tar.gz/new/file: ",
		"oci://h/toy:1.0.0": "oci://h/toy:1.0.0/new/file: "} {
		if err := f.Check(&p, source, content.Files{"new/file": {}}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}
