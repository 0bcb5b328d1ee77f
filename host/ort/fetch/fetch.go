// Package fetch brings the pinned ONNX Runtime into the user's cache.
//
// The library comes from a package that ONNX Runtime's own project publishes, through the
// ordinary client of the registry (npm, or pip where npm is missing), so mirrors, proxies and
// credentials that the machine is set up with keep working. Nothing from the package is executed.
// The archive and the library in it are checked against digests in this source before the library
// is moved into place; several processes may fetch at once, and an interrupted fetch leaves
// nothing that looks finished.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
)

// Version is the release of ONNX Runtime that is fetched.
const Version = "1.30.0"

// LibraryName is the library's file name in the cache.
const LibraryName = "libonnxruntime.so.1"

// Dir is the folder of the cache that holds the library for this machine:
// $XDG_CACHE_HOME/graft/onnxruntime/VERSION/OS-ARCH.
func Dir() (string, error) {
	cache, err := storage.CacheFolder()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "onnxruntime", Version, runtime.GOOS+"-"+runtime.GOARCH), nil
}

// Runtime makes sure that the cache holds the library and returns its path. report, if not nil,
// is told what is being done, one line at a time. Ending ctx stops the client and cleans up.
func Runtime(ctx context.Context, report func(string)) (string, error) {
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	sources, err := pinned(runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return "", err
	}
	if report == nil {
		report = func(string) {}
	}
	return fetcher{dir: dir, sources: sources, report: report}.run(ctx)
}

// A fetcher is one fetch into one folder.
type fetcher struct {
	dir     string
	sources []source
	report  func(string)
}

func (f fetcher) run(ctx context.Context) (string, error) {
	path := filepath.Join(f.dir, LibraryName)
	if f.verified(path) {
		return path, nil
	}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return "", f.unwritable(err)
	}
	lock, err := storage.Lock(ctx, filepath.Join(f.dir, ".lock"), func() {
		f.report("another process is fetching ONNX Runtime, waiting for it")
	})
	if err != nil {
		if ctx.Err() != nil {
			return "", err
		}
		return "", f.unwritable(err)
	}
	defer lock.Close()
	if f.verified(path) { // by who held the lock before
		return path, nil
	}
	f.sweep()
	var failures []error
	for _, s := range f.sources {
		err := f.from(ctx, s, path)
		if err == nil {
			f.report("ONNX Runtime " + Version + " is at " + path)
			return path, nil
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("fetching ONNX Runtime %s: %w", Version, ctx.Err())
		}
		failures = append(failures, fmt.Errorf("%s: %w", s.client.name, err))
	}
	err = errors.Join(failures...)
	return "", &diagnostic.Error{Found: "cannot fetch ONNX Runtime " + Version + ":\n" + err.Error(), Cause: err,
		Fix: "make npm or pip work, or set GRAFT_ONNXRUNTIME to a libonnxruntime of your own"}
}

// from fetches from one source into a working folder beside the destination and moves the
// library over: a rename within one filesystem is seen entirely or not at all.
func (f fetcher) from(ctx context.Context, s source, path string) (err error) {
	work, err := os.MkdirTemp(f.dir, workPrefix)
	if err != nil {
		return f.unwritable(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()

	if err := s.download(ctx, work, f.report); err != nil {
		return err
	}
	archive, err := s.archive(work)
	if err != nil {
		return err
	}
	if err := s.digest.check(ctx, archive); err != nil {
		return err
	}
	library := filepath.Join(work, LibraryName)
	if err := s.extract(ctx, archive, s.member, library); err != nil {
		return fmt.Errorf("unpacking %s: %w", filepath.Base(archive), err)
	}
	if err := s.library.check(ctx, library); err != nil {
		return err
	}
	if err := os.Rename(library, path); err != nil {
		return err
	}
	return storage.SyncFolder(f.dir)
}

// verified reports whether the file is the library of one of the sources.
func (f fetcher) verified(path string) bool {
	for _, s := range f.sources {
		if s.library.check(context.Background(), path) == nil {
			return true
		}
	}
	return false
}

const workPrefix = ".fetch-"

// sweep removes working folders of processes that were killed. The lock is held: nobody works.
func (f fetcher) sweep() {
	entries, _ := os.ReadDir(f.dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), workPrefix) {
			_ = os.RemoveAll(filepath.Join(f.dir, e.Name()))
		}
	}
}

func (f fetcher) unwritable(err error) error {
	return &diagnostic.Error{Path: f.dir, Found: "cannot write: " + diagnostic.Cause(err),
		Needed: "a cache folder that can be written", Fix: "set XDG_CACHE_HOME to one", Cause: err}
}
