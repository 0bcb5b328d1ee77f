package languages

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/internal/must"
)

func TestTextIsReadBack(t *testing.T) {
	for _, e := range []*Entry{
		{Replaced: 12, Blocks: 13, Graph: "/c/k.onnx", Folder: "/a folder", Libraries: []string{"/a b/l.so", "/m.so"},
			Files: []File{{"/a folder/x y", 5, 7}, {"/gone", -1, 0}}},
		{Blocks: 3, Left: "nothing is replaced"},
	} {
		got := must.Value(Parse(e.Text()))(t)
		must.Equal(t, cmp.Diff(e, got), "")
	}
	for _, text := range []string{"", "graft graph 2\n", "graft graph 1", first + "\nreplaced x\n", first + "\nfile 1 2\n",
		first + "\nfile 1 x /p\n"} {
		if e, err := Parse([]byte(text)); err == nil {
			t.Errorf("%q is %+v", text, e)
		}
	}
}

func TestHolds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	absent, err := FileAt(path)
	if err != nil || absent.Size != -1 {
		t.Fatalf("%+v, %v", absent, err)
	}
	must.Succeed(t, os.WriteFile(path, []byte("text"), 0o600))
	there, err := FileAt(path)
	if err != nil || there.Size != 4 {
		t.Fatalf("%+v, %v", there, err)
	}
	holds := func(want bool, files ...File) {
		t.Helper()
		if got := (&Entry{Files: files}).Holds(); got != want {
			t.Errorf("%+v hold: %v", files, got)
		}
	}
	holds(true, there)
	holds(false, there, absent)
	must.Succeed(t, os.Chtimes(path, time.Time{}, time.Unix(1, 5)))
	holds(false, there)
	must.Succeed(t, os.Remove(path))
	holds(true, absent)
}

func TestSweep(t *testing.T) {
	c := &Cache{t.TempDir()}
	old := time.Now().Add(-unused - time.Hour)
	for _, name := range []string{"0123456789", "0123456789.onnx", "abcdefghij", "notes.txt"} {
		path := filepath.Join(c.folder, name)
		must.Succeed(t, os.WriteFile(path, nil, 0o600))
		if name != "abcdefghij" {
			must.Succeed(t, os.Chtimes(path, old, old))
		}
	}
	c.sweep()
	entries := must.Value(os.ReadDir(c.folder))(t)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	must.Equal(t, cmp.Diff([]string{"abcdefghij", "notes.txt"}, names), "")
}
