package languages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/internal/must"
)

func TestTextIsReadBack(t *testing.T) {
	sum := strings.Repeat("0123abcd", 8)
	for _, e := range []*Entry{
		{Replaced: 12, Blocks: 13, Graph: Hashed{sum, "/c/k.onnx"}, Folder: "/a folder",
			Libraries: []Hashed{{sum, "/a b/l.so"}, {sum, "/m.so"}},
			Files: []File{
				{Path: "/a folder/x y", Identity: model.Identity{Device: 1, Inode: 2, Size: 5, Modified: 7, Changed: 9}},
				{Path: "/young", Identity: model.Identity{Size: 5}, SHA256: sum},
				{Path: "/gone", Identity: model.Identity{Size: -1}},
			}},
		{Blocks: 3, Left: "nothing is replaced"},
	} {
		got := must.Value(Parse(e.Text()))(t)
		must.Equal(t, cmp.Diff(e, got), "")
	}
	for _, text := range []string{"", "graft graph 1\n", "graft graph 2", first + "\nreplaced x\n", first + "\nfile 1 2\n",
		first + "\nfile 1 2 3 4 5 -\n", first + "\nfile 1 2 x 4 5 - /p\n", first + "\ngraph /p\n",
		first + "\nlibrary 12 /p\n"} {
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
	holds(false, there)
	holds(true, absent)
}

// TestReplaced: a file that was replaced by one of equal size and time does not hold, nor one whose content changed
// while its identity stayed.
func TestReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write := func(path, text string) {
		t.Helper()
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		must.Succeed(t, os.Chtimes(path, time.Time{}, time.Unix(1, 5)))
	}
	write(path, "text")
	there := must.Value(FileAt(path))(t)
	there.SHA256 = must.Value(hash(path))(t)
	if e := (&Entry{Files: []File{there}}); !e.Holds() {
		t.Fatal("a file that did not change does not hold")
	}
	time.Sleep(50 * time.Millisecond)
	write(path, "tent")
	if e := (&Entry{Files: []File{there}}); e.Holds() {
		t.Error("a file of another content holds")
	}
	there.Identity = must.Value(model.Look(path))(t)
	if e := (&Entry{Files: []File{there}}); e.Holds() {
		t.Error("a young file of another content and the same identity holds")
	}
	write(path, "text")
	there = must.Value(FileAt(path))(t)
	there.SHA256 = ""
	time.Sleep(50 * time.Millisecond)
	write(path+"2", "tent")
	must.Succeed(t, os.Rename(path+"2", path))
	if e := (&Entry{Files: []File{there}}); e.Holds() {
		t.Error("another file in its place holds")
	}
}

func TestSweep(t *testing.T) {
	c := &Cache{t.TempDir()}
	old := time.Now().Add(-unused - time.Hour)
	for _, name := range []string{"0123456789", "0123456789.onnx", "abcdefghij", "abcdefghij.onnx", "notes.txt"} {
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
	must.Equal(t, cmp.Diff([]string{"abcdefghij", "abcdefghij.onnx", "notes.txt"}, names), "")
}
