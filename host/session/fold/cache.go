// Package fold stores what plugins compute from a model's weights. A fold depends on
// nothing but the plugin's library and what goes in, so its result is stored in a
// file named by their hash, and a later session reads it instead of computing it.
// Refusals are stored as well: finding out that a layer cannot be folded takes as long
// as folding it.
package fold

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Cache is a folder of results. Its methods are safe from several goroutines, and
// several processes may share the folder.
type Cache struct {
	folder string
	broken string // the message of a damaged file
	barred string // that of a folder that cannot be used
	limit  int64  // of bytes; 0: none
	why    error  // that there is no folder
	logger *slog.Logger
	warned sync.Once
	swept  sync.Once

	mutex sync.Mutex
	busy  map[string]chan struct{} // keys in flight
}

// At is the cache in a folder, which is made when something is stored. logger is
// told once when the folder cannot be used, and of every damaged file; nil is
// slog.Default.
func At(folder string, logger *slog.Logger) *Cache {
	if logger == nil {
		logger = slog.Default()
	}
	return &Cache{folder: folder, broken: "a stored fold is damaged and is computed anew",
		barred: "folded weights cannot be stored and are computed for every session", logger: diagnostic.Logger(logger),
		busy: map[string]chan struct{}{}}
}

// User is the cache in the user's cache folder, graft/folds in it.
func User(logger *slog.Logger) *Cache {
	base, err := storage.CacheFolder()
	c := At(filepath.Join(base, "folds"), logger)
	if err != nil {
		c.why = err
	}
	return c
}

// Get gives what the plugin's fold makes of the constants, as float32: from the cache,
// or by computing and storing it. A fold that the plugin refuses is an *diagnostic.Error of
// kind refusal.ErrFold, also when the refusal comes from the cache. A folder that
// cannot be read or written costs time, never the result.
func (c *Cache) Get(p *plugin.Plugin, operator string, constants []tensor.Weight,
	attributes []manifest.Attribute) (*Result, error) {
	return c.get(from(p), operator, constants, attributes, float32s)
}

// source is who computes.
type source struct {
	path, hash string
	fold       func(operator string, constants []tensor.Weight, attributes []manifest.Attribute) ([]tensor.Weight, error)
}

func from(p *plugin.Plugin) source { return source{p.Path, p.SHA256, p.Fold} }

func (c *Cache) get(s source, operator string, constants []tensor.Weight, attributes []manifest.Attribute,
	as elements) (*Result, error) {
	name, err := key(s.hash, operator, constants, attributes, as)
	if err != nil {
		return nil, err
	}
	defer c.enter(name)()
	if r := c.load(name); r != nil {
		return r.orRefusal(s, operator)
	}
	computed, err := s.fold(operator, constants, attributes)
	var refused *diagnostic.Error
	switch {
	case errors.As(err, &refused) && errors.Is(refused.Kind, refusal.ErrFold):
		c.store(name, &Result{refusal: refused.Found})
		return nil, err
	case err != nil:
		return nil, err
	}
	r, err := pack(computed, as)
	if err != nil {
		return nil, fmt.Errorf("%s: fold of %s: %w", s.path, operator, err)
	}
	c.store(name, r)
	return r, nil
}

// orRefusal makes the error of a refusal again.
func (r *Result) orRefusal(s source, operator string) (*Result, error) {
	if r.refusal == "" {
		return r, nil
	}
	return nil, &diagnostic.Error{Kind: refusal.ErrFold, Path: s.path, Found: r.refusal}
}

// enter waits while another goroutine computes a key, so that it is computed
// once. It returns what ends one's own turn.
func (c *Cache) enter(name string) (leave func()) {
	for {
		c.mutex.Lock()
		other, taken := c.busy[name]
		if !taken {
			mine := make(chan struct{})
			c.busy[name] = mine
			c.mutex.Unlock()
			return func() {
				c.mutex.Lock()
				delete(c.busy, name)
				c.mutex.Unlock()
				close(mine)
			}
		}
		c.mutex.Unlock()
		<-other
	}
}

// suffix ends the names of files.
const suffix = ".fold"

func (c *Cache) path(name string) string { return filepath.Join(c.folder, name+suffix) }

// load reads a result; nil where there is none that is whole. What is not whole is
// removed.
func (c *Cache) load(name string) *Result {
	if c.why != nil {
		return nil
	}
	r, err := read(c.path(name))
	switch {
	case err == nil:
		return r
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, errDamaged):
		c.remove(name, err)
	default:
		c.unusable(err)
	}
	return nil
}

// remove removes a damaged file.
func (c *Cache) remove(name string, found error) {
	c.logger.Warn(c.broken, "file", c.path(name), "found", found)
	if err := os.Remove(c.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.unusable(err)
	}
}

// store stores a result. The file appears whole or not at all: it is written under
// another name, and others see it when it is renamed.
func (c *Cache) store(name string, r *Result) {
	if c.why != nil {
		c.unusable(c.why)
		return
	}
	if err := c.write(name, r); err != nil {
		c.unusable(err)
	}
}

func (c *Cache) write(name string, r *Result) error {
	if err := os.MkdirAll(c.folder, 0o700); err != nil {
		return err
	}
	c.swept.Do(func() { storage.Sweep(c.folder) })
	f, err := storage.Create(c.path(name), storage.Private)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err = r.write(f); err == nil {
		err = beforeRename(f.Name())
	}
	if err != nil {
		return err
	}
	if err := f.Commit(); err != nil {
		return err
	}
	c.trim(name)
	return nil
}

// beforeRename is where tests end a process.
var beforeRename = func(string) error { return nil }

// unusable says once that results are not stored.
func (c *Cache) unusable(err error) {
	c.warned.Do(func() {
		c.logger.Warn(c.barred, "folder", c.folder, "found", err)
	})
}
