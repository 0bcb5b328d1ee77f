package plugin

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// archived is an entry of a test's archive.
type archived struct {
	name string
	data []byte
	kind byte // tar's type flag; 0 for a file
	link string
}

// folderEntries are the files of a folder, under a prefix.
func folderEntries(t testing.TB, folder, prefix string) []archived {
	t.Helper()
	var out []archived
	found, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range found {
		out = append(out, archived{name: prefix + e.Name(), data: readFile(t, filepath.Join(folder, e.Name()))})
	}
	return out
}

func tarBytes(t testing.TB, entries []archived) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: 0o7777, Size: int64(len(e.data))}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipBytes(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func writeTarGz(t testing.TB, path string, entries []archived) {
	t.Helper()
	writeFile(t, path, gzipBytes(t, tarBytes(t, entries)))
}

func zipBytes(t testing.TB, entries []archived) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		switch e.kind {
		case tar.TypeSymlink:
			h.SetMode(fs.ModeSymlink | 0o777)
			e.data = []byte(e.link)
		case tar.TypeFifo:
			h.SetMode(fs.ModeNamedPipe | 0o666)
		}
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestInstallArchives(t *testing.T) {
	from := source(t)
	for name, data := range map[string][]byte{
		"toy.tar.gz": gzipBytes(t, tarBytes(t, append([]archived{{name: "toy-0.1/", kind: tar.TypeDir}}, folderEntries(t, from, "toy-0.1/")...))),
		"toy.tgz":    gzipBytes(t, tarBytes(t, folderEntries(t, from, "./"))),
		"toy.tar":    tarBytes(t, folderEntries(t, from, "")),
		"toy.zip":    zipBytes(t, folderEntries(t, from, "toy/")),
	} {
		t.Run(name, func(t *testing.T) {
			s := StoreAt(t.TempDir())
			path := filepath.Join(t.TempDir(), name)
			writeFile(t, path, data)
			in, err := s.Install(context.Background(), path, CheckOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(filepath.Join(in.Folder, "libtoy.so")); err != nil || info.Mode().Perm() != 0o644 {
				t.Errorf("the library: %v, %v; want mode 0644", info, err)
			}
		})
	}
}

func TestHostileArchives(t *testing.T) {
	file := func(name string) []archived {
		return []archived{{name: "plugin.yaml", data: []byte("x")}, {name: name, data: []byte("x")}}
	}
	zeros := make([]byte, 8<<20)
	many := make([]archived, 1100)
	for i := range many {
		many[i].name = fmt.Sprint("f", i)
	}
	const fix = "; do not install it; ask its author for a plain archive of the plugin's folder"
	for _, test := range []struct {
		name    string
		entries []archived
		want    string // after the archive's path and ": "
		onlyTar bool
	}{
		{"parent", file("../evil"), `found the entry "../evil", which leaves the folder or is not in plain form, needed paths inside the plugin's folder` + fix, false},
		{"parent inside", file("a/../../evil"), `found the entry "a/../../evil", which leaves the folder or is not in plain form, needed paths inside the plugin's folder` + fix, false},
		{"absolute", file("/tmp/evil"), `found the entry "/tmp/evil", an absolute path, needed paths inside the plugin's folder` + fix, false},
		{"backslash", file(`..\evil`), `found the entry "..\\evil", whose name is empty, too long or has a backslash, needed a plain path` + fix, false},
		{"link", []archived{{name: "a", kind: tar.TypeSymlink, link: "/etc"}}, `found the entry "a", a link`, false},
		{"hard link", []archived{{name: "a", kind: tar.TypeLink, link: "../../x"}}, `found the entry "a", a link to "../../x", needed plain files and folders` + fix, true},
		{"named pipe", []archived{{name: "a", kind: tar.TypeFifo}}, `found the entry "a", a device or special file, needed plain files and folders` + fix, false},
		{"device", []archived{{name: "a", kind: tar.TypeChar}}, `found the entry "a", a device or special file, needed plain files and folders` + fix, true},
		{"twice", append(file("a"), archived{name: "a"}), `found the entry "a", twice, needed every name once` + fix, false},
		{"file and folder", append(file("a"), archived{name: "a/b"}), "cannot write: ", false},
		{"deep", file(strings.Repeat("d/", 40) + "f"), "found the entry \"" + strings.Repeat("d/", 30) + "...\", nested too deep, needed at most 8 folders" + fix, false},
		{"many", many, "found more than 1024 entries, needed fewer; leave out what the plugin does not need", false},
		{"bomb", []archived{{name: "a", data: zeros}}, "unpacking to more than 200 times its size, needed an honest archive" + fix, false},
	} {
		for kind, make := range map[string]func(testing.TB, []archived) []byte{
			"tar.gz": func(t testing.TB, e []archived) []byte { return gzipBytes(t, tarBytes(t, e)) }, "zip": zipBytes,
		} {
			if test.onlyTar && kind == "zip" {
				continue
			}
			t.Run(test.name+"/"+kind, func(t *testing.T) {
				outer := t.TempDir()
				s := StoreAt(filepath.Join(outer, "data"))
				path := filepath.Join(t.TempDir(), "evil."+kind)
				writeFile(t, path, make(t, test.entries))
				_, err := s.Install(context.Background(), path, CheckOptions{})
				if err == nil || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("error\n%v\nwant\n%s: %s", err, path, test.want)
				}
				if !errors.Is(err, ErrArchive) && test.name != "file and folder" {
					t.Error("error is not of kind ErrArchive")
				}
				if got := entries(t, s); len(got) != 0 {
					t.Errorf("the store holds %q", got)
				}
				if found, _ := filepath.Glob(filepath.Join(outer, "*")); len(found) != 1 {
					t.Errorf("beside the store: %q", found)
				}
			})
		}
	}
}

func TestDamagedArchives(t *testing.T) {
	from := source(t)
	for name, data := range map[string][]byte{
		"a.tar.gz": gzipBytes(t, tarBytes(t, folderEntries(t, from, ""))), "a.zip": zipBytes(t, folderEntries(t, from, "")),
	} {
		s := StoreAt(t.TempDir())
		path := filepath.Join(t.TempDir(), name)
		for _, cut := range []int{0, 10, len(data) / 2, len(data) - 30} {
			writeFile(t, path, data[:cut])
			_, err := s.Install(context.Background(), path, CheckOptions{})
			if err == nil || !strings.HasPrefix(err.Error(), path+": found a damaged archive: ") || !strings.HasSuffix(err.Error(), ", needed a complete one; download it again") {
				t.Errorf("%s cut to %d: %v", name, cut, err)
			}
		}
		if got := entries(t, s); len(got) != 0 {
			t.Errorf("the store holds %q", got)
		}
	}
}

func TestArchiveLimits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tar")
	writeFile(t, path, tarBytes(t, []archived{{name: "a", data: []byte("12345678")}}))
	l := defaultLimits
	l.bytes = 7
	err := unpack(context.Background(), path, t.TempDir(), l)
	want := path + ": found more than 7 bytes of files, needed at most that; leave out what the plugin does not need"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := unpack(ctx, path, t.TempDir(), defaultLimits); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context: %v", err)
	}
}
