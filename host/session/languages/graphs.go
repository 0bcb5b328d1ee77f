// Package languages is what programs in other languages than Go get, by libgraft.so: it is preloaded into them, and
// reads rewritten graphs in the user's cache. They read an entry, and ask for one only where there is none, or where
// what it was made from has changed.
//
// An entry is a text, a line for each fact, first what it is about and then a value to the end of the line:
//
//	graft graph 2
//	replaced 12
//	blocks 13
//	graph 5d41402a... /home/user/.cache/graft/graphs/KEY.onnx
//	folder /models
//	library 7d793037... /usr/lib/graft/plugins/NAME/libname.so
//	file 650412345 1764170000000000000 1764170000000000000 2049 1311 - /models/model.onnx
//
// graph is the SHA-256 and the path of the file that a session is made from; there is none where the model is left as
// it is, and left says why. folder is where the weights lie that the graph refers to, for
// session.model_external_initializers_file_folder_path. Each library has the SHA-256 of its bytes, which were
// verified: what is registered with the session's options is bytes of that hash, which nobody can change any more.
// Each file has its size in bytes, the times of its last write and of its last change in nanoseconds, its device, its
// inode and, where it changed so shortly before that another change might not show, its SHA-256; - elsewhere. A size
// of -1 is a file that must not be there. The entry holds as long as all of them are so.
package languages

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/session/patch"
)

// first is the first line of an entry.
const first = "graft graph 2"

// unused is how long an entry stays that nobody read.
const unused = 30 * 24 * time.Hour

// Entry says what a session is made from.
type Entry struct {
	Replaced, Blocks int
	Graph            Hashed // without a path where the model is left as it is
	Left             string // why it is; "" where it is not
	Folder           string // of the weights that the graph refers to; "" for none
	Libraries        []Hashed
	Files            []File // that it was made from
}

// Hashed is a file with the SHA-256 of its bytes, in hexadecimal.
type Hashed struct{ SHA256, Path string }

// File is a file as it was.
type File struct {
	Path           string
	model.Identity        // of size -1 where there was none
	SHA256         string // where the identity alone may not tell another content; "" elsewhere
}

// FileAt is a file as it is.
func FileAt(path string) (File, error) {
	f := File{Path: path}
	var err error
	if f.Identity, err = model.Look(path); errors.Is(err, fs.ErrNotExist) {
		return File{Path: path, Identity: model.Identity{Size: -1}}, nil
	}
	if err != nil {
		return File{}, err
	}
	return f, f.young()
}

// young hashes a regular file whose identity may not tell another content.
func (f *File) young() (err error) {
	if f.Lasting() {
		return nil
	}
	f.SHA256, err = hash(f.Path)
	return err
}

// hash is the SHA-256 of a file's bytes; "" of what is no regular file.
func hash(path string) (string, error) {
	from, err := storage.OpenRegular(path)
	if err != nil {
		if info, stat := os.Stat(path); stat == nil && !info.Mode().IsRegular() {
			return "", nil
		}
		return "", err
	}
	defer from.Close()
	h := sha256.New()
	if _, err := io.Copy(h, from); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Cache is a folder of entries.
type Cache struct{ folder string }

// UserCache is the cache in the user's cache folder.
func UserCache() (*Cache, error) {
	base, err := storage.CacheFolder()
	if err != nil {
		return nil, err
	}
	return &Cache{filepath.Join(base, "graphs")}, nil
}

var keyPattern = regexp.MustCompile(`^[0-9a-z]{8,128}$`)

// IsKey reports whether text can name an entry: 8 to 128 of 0-9 and a-z.
func IsKey(text string) bool { return keyPattern.MatchString(text) }

// Store writes what was made of a model under a key, with its entry. libraries are those of the plan's plugins, and
// others what it depends on besides the model and them. With whole the graph holds its weights and refers to none;
// otherwise those that lie in files are not copied. Where nothing is replaced, the analysis says why.
func (c *Cache) Store(ctx context.Context, key string, a *patch.Analysis, libraries []Hashed, others []File,
	whole bool) (*Entry, error) {
	e := &Entry{Blocks: len(a.Plan.Choices), Files: slices.Clone(others)}
	if err := os.MkdirAll(c.folder, 0o700); err != nil {
		return nil, c.cannot(err)
	}
	c.sweep()
	for _, s := range a.Model.Sources() {
		if whole { // the caller knows its content
			continue
		}
		f := File{Path: s.Path, Identity: model.IdentityOf(s.Info)}
		// The model itself was hashed before it was read, if it had to be.
		known := slices.IndexFunc(others, func(o File) bool { return o.Identity == f.Identity })
		if known < 0 {
			if err := f.young(); err != nil {
				return nil, err
			}
		} else if f.SHA256 = others[known].SHA256; f == others[known] {
			continue
		}
		e.Files = append(e.Files, f)
	}
	if a.Plan.Changes() {
		e.Replaced, e.Libraries = a.Plan.Replaced(), libraries
	} else if e.Left = a.Obstacle; e.Left == "" {
		e.Left = fmt.Sprintf("nothing is replaced among %d blocks%s", e.Blocks, a.Plan.Left())
	}
	if e.Left == "" {
		graph := filepath.Join(c.folder, key+".onnx")
		var err error
		if whole {
			err = a.Write(ctx, graph, model.WriteOptions{})
		} else {
			err = e.write(a, graph)
		}
		if err != nil {
			return nil, err
		}
		sum, err := hash(graph)
		if err != nil {
			return nil, c.cannot(err)
		}
		e.Graph = Hashed{sum, graph}
	}
	paths := append([]File{{Path: e.Graph.Path}, {Path: e.Folder}}, e.Files...)
	for _, l := range e.Libraries {
		paths = append(paths, File{Path: l.Path})
	}
	for _, f := range paths {
		if strings.ContainsAny(f.Path, "\n\r") {
			return nil, &diagnostic.Error{Path: f.Path, Found: "found a line's end in the path", Needed: "a path of one line",
				Fix: "give the file another name"}
		}
	}
	if err := storage.Write(filepath.Join(c.folder, key), e.Text(), storage.Private); err != nil {
		return nil, c.cannot(err)
	}
	return e, nil
}

// write writes a graph that refers to weights in the model's files.
func (e *Entry) write(a *patch.Analysis, path string) error {
	s, err := patch.Serialize(a.Model, a.Model.Proto(), true, true, shared.Never)
	if err != nil {
		return err
	}
	e.Folder = s.Folder
	return storage.Write(path, s.Model, storage.Private)
}

func (c *Cache) cannot(err error) error {
	return &diagnostic.Error{Path: c.folder, Found: "cannot store a graph: " + diagnostic.Cause(err),
		Needed: "a folder that can be written", Fix: "set XDG_CACHE_HOME to one", Cause: err}
}

// Text is the entry as it is stored.
func (e *Entry) Text() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\nreplaced %d\nblocks %d\n", first, e.Replaced, e.Blocks)
	line := func(what, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s %s\n", what, value)
		}
	}
	if e.Graph.Path != "" {
		line("graph", e.Graph.SHA256+" "+e.Graph.Path)
	}
	line("left", strings.Join(strings.Fields(e.Left), " "))
	line("folder", e.Folder)
	for _, l := range e.Libraries {
		line("library", l.SHA256+" "+l.Path)
	}
	for _, f := range e.Files {
		line("file", fmt.Sprintf("%d %d %d %d %d %s %s", f.Size, f.Modified, f.Changed, f.Device, f.Inode,
			cmp.Or(f.SHA256, "-"), f.Path))
	}
	return b.Bytes()
}

// Parse reads a text of Entry.Text.
func Parse(text []byte) (*Entry, error) {
	lines := slices.Collect(strings.Lines(string(text)))
	if len(lines) == 0 || lines[0] != first+"\n" {
		return nil, fmt.Errorf("found no line %q first", first)
	}
	e := &Entry{}
	for _, line := range lines[1:] {
		what, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		var err error
		switch what {
		case "replaced":
			e.Replaced, err = strconv.Atoi(value)
		case "blocks":
			e.Blocks, err = strconv.Atoi(value)
		case "graph":
			e.Graph, err = hashed(value)
		case "left":
			e.Left = value
		case "folder":
			e.Folder = value
		case "library":
			var l Hashed
			l, err = hashed(value)
			e.Libraries = append(e.Libraries, l)
		case "file":
			var f File
			_, err = fmt.Sscanf(value, "%d %d %d %d %d %s", &f.Size, &f.Modified, &f.Changed, &f.Device, &f.Inode, &f.SHA256)
			if f.SHA256 == "-" {
				f.SHA256 = ""
			}
			if parts := strings.SplitN(value, " ", 7); err == nil && len(parts) == 7 {
				f.Path = parts[6]
			} else if err == nil {
				err = errors.New("found no path")
			}
			e.Files = append(e.Files, f)
		}
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
	}
	return e, nil
}

func hashed(value string) (Hashed, error) {
	sum, path, ok := strings.Cut(value, " ")
	if !ok || len(sum) != 2*sha256.Size {
		return Hashed{}, errors.New("found no SHA-256 and path")
	}
	return Hashed{sum, path}, nil
}

// Holds reports whether all files are as they were.
func (e *Entry) Holds() bool {
	for _, f := range e.Files {
		info, err := os.Stat(f.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if f.Size != -1 {
				return false
			}
		case err != nil || model.IdentityOf(info) != f.Identity:
			return false
		case f.SHA256 != "":
			if now, err := hash(f.Path); err != nil || now != f.SHA256 {
				return false
			}
		}
	}
	return true
}

// sweep removes what nobody read for long.
func (c *Cache) sweep() {
	storage.Sweep(c.folder)
	entries, err := os.ReadDir(c.folder)
	if err != nil {
		return
	}
	used := func(name string) bool { // an entry is touched when it is used, and what belongs to it is not
		info, err := os.Stat(filepath.Join(c.folder, name))
		return err == nil && time.Since(info.ModTime()) < unused
	}
	for _, x := range entries {
		info, err := x.Info()
		if name, _, _ := strings.Cut(x.Name(), "."); err != nil || !IsKey(name) || !info.Mode().IsRegular() ||
			time.Since(info.ModTime()) < unused || used(name) {
			continue
		}
		os.Remove(filepath.Join(c.folder, x.Name()))
	}
}
