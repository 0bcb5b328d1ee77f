package fold

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Tensor is one of a result's, of any element type. Its data lie outside Go's heap.
type Tensor struct {
	Name  string
	DType tensor.DType
	Shape []int64
	Data  []byte // row-major, in the machine's byte order
}

// maxQuantized is how many bytes of quantised weights are stored at most.
const maxQuantized = 32 << 30

// UserQuantized is the cache of quantised weights in the user's cache folder, graft/weights in it. Beyond 32 GiB the
// files that were read longest ago are removed.
func UserQuantized(logger *slog.Logger) *Cache {
	c := User(logger)
	c.folder, c.limit = filepath.Join(filepath.Dir(c.folder), "weights"), maxQuantized
	c.broken = "stored weights are damaged and are quantised anew"
	c.barred = "quantised weights cannot be stored and are computed for every session"
	return c
}

// KeyOf names tensors by all that they depend on: no two lists of parts have one name.
func KeyOf(parts ...string) string {
	k := &keyHash{Hash: sha256.New()}
	k.text(version + " tensors")
	for _, p := range parts {
		k.text(p)
	}
	return hex.EncodeToString(k.Sum(nil))
}

// Tensors gives those of a list, of which names, types and shapes count, from the file that key names; or it lets
// fill make their data and stores them. found says that they were there. A file that holds something else under the
// key is damaged. A folder that cannot be read or written costs time, never the result.
func (c *Cache) Tensors(key string, list []Tensor, fill func([]Tensor) error) (r *Result, found bool, err error) {
	defer c.enter(key)()
	layout, size, err := lay(list)
	if err != nil {
		return nil, false, err
	}
	if r := c.load(key); r != nil {
		if slices.EqualFunc(r.layout, layout, stored.equal) {
			c.used(key)
			return r, true, nil
		}
		_ = r.Close() // nothing can be done about a mapping that stays
		c.remove(key, damaged("it holds other tensors"))
	}
	r = &Result{layout: layout}
	if r.data, err = memory.Reserve(max(size, alignment)); err != nil {
		return nil, false, err
	}
	if err := fill(r.Tensors()); err != nil {
		_ = r.Close()
		return nil, false, err
	}
	c.store(key, r)
	return r, false, nil
}

// Tensors are all of a result, valid until Close.
func (r *Result) Tensors() []Tensor {
	list := make([]Tensor, len(r.layout))
	for i, s := range r.layout {
		size := s.Size * count(s.Shape)
		list[i] = Tensor{s.Name, tensor.DType(s.Type), s.Shape, r.data.Bytes()[s.Offset : s.Offset+size : s.Offset+size]}
	}
	return list
}

// lay puts tensors one after the other.
func lay(list []Tensor) (layout []stored, size int64, err error) {
	for _, t := range list {
		n, err := tensor.Elements(t.Shape)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", t.Name, err)
		}
		s := stored{Name: t.Name, Shape: slices.Clone(t.Shape), Offset: size, Size: t.DType.Size(), Type: string(t.DType)}
		if s.Size == 0 {
			return nil, 0, fmt.Errorf("%s: found the element type %q, needed one of %s", t.Name, t.DType,
				strings.Join(tensor.TypeNames, ", "))
		}
		if n > (maxData-size)/s.Size {
			return nil, 0, fmt.Errorf("%s: found the shape %v, needed at most %d bytes in all", t.Name, t.Shape, int64(maxData))
		}
		layout, size = append(layout, s), aligned(size+n*s.Size)
	}
	return layout, size, nil
}

func (s stored) equal(o stored) bool {
	return s.Name == o.Name && slices.Equal(s.Shape, o.Shape) && s.Offset == o.Offset && s.Size == o.Size &&
		s.Type == o.Type && s.Integer == o.Integer
}

// used notes that a file was read.
func (c *Cache) used(key string) {
	if c.limit > 0 {
		now := time.Now()
		_ = os.Chtimes(c.path(key), now, now) // it is removed earlier than others otherwise
	}
}

// trim removes the files that were read longest ago, but for one, while there is more than may be stored.
func (c *Cache) trim(but string) {
	entries, err := os.ReadDir(c.folder)
	if c.limit == 0 || err != nil {
		return
	}
	total := int64(0)
	var files []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && strings.HasSuffix(e.Name(), suffix) {
			total += info.Size()
			if e.Name() != but+suffix {
				files = append(files, info)
			}
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, f := range files {
		if total <= c.limit {
			return
		}
		if err := os.Remove(filepath.Join(c.folder, f.Name())); err == nil {
			total -= f.Size()
		}
	}
}
