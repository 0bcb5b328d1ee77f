// Package archive packs folders of plugins, unpacks archives of them, and copies folders, with nothing in them trusted.
package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// limits bound what an archive or a folder may bring. They are far above any real plugin.
type limits struct {
	files int   // files and folders together
	bytes int64 // of all files, unpacked
	ratio int64 // unpacked bytes for each packed one
	depth int   // folders in folders
}

var defaultLimits = limits{files: 1024, bytes: 4 << 30, ratio: 200, depth: 8}

// slack is what may be unpacked before the ratio counts: small files of zeros are no bomb.
const slack = 1 << 20

// intake writes files of an untrusted source below a folder. os.Root holds every write inside, whatever
// the names say; the checks before it are there for a clear message.
type intake struct {
	ctx    context.Context
	source string   // for messages
	root   *os.Root // nil: everything is read and checked, nothing is written
	limits limits
	packed func() int64 // packed bytes read so far; nil for a source that is not packed
	files  int
	bytes  int64
	seen   map[string]bool
	buffer []byte
}

func (in *intake) refuse(name, found, need string) error {
	return &diagnostic.Error{Kind: refusal.ErrArchive, Path: in.source,
		Found: fmt.Sprintf("found the entry %q, %s", diagnostic.Clip(name), found), Needed: need,
		Fix: "do not install it; ask its author for a plain archive of the plugin's folder"}
}

// name checks an entry's name and gives its clean form; "" is the top folder itself.
func (in *intake) name(raw string) (string, error) {
	name := strings.TrimPrefix(strings.TrimSuffix(raw, "/"), "./")
	switch {
	case raw == "" || len(raw) > 1024 || strings.ContainsAny(raw, "\\\x00"):
		return "", in.refuse(raw, "whose name is empty, too long or has a backslash", "a plain path")
	case diagnostic.Printable(raw) != raw:
		return "", in.refuse(raw, "whose name has characters that cannot be seen", "a plain path")
	case path.IsAbs(raw):
		return "", in.refuse(raw, "an absolute path", "paths inside the plugin's folder")
	case name == "." || name == "":
		return "", nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." || part == "." || part == "" {
			return "", in.refuse(raw, "which leaves the folder or is not in plain form", "paths inside the plugin's folder")
		}
	}
	if strings.Count(name, "/") > in.limits.depth {
		return "", in.refuse(raw, "nested too deep", fmt.Sprintf("at most %d folders", in.limits.depth))
	}
	return name, nil
}

// count accounts for one more entry.
func (in *intake) count(name string) error {
	if err := in.ctx.Err(); err != nil {
		return err
	}
	if in.files++; in.files > in.limits.files {
		return &diagnostic.Error{Kind: refusal.ErrArchive, Path: in.source,
			Found: fmt.Sprintf("found more than %d entries", in.limits.files), Needed: "fewer",
			Fix: "leave out what the plugin does not need"}
	}
	if in.seen[name] {
		return in.refuse(name, "twice", "every name once")
	}
	in.seen[name] = true
	return nil
}

// folder makes a folder.
func (in *intake) folder(raw string) error {
	name, err := in.name(raw)
	if err != nil || name == "" {
		return err
	}
	if err := in.count(name + "/"); err != nil || in.root == nil {
		return err
	}
	return in.stored(name, in.root.MkdirAll(name, 0o755))
}

// file copies one file, on the disk when it is done. size is what the source says that it has, in bytes.
func (in *intake) file(raw string, size uint64, content io.Reader) error {
	name, err := in.name(raw)
	if err != nil {
		return err
	}
	if name == "" {
		return in.refuse(raw, "a file without a name", "a plain path")
	}
	if err := in.count(name); err != nil {
		return err
	}
	if size > uint64(in.limits.bytes) || in.bytes+int64(size) > in.limits.bytes {
		return in.tooLarge()
	}
	if in.root == nil {
		return in.copy(io.Discard, content, raw)
	}
	if err := in.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return in.stored(name, err)
	}
	f, err := in.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return in.stored(name, err)
	}
	if err := in.copy(f, content, raw); err != nil {
		f.Close()
		return err
	}
	return in.stored(name, errors.Join(storage.Sync(f), f.Close()))
}

func (in *intake) tooLarge() error {
	return &diagnostic.Error{Kind: refusal.ErrArchive, Path: in.source,
		Found: fmt.Sprintf("found more than %d bytes of files", in.limits.bytes), Needed: "at most that",
		Fix: "leave out what the plugin does not need"}
}

// copy copies in pieces, so that limits and a cancelled context stop it soon.
func (in *intake) copy(f io.Writer, content io.Reader, name string) error {
	if in.buffer == nil {
		in.buffer = make([]byte, 256<<10)
	}
	for {
		if err := in.ctx.Err(); err != nil {
			return err
		}
		n, err := content.Read(in.buffer)
		in.bytes += int64(n)
		if in.bytes > in.limits.bytes {
			return in.tooLarge()
		}
		if in.packed != nil && in.bytes > slack && in.bytes/in.limits.ratio > in.packed() {
			return in.refuse(name, fmt.Sprintf("unpacking to more than %d times its size", in.limits.ratio), "an honest archive")
		}
		if n > 0 {
			if _, err := f.Write(in.buffer[:n]); err != nil {
				return in.stored(name, err)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return in.damaged(err)
		}
	}
}

// stored words an error of the file system that takes the files.
func (in *intake) stored(name string, err error) error {
	if err == nil {
		return nil
	}
	return &diagnostic.Error{Kind: refusal.ErrStore, Path: path.Join(in.root.Name(), name),
		Found: "cannot write: " + diagnostic.Cause(err), Fix: "free the disk, or make the folder writable", Cause: err}
}

// damaged words an error of the source.
func (in *intake) damaged(err error) error {
	var already *diagnostic.Error
	if errors.As(err, &already) || in.ctx.Err() != nil {
		return err
	}
	return &diagnostic.Error{Kind: refusal.ErrArchive, Path: in.source, Found: "found a damaged archive: " + err.Error(),
		Needed: "a complete one", Fix: "download it again", Cause: err}
}

// Is reports whether a file's name is that of an archive which unpack reads.
func Is(name string) bool {
	name = strings.ToLower(name)
	for _, suffix := range []string{".tar.gz", ".tgz", ".tar"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// Copy copies the files of a plugin's folder below an empty one. Links are followed while they stay
// inside; hidden files are left out.
func Copy(ctx context.Context, source, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return &diagnostic.Error{Kind: refusal.ErrStore, Path: folder, Found: diagnostic.Cause(err), Cause: err}
	}
	defer root.Close()
	in := &intake{ctx: ctx, source: source, root: root, limits: defaultLimits, seen: map[string]bool{}}
	return cmp.Or(walk(source, in.folder, in.file), in.settle())
}

// walk calls a function with each folder of a plugin's folder and another with each file, in the order of their
// names, as Copy takes them.
func walk(source string, folder func(name string) error,
	file func(name string, size uint64, content io.Reader) error) error {
	from, err := os.OpenRoot(source)
	if err != nil {
		return &diagnostic.Error{Kind: refusal.ErrNotFound, Path: source, Found: "cannot read: " + diagnostic.Cause(err),
			Cause: err}
	}
	defer from.Close()
	return fs.WalkDir(from.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return &diagnostic.Error{Kind: refusal.ErrStore, Path: path.Join(source, name),
				Found: "cannot read: " + diagnostic.Cause(err), Cause: err}
		}
		if name != "." && strings.HasPrefix(entry.Name(), ".") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if entry.IsDir() {
			return folder(name)
		}
		info, err := from.Stat(name)
		if err != nil {
			return &diagnostic.Error{Kind: refusal.ErrArchive, Path: path.Join(source, name),
				Found: "cannot follow the link: " + diagnostic.Cause(err), Needed: "links that stay inside the folder",
				Fix: "replace it by the file", Cause: err}
		}
		if !info.Mode().IsRegular() {
			return &diagnostic.Error{Kind: refusal.ErrArchive, Path: path.Join(source, name),
				Found: "found a " + storage.Kind(info.Mode()), Needed: "plain files and folders", Fix: "remove it from the folder"}
		}
		f, err := from.Open(name)
		if err != nil {
			return &diagnostic.Error{Kind: refusal.ErrStore, Path: path.Join(source, name),
				Found: "cannot read: " + diagnostic.Cause(err), Cause: err}
		}
		defer f.Close()
		return file(name, uint64(info.Size()), f)
	})
}

// settle brings the names in all folders to the disk.
func (in *intake) settle() error {
	return fs.WalkDir(in.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return in.stored(name, err)
		}
		d, err := in.root.Open(name)
		if err != nil {
			return in.stored(name, err)
		}
		return in.stored(name, errors.Join(storage.Sync(d), d.Close()))
	})
}
