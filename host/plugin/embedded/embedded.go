// Package embedded holds plugins that a program carries in itself, so that nothing has to be installed beside it.
// Their hashes are part of the program: who trusts it trusts them, and no record of another folder is asked.
//
// A plugin of the program's is written into the user's cache once, and found there like any other. Where no folder
// can be written, it stays where it is: its folder is a path below the executable, at which nothing can lie, and
// [Read] reads it from there.
package embedded

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/content"
)

// IndexName is the file that says which plugins a set has: a JSON list of [Plugin].
const IndexName = "index.json"

// Packed ends the name of a file of a set, which is compressed: PLUGIN/FILE.gz.
const Packed = ".gz"

// Plugin is a plugin of a set.
type Plugin struct {
	Name    string           `json:"name"`
	Version string           `json:"version"`
	Files   content.Files    `json:"files"` // by name: a plugin has no folders
	Sizes   map[string]int64 `json:"sizes"` // of the files, in bytes, not compressed

	set fs.FS
}

var sets struct {
	sync.Mutex
	files   []fs.FS
	plugins []*Plugin // of the sets that were read
	read    int       // how many of files these are
	err     error
}

// Register adds a set of plugins: a folder of IndexName and of what it names. It is called when a program starts, and
// reads nothing yet.
func Register(set fs.FS) {
	sets.Lock()
	defer sets.Unlock()
	sets.files = append(sets.files, set)
}

// Plugins are those of all sets.
func Plugins() ([]*Plugin, error) {
	sets.Lock()
	defer sets.Unlock()
	for ; sets.read < len(sets.files) && sets.err == nil; sets.read++ {
		var list []*Plugin
		set := sets.files[sets.read]
		data, err := fs.ReadFile(set, IndexName)
		if err == nil {
			err = json.Unmarshal(data, &list)
		}
		if err != nil {
			sets.err = fmt.Errorf("the program's own plugins cannot be read: %w", err)
			break
		}
		for _, p := range list {
			p.set = set
		}
		sets.plugins = append(sets.plugins, list...)
	}
	return sets.plugins, sets.err
}

// Inside is the plugin's folder where it is written nowhere: a path below the executable.
func (p *Plugin) Inside() string {
	program, err := os.Executable()
	if err != nil { // without /proc
		program = "/proc/self/exe"
	}
	return filepath.Join(program, "plugins", p.Name)
}

// Folder is where the plugin's files are: in the user's cache, where they are written if they are not there as they
// should be, else Inside.
func (p *Plugin) Folder() string {
	cache, err := storage.CacheFolder()
	if err != nil {
		return p.Inside()
	}
	folder := filepath.Join(cache, "plugins", p.Files.Digest()[:16], p.Name)
	if p.lies(folder) || p.write(folder) == nil && p.lies(folder) {
		return folder
	}
	return p.Inside()
}

// lies reports whether a folder holds the plugin, and nobody else can change it.
func (p *Plugin) lies(folder string) bool {
	files, err := content.Read(folder, nil)
	if err != nil {
		return false
	}
	name, _ := files.Difference(p.Files)
	return name == ""
}

// write puts the plugin's files into a folder, in one step. What lies there, which is not the plugin, is taken away
// first.
func (p *Plugin) write(folder string) error {
	above := filepath.Dir(folder)
	if err := os.MkdirAll(above, 0o700); err != nil {
		return err
	}
	begun, err := storage.Temporary(above)
	if err != nil {
		return err
	}
	defer begun.Remove()
	whole := filepath.Join(begun.Path, p.Name)
	if err := os.Mkdir(whole, 0o700); err != nil {
		return err
	}
	for name := range p.Files {
		data, err := p.file(name)
		if err != nil {
			return err
		}
		if err := storage.Write(filepath.Join(whole, name), data, storage.Private); err != nil {
			return err
		}
	}
	err = storage.Place(whole, folder)
	if err == nil || p.lies(folder) { // by another process, meanwhile
		return nil
	}
	if err := os.RemoveAll(folder); err != nil { // not the plugin any more
		return err
	}
	return storage.Place(whole, folder)
}

// file is the content of a file, which is checked.
func (p *Plugin) file(name string) ([]byte, error) {
	want, known := p.Files[name]
	if !known {
		return nil, &fs.PathError{Op: "open", Path: path.Join(p.Name, name), Err: fs.ErrNotExist}
	}
	packed, err := p.set.Open(path.Join(p.Name, name+Packed))
	if err != nil {
		return nil, err
	}
	defer packed.Close()
	r, err := gzip.NewReader(packed)
	if err != nil {
		return nil, err
	}
	out := bytes.NewBuffer(make([]byte, 0, p.Sizes[name]+bytes.MinRead))
	if _, err := io.Copy(out, io.LimitReader(r, p.Sizes[name]+1)); err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(out.Bytes()); hex.EncodeToString(sum[:]) != want.SHA256 {
		return nil, fmt.Errorf("%s: found sha256 %x, needed %s", path.Join(p.Name, name), sum, want.SHA256)
	}
	return out.Bytes(), nil
}

// At is the plugin whose folder is Inside the program; nil for any other folder.
func At(folder string) *Plugin {
	list, err := Plugins()
	if err != nil {
		return nil
	}
	for _, p := range list {
		if folder == p.Inside() {
			return p
		}
	}
	return nil
}

// Read is the content of a file inside of the program; not found for every other path.
func Read(path string) (data []byte, found bool, err error) {
	folder, name := filepath.Split(path)
	p := At(strings.TrimSuffix(folder, "/"))
	if p == nil {
		return nil, false, nil
	}
	data, err = p.file(name)
	return data, true, err
}

// Vouch reports whether files are those of a plugin of the program's.
func Vouch(files content.Files) bool {
	list, _ := Plugins()
	for _, p := range list {
		if name, _ := files.Difference(p.Files); name == "" {
			return true
		}
	}
	return false
}
