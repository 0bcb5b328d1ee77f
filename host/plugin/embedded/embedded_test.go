package embedded

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/internal/must"
)

// pack makes a set of one plugin.
func pack(t *testing.T, name string, files map[string]string) fstest.MapFS {
	t.Helper()
	set := fstest.MapFS{}
	p := Plugin{Name: name, Version: "1.0.0", Files: content.Files{}, Sizes: map[string]int64{}}
	for file, text := range files {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		must.Value(w.Write([]byte(text)))(t)
		must.Succeed(t, w.Close())
		sum := sha256.Sum256([]byte(text))
		p.Files[file], p.Sizes[file] = content.File{SHA256: hex.EncodeToString(sum[:])}, int64(len(text))
		set[name+"/"+file+Packed] = &fstest.MapFile{Data: packed.Bytes()}
	}
	index := must.Value(json.Marshal([]Plugin{p}))(t)
	set[IndexName] = &fstest.MapFile{Data: index}
	return set
}

// register makes a set the only one.
func register(t *testing.T, set fstest.MapFS) *Plugin {
	t.Helper()
	forget := func() { sets.files, sets.plugins, sets.read, sets.err = nil, nil, 0, nil }
	forget()
	t.Cleanup(forget)
	Register(set)
	list, err := Plugins()
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	return list[0]
}

var toy = map[string]string{"plugin.yaml": "name: toy\n", "libtoy.so": "not much of a library"}

func TestFolder(t *testing.T) {
	p := register(t, pack(t, "toy", toy))
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	var several sync.WaitGroup
	for range 8 {
		several.Go(func() {
			if got := p.Folder(); got == p.Inside() {
				t.Errorf("not written: %s", got)
			}
		})
	}
	several.Wait()
	folder := p.Folder()
	holds := func(when string) {
		t.Helper()
		for name, text := range toy {
			if data, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(data) != text {
				t.Errorf("%s: %s is %q, %v", when, name, data, err)
			}
		}
		if entries, err := os.ReadDir(filepath.Dir(folder)); err != nil || len(entries) != 1 {
			t.Errorf("%s: %v beside it, %v", when, entries, err)
		}
	}
	holds("written")

	// What is not the plugin any more is written anew.
	library := filepath.Join(folder, "libtoy.so")
	for name, change := range map[string]func() error{
		"changed": func() error { return os.WriteFile(library, []byte("not much of a librarx"), 0o600) },
		"added":   func() error { return os.WriteFile(filepath.Join(folder, "more"), nil, 0o600) },
		"removed": func() error { return os.Remove(library) },
		"opened":  func() error { return os.Chmod(library, 0o666) },
		"a file":  func() error { return os.RemoveAll(folder) },
	} {
		must.Succeed(t, change())
		must.Equal(t, p.Folder(), folder, name)
		holds(name)
	}
	files, err := content.Read(folder, nil)
	if err != nil || !Vouch(files) {
		t.Errorf("not vouched for: %v, %v", files, err)
	}
	files["more"] = content.File{}
	if Vouch(files) {
		t.Error("vouched for with a file more")
	}
}

func TestInside(t *testing.T) {
	p := register(t, pack(t, "toy", toy))
	file := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	for _, cache := range []string{file, "", "relative"} { // nothing can be written there
		t.Setenv("XDG_CACHE_HOME", cache)
		t.Setenv("HOME", "")
		if got := p.Folder(); got != p.Inside() || At(got) != p {
			t.Errorf("%q: %s", cache, got)
		}
	}
	for name, text := range toy {
		data, inside, err := Read(filepath.Join(p.Inside(), name))
		if !inside || err != nil || string(data) != text {
			t.Errorf("%s: %q, %v, %v", name, data, inside, err)
		}
	}
	if _, inside, err := Read(filepath.Join(p.Inside(), "more")); !inside || err == nil {
		t.Errorf("a file that is not there: %v, %v", inside, err)
	}
	if _, inside, _ := Read(file); inside {
		t.Error("any file is inside")
	}
}

func TestDamaged(t *testing.T) {
	other := pack(t, "toy", map[string]string{"libtoy.so": "another text of the s"})["toy/libtoy.so"+Packed]
	for name, data := range map[string][]byte{"another": other.Data, "cut": other.Data[:20], "empty": {}} {
		set := pack(t, "toy", toy)
		set["toy/libtoy.so"+Packed] = &fstest.MapFile{Data: data}
		p := register(t, set)
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		must.Equal(t, p.Folder(), p.Inside(), name)
		if data, _, err := Read(filepath.Join(p.Inside(), "libtoy.so")); err == nil {
			t.Errorf("%s: read as %q", name, data)
		}
	}
	Register(fstest.MapFS{})
	if _, err := Plugins(); err == nil {
		t.Error("a set without an index")
	}
}
