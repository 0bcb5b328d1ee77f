package hub

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/opgraft/graft/host/diagnostic"
	"github.com/opgraft/graft/host/storage"
)

// cache is a repository's folder in Hugging Face's cache:
//
//	CACHE/models--ORG--NAME/blobs/HASH               a file's content
//	CACHE/models--ORG--NAME/refs/main                the commit of a branch
//	CACHE/models--ORG--NAME/snapshots/COMMIT/PATH    a relative link to a blob
//	CACHE/models--ORG--NAME/graft/COMMIT/VARIANT     links to a snapshot, by the names that programs look for
//	CACHE/.locks/models--ORG--NAME/HASH.lock         held while a blob is brought
type cache struct {
	root  string
	name  string
	fixed string // what to do where it cannot be written
}

func newCache(root, repository string) *cache {
	return &cache{root, "models--" + strings.ReplaceAll(repository, "/", "--"), "set HF_HUB_CACHE to a folder that can be written, or name one: --to DIR"}
}

func (c *cache) at(parts ...string) string {
	return filepath.Join(append([]string{c.root, c.name}, parts...)...)
}

func (c *cache) blob(hash string) string { return c.at("blobs", hash) }

func (c *cache) snapshot(commit string) string { return c.at("snapshots", commit) }

func (c *cache) pointer(commit, path string) string {
	return filepath.Join(c.snapshot(commit), filepath.FromSlash(path))
}

// locks is where locks and unfinished links lie: what is in the repository's folder, others read.
func (c *cache) locks() string { return filepath.Join(c.root, ".locks", c.name) }

// has says whether the content of a file is there. Its hash was checked when it got its name.
func (c *cache) has(f File) bool {
	info, err := os.Stat(c.blob(f.Hash))
	return err == nil && info.Mode().IsRegular() && info.Size() == f.Size
}

// part is how many bytes of an unfinished file are there.
func (c *cache) part(f File) int64 {
	info, err := os.Lstat(c.blob(f.Hash) + unfinished)
	if err != nil || !info.Mode().IsRegular() || info.Size() > f.Size {
		return 0
	}
	return info.Size()
}

// commit is that of a revision, as the cache knows it.
func (c *cache) commit(revision string) (string, error) {
	if commitPattern.MatchString(revision) {
		return revision, nil
	}
	data, err := storage.ReadRegular(c.at("refs", filepath.FromSlash(revision)), 1<<10)
	if err != nil {
		return "", err
	}
	commit := strings.TrimSpace(string(data))
	if !commitPattern.MatchString(commit) {
		return "", &diagnostic.Error{Found: "found no commit", Needed: "40 hexadecimal digits"}
	}
	return commit, nil
}

// refer records the commit of a revision.
func (c *cache) refer(revision, commit string) error {
	if revision == commit {
		return nil
	}
	path := c.at("refs", filepath.FromSlash(revision))
	if data, err := storage.ReadRegular(path, 1<<10); err == nil && string(data) == commit {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return local(path, err, c.fixed)
	}
	beside := storage.Beside(filepath.Join(c.locks(), "ref"))
	err := os.MkdirAll(c.locks(), 0o755)
	if err == nil {
		err = os.WriteFile(beside, []byte(commit), 0o644)
	}
	if err == nil {
		err = os.Rename(beside, path)
	}
	if err != nil {
		os.Remove(beside)
		return local(path, err, c.fixed)
	}
	return nil
}

// link puts a blob into a snapshot.
func (c *cache) link(commit, path, hash string) error {
	up := strings.Repeat("../", strings.Count(path, "/")+2)
	at := c.pointer(commit, path)
	err := symlink(c.locks(), up+"blobs/"+hash, at)
	if err != nil && !errors.Is(err, fs.ErrPermission) { // a file system without links
		err = copyFile(c.blob(hash), at)
	}
	if err != nil {
		return local(at, err, c.fixed)
	}
	return nil
}

// symlink makes a link, or puts it in the place of another file, in one step. temporary is a folder on the same file system.
func symlink(temporary, target, at string) error {
	if old, err := os.Readlink(at); err == nil && old == target {
		return nil
	}
	for _, folder := range []string{filepath.Dir(at), temporary} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	beside := storage.Beside(filepath.Join(temporary, "link"))
	if err := os.Symlink(target, beside); err != nil {
		return err
	}
	if err := os.Rename(beside, at); err != nil {
		os.Remove(beside)
		return err
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := storage.OpenRegular(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return storage.WriteFrom(to, storage.Shared, func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	})
}

// lock takes a lock that Hugging Face's library takes too. A lock's file may be removed by who cleans up: only one that still has
// its name counts.
func lock(ctx context.Context, path string, waiting func()) (*os.File, error) {
	for {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		f, err := storage.Lock(ctx, path, waiting)
		if err != nil {
			return nil, err
		}
		mine, err := f.Stat()
		if err == nil {
			var named fs.FileInfo
			if named, err = os.Lstat(path); err == nil && os.SameFile(mine, named) {
				return f, nil
			}
		}
		f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

// view makes a folder of links to a snapshot, by the names under which programs look for files. links are the names in it, with
// the paths in the snapshot.
func (c *cache) view(commit, name string, links map[string]string) (string, error) {
	folder := c.at("graft", commit, name)
	for as, path := range links {
		up := strings.Repeat("../", strings.Count(as, "/")+3)
		if err := symlink(c.locks(), up+"snapshots/"+commit+"/"+path, filepath.Join(folder, filepath.FromSlash(as))); err != nil {
			return "", local(folder, err, c.fixed)
		}
	}
	// Links of an earlier choice would be found first.
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink == 0 {
			return err
		}
		rel, err := filepath.Rel(folder, path)
		if _, ok := links[filepath.ToSlash(rel)]; err == nil && !ok {
			err = os.Remove(path)
		}
		return err
	})
	if err != nil {
		return "", local(folder, err, c.fixed)
	}
	return folder, nil
}
