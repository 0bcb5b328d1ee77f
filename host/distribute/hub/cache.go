package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
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
	return &cache{root, "models--" + strings.ReplaceAll(repository, "/", "--"),
		"set HF_HUB_CACHE to a folder that can be written, or name one: --to DIR"}
}

func (c *cache) at(parts ...string) string {
	return filepath.Join(append([]string{c.root, c.name}, parts...)...)
}

func (c *cache) blob(hash string) string { return c.at("blobs", hash) }

func (c *cache) snapshot(commit string) string { return c.at("snapshots", commit) }

func (c *cache) pointer(commit, path string) string {
	return filepath.Join(c.snapshot(commit), filepath.FromSlash(path))
}

// folder makes a folder in the cache. A link in the place of one is not followed out of it: the cache may be a link,
// but what lies in it is where others expect it.
func (c *cache) folder(path string) error {
	if err := os.MkdirAll(c.root, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(c.root)
	if err != nil {
		return err
	}
	defer root.Close()
	below, err := filepath.Rel(c.root, path)
	if err == nil {
		err = root.MkdirAll(below, 0o755)
	}
	if err == nil {
		_, err = root.Stat(below)
	}
	if err != nil && strings.HasSuffix(err.Error(), "path escapes from parent") { // of package os, without a name there
		return fmt.Errorf("a link in %s leads out of it", c.root)
	}
	return err
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
func (c *cache) refer(ctx context.Context, revision, commit string) error {
	if revision == commit {
		return nil
	}
	path := c.at("refs", filepath.FromSlash(revision))
	if data, err := storage.ReadRegular(path, 1<<10); err == nil && string(data) == commit {
		return nil
	}
	err := c.replace(ctx, path, func(beside string) error {
		f, err := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o666)
		if err != nil {
			return err
		}
		_, err = f.WriteString(commit)
		if err == nil {
			err = storage.Sync(f)
		}
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return c.cannot(ctx, path, err)
	}
	return nil
}

// replace puts what is made under another name in a path's place, in one step. The name is not in the repository's
// folder, which others read, and always the same: the next run overwrites what a killed one left.
func (c *cache) replace(ctx context.Context, path string, create func(beside string) error) error {
	if err := c.folder(filepath.Dir(path)); err != nil {
		return err
	}
	held, err := c.lock(ctx, "names", nil)
	if err != nil {
		return err
	}
	defer held.Close()
	beside := filepath.Join(c.locks(), "name"+unfinished)
	if err := os.Remove(beside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := create(beside); err != nil {
		os.Remove(beside)
		return err
	}
	if err := os.Rename(beside, path); err != nil {
		os.Remove(beside)
		return err
	}
	return storage.SyncFolder(filepath.Dir(path))
}

// cannot is an error of the cache.
func (c *cache) cannot(ctx context.Context, path string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return local(path, err, c.fixed)
}

// link puts a blob into a snapshot.
func (c *cache) link(ctx context.Context, commit, path, hash string) error {
	up := strings.Repeat("../", strings.Count(path, "/")+2)
	at := c.pointer(commit, path)
	err := c.symlink(ctx, up+"blobs/"+hash, at)
	// a file system without links
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSYS) {
		err = copyFile(c.blob(hash), at)
	}
	if err != nil {
		return c.cannot(ctx, at, err)
	}
	return nil
}

// symlink makes a link, or puts it in the place of another file.
func (c *cache) symlink(ctx context.Context, target, at string) error {
	if old, err := os.Readlink(at); err == nil && old == target {
		return nil
	}
	if err := c.folder(filepath.Dir(at)); err != nil {
		return err
	}
	err := os.Symlink(target, at)
	if errors.Is(err, fs.ErrExist) {
		if old, err := os.Readlink(at); err == nil && old == target { // by another process
			return nil
		}
		return c.replace(ctx, at, func(beside string) error { return os.Symlink(target, beside) })
	}
	if err != nil {
		return err
	}
	return storage.SyncFolder(filepath.Dir(at))
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

// lock takes one of the repository's locks.
func (c *cache) lock(ctx context.Context, name string, waiting func()) (*os.File, error) {
	if err := c.folder(c.locks()); err != nil {
		return nil, err
	}
	return lock(ctx, filepath.Join(c.locks(), name+".lock"), waiting)
}

// lock takes a lock that Hugging Face's library takes too. A lock's file may be removed by who cleans up: only one
// that still has its name counts.
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

// view makes a folder of links to a snapshot, by the names under which programs look for files. links are the names
// in it, with the paths in the snapshot.
func (c *cache) view(ctx context.Context, commit, name string, links map[string]string) (string, error) {
	folder := c.at("graft", commit, name)
	for as, path := range links {
		up := strings.Repeat("../", strings.Count(as, "/")+3)
		if err := c.symlink(ctx, up+"snapshots/"+commit+"/"+path, filepath.Join(folder, filepath.FromSlash(as))); err != nil {
			return "", c.cannot(ctx, folder, err)
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
