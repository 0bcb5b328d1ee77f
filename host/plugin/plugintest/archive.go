package plugintest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
)

// Entry is an entry of a test's archive.
type Entry struct {
	Name string
	Data []byte
	Kind byte // tar's type flag; 0 for a file
	Link string
}

// Entries are the files of a folder, under a prefix.
func Entries(t testing.TB, folder, prefix string) []Entry {
	t.Helper()
	var out []Entry
	found, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range found {
		out = append(out, Entry{Name: prefix + e.Name(), Data: ReadFile(t, filepath.Join(folder, e.Name()))})
	}
	return out
}

// Tar is an uncompressed archive.
func Tar(t testing.TB, entries []Entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.Name, Typeflag: e.Kind, Linkname: e.Link, Mode: 0o7777, Size: int64(len(e.Data))}
		if e.Kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.Data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Gzip compresses bytes.
func Gzip(t testing.TB, data []byte) []byte {
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

// WriteTarGz writes a .tar.gz.
func WriteTarGz(t testing.TB, path string, entries []Entry) {
	t.Helper()
	WriteFile(t, path, Gzip(t, Tar(t, entries)))
}
