package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
)

// apart is where a folder has what concerns its files: as Hugging Face's library has it in a local folder.
const apart = ".cache/huggingface/download"

// folder puts files into a folder of the user's. What lies there and was not brought is never replaced.
type folder struct {
	*job
	root *os.Root
	path string
}

func openFolder(j *job, to string) (*folder, error) {
	abs, err := filepath.Abs(to)
	if err != nil {
		return nil, err
	}
	f := &folder{job: j, path: abs}
	if !j.DryRun {
		if err = os.MkdirAll(abs, 0o755); err != nil {
			return nil, local(to, err, "name another folder")
		}
	}
	if f.root, err = os.OpenRoot(abs); j.DryRun && errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, local(to, err, "name another folder")
	}
	return f, nil
}

func (f *folder) close() {
	if f.root != nil {
		f.root.Close()
	}
}

// part is where a file is unfinished.
func (f *folder) part(file File, as string) string {
	name := sha256.Sum256([]byte(as))
	return path.Join(apart, path.Dir(as), hex.EncodeToString(name[:8])+"."+file.Hash+unfinished)
}

func (f *folder) record(as string) string { return path.Join(apart, as+".metadata") }

// recorded is the hash of a file that was brought and not changed since.
func (f *folder) recorded(as string) (hash string, ok bool) {
	data, err := f.root.ReadFile(f.record(as))
	if err != nil {
		return "", false
	}
	lines := strings.Split(string(data), "\n")
	info, err := f.root.Stat(as)
	if err != nil || len(lines) < 3 {
		return "", false
	}
	at, err := strconv.ParseFloat(strings.TrimSpace(lines[2]), 64)
	return lines[1], err == nil && float64(info.ModTime().UnixNano())/1e9 <= at+1
}

func (f *folder) has(file File, as string) (bool, int64) {
	if f.root == nil {
		return false, 0
	}
	if hash, ok := f.recorded(as); ok && hash == file.Hash && hash != "" {
		if info, err := f.root.Stat(as); err == nil && info.Size() == file.Size {
			return true, 0
		}
	}
	info, err := f.root.Stat(f.part(file, as))
	if err != nil || info.Size() > file.Size {
		return false, 0
	}
	return false, info.Size()
}

func (f *folder) put(ctx context.Context, file File, as string) error {
	if strings.HasPrefix(as, ".cache/") {
		return misused(f.path, "found the file "+diagnostic.Quote(as)+" in the repository, where the folder has its own",
			"other files", "bring it into the cache: without --to")
	}
	if whole, _ := f.has(file, as); whole {
		return nil
	}
	at := filepath.Join(f.path, filepath.FromSlash(as))
	for _, folder := range []string{path.Dir(as), path.Join(apart, path.Dir(as))} {
		if err := f.root.MkdirAll(folder, 0o755); err != nil {
			return local(at, err, "name another folder")
		}
	}
	if err := f.ignore(); err != nil {
		return err
	}
	held, err := lock(ctx, filepath.Join(f.path, apart, filepath.FromSlash(as)+".lock"), func() {
		f.o.Say("another process is bringing " + as + ", waiting for it")
	})
	if err != nil {
		return cmpErr(ctx.Err(), err)
	}
	defer held.Close()
	same, err := f.there(ctx, file, as)
	if err != nil {
		return err
	}
	if !same {
		if err := f.fill(ctx, file, as); err != nil {
			return err
		}
	} else {
		f.moved(file.Size)
	}
	text := fmt.Sprintf("%s\n%s\n%f\n", f.commit, file.Hash, float64(time.Now().UnixNano())/1e9)
	return f.write(f.record(as), text)
}

// write makes a small file of the folder's own. Half of one says nothing, and is written again.
func (f *folder) write(name, text string) error {
	at := filepath.Join(f.path, filepath.FromSlash(name))
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return local(at, err, "")
	}
	_, err = file.WriteString(text)
	if err == nil {
		err = storage.Sync(file)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return local(at, err, "")
	}
	return nil
}

// ignore hides the folder's own files from git.
func (f *folder) ignore() error {
	name := path.Join(path.Dir(apart), ".gitignore")
	if _, err := f.root.Stat(name); err == nil {
		return nil
	}
	return f.write(name, "*\n")
}

// there says whether a file with the right content stands in a file's place. One that others wrote is refused.
func (f *folder) there(ctx context.Context, file File, as string) (same bool, err error) {
	info, err := f.root.Lstat(as)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	at := filepath.Join(f.path, filepath.FromSlash(as))
	other := func(what string) (bool, error) {
		return false, &diagnostic.Error{Kind: ErrLocal, Path: at, Found: "found " + what,
			Needed: "none, or " + file.Path + " of " + f.Repository, Fix: "remove it, or name another folder"}
	}
	switch {
	case err != nil:
		return false, local(at, err, "name another folder")
	case !info.Mode().IsRegular():
		return other("a " + storage.Kind(info.Mode()))
	}
	if _, ours := f.recorded(as); ours && (info.Size() != file.Size || file.Hash == "") {
		return false, nil
	} else if info.Size() == file.Size && file.Hash != "" {
		in, err := f.root.Open(as)
		if err != nil {
			return false, local(at, err, "")
		}
		defer in.Close()
		digest := file.digest()
		if _, err := io.Copy(digest, storage.Until(ctx, in)); err != nil {
			return false, err
		}
		if hex.EncodeToString(digest.Sum(nil)) == file.Hash {
			return true, nil
		}
		if ours {
			return false, nil
		}
	}
	return other("another file")
}

// fill makes a file: of the cache's where that has it.
func (f *folder) fill(ctx context.Context, file File, as string) error {
	name := f.part(file, as)
	at := filepath.Join(f.path, filepath.FromSlash(name))
	from := ""
	if f.s.Offline {
		from = f.cache.pointer(f.commit, file.Path)
	} else if f.cache.has(file) {
		from = f.cache.blob(file.Hash)
	}
	var err error
	if from != "" {
		err = f.copy(ctx, from, name, file)
	} else {
		err = f.fetch(ctx, f.Reference, f.commit, file, at, f.moved)
	}
	if err != nil {
		return err
	}
	err = f.root.Rename(name, as)
	if to := filepath.Join(f.path, filepath.FromSlash(as)); err == nil {
		err = storage.SyncFolder(filepath.Dir(to))
	}
	if err != nil {
		return local(filepath.Join(f.path, as), err, "")
	}
	return nil
}

func (f *folder) copy(ctx context.Context, from, name string, file File) error {
	in, err := storage.OpenRegular(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return local(filepath.Join(f.path, name), err, "")
	}
	defer out.Close()
	digest := sha256.New()
	if file.Hash != "" {
		digest = file.digest()
	}
	n, err := io.Copy(io.MultiWriter(out, digest), storage.Until(ctx, in))
	if err == nil {
		err = storage.Sync(out)
	}
	if err != nil {
		return cmpErr(ctx.Err(), local(filepath.Join(f.path, name), err, ""))
	}
	f.moved(n)
	if found := hex.EncodeToString(digest.Sum(nil)); file.Hash != "" && found != file.Hash {
		return &diagnostic.Error{Kind: ErrContent, Path: from, Found: "found the hash " + found,
			Needed: file.Hash + ": the cache is damaged", Fix: "remove the file, and bring the model again"}
	}
	return nil
}

func (f *folder) open(_ File, as string) string { return filepath.Join(f.path, filepath.FromSlash(as)) }

func (f *folder) disk() string { return f.path }

func (f *folder) finish(context.Context) (string, error) { return f.path, nil }
