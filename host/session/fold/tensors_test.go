package fold

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/internal/must"
)

// layout is what the tests store: elements of three sizes, and none.
func layout(rows int64) []Tensor {
	return []Tensor{
		{Name: "integers", DType: tensor.Int8, Shape: []int64{rows, 3, 5}},
		{Name: "scales", DType: tensor.Float32, Shape: []int64{rows, 3}},
		{Name: "halves", DType: tensor.Float16, Shape: []int64{7}},
		{Name: "none", DType: tensor.Uint8, Shape: []int64{0, 2}},
	}
}

// counter fills tensors with bytes that follow from a seed, and counts its calls.
type counter struct{ calls int }

func (c *counter) fill(seed int) func([]Tensor) error {
	return func(list []Tensor) error {
		c.calls++
		for i, t := range list {
			for k := range t.Data {
				t.Data[k] = byte(seed + 31*i + 7*k)
			}
		}
		return nil
	}
}

// same reports tensors that are not those of a seed.
func same(list, layout []Tensor, seed int) error {
	if len(list) != len(layout) {
		return fmt.Errorf("found %d tensors, want %d", len(list), len(layout))
	}
	for i, t := range list {
		n, _ := tensor.Elements(layout[i].Shape)
		if t.Name != layout[i].Name || t.DType != layout[i].DType || fmt.Sprint(t.Shape) != fmt.Sprint(layout[i].Shape) ||
			int64(len(t.Data)) != n*t.DType.Size() {
			return fmt.Errorf("found %s %s %v of %d bytes, want %s %s %v", t.Name, t.DType, t.Shape, len(t.Data), layout[i].Name,
				layout[i].DType, layout[i].Shape)
		}
		for k, b := range t.Data {
			if b != byte(seed+31*i+7*k) {
				return fmt.Errorf("byte %d of %s is %d, want %d", k, t.Name, b, byte(seed+31*i+7*k))
			}
		}
	}
	return nil
}

func TestTensors(t *testing.T) {
	c, made := At(t.TempDir(), nil), &counter{}
	for i := range 3 {
		r, found, err := c.Tensors(KeyOf("a"), layout(4), made.fill(5))
		must.Succeed(t, err)
		if err := same(r.Tensors(), layout(4), 5); err != nil || found != (i > 0) {
			t.Errorf("call %d: found %t, %v", i, found, err)
		}
		if list := r.Weights(); len(list) != 0 {
			t.Errorf("%d of them are weights that a plugin folded", len(list))
		}
		r.Close()
	}
	must.Equal(t, made.calls, 1)
	path := stored1(t, c)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v, %v; want one that only the user reads", info.Mode(), err)
	}
}

// Two lists of parts have two names, however they are cut.
func TestKeysOfTensors(t *testing.T) {
	seen := map[string][]string{}
	for _, parts := range [][]string{{}, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"b", "a"}, {"a", "b", ""}} {
		k := KeyOf(parts...)
		if other, taken := seen[k]; taken || len(k) != 64 {
			t.Errorf("%q and %q are both %s", parts, other, k)
		}
		seen[k] = parts
	}
}

// What is damaged, cut short, or holds other tensors is made anew, with a warning.
func TestDamagedTensors(t *testing.T) {
	for name, damage := range map[string]func(path string, data []byte) error{
		"a bit of the data": func(path string, data []byte) error {
			data[len(data)-100] ^= 1
			return os.WriteFile(path, data, 0o600)
		},
		"a bit of a shape": func(path string, data []byte) error {
			at := bytes.Index(data, []byte(`"shape":[4`))
			data[at+9] ^= 1
			return os.WriteFile(path, data, 0o600)
		},
		"its second half": func(path string, data []byte) error { return os.WriteFile(path, data[:len(data)/2], 0o600) },
		"all of it":       func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o600) },
		"other tensors": func(path string, _ []byte) error {
			other := At(filepath.Join(filepath.Dir(path), "other"), nil)
			r, _, err := other.Tensors(KeyOf("a"), layout(3), (&counter{}).fill(1))
			if err != nil {
				return err
			}
			r.Close()
			return os.Rename(other.path(KeyOf("a")), path)
		},
	} {
		logger, said := lines()
		c, made := At(t.TempDir(), logger), &counter{}
		r, _, err := c.Tensors(KeyOf("a"), layout(4), made.fill(9))
		must.Succeed(t, err)
		r.Close()
		path := stored1(t, c)
		data, err := os.ReadFile(path)
		if err == nil {
			err = damage(path, data)
		}
		must.Succeed(t, err, name)
		for i := range 2 {
			r, found, err := c.Tensors(KeyOf("a"), layout(4), made.fill(9))
			must.Succeed(t, err, name)
			if err := same(r.Tensors(), layout(4), 9); err != nil || found != (i > 0) {
				t.Errorf("%s, call %d after it: found %t, %v", name, i, found, err)
			}
			r.Close()
		}
		if all := said(); made.calls != 2 || len(all) != 1 || !strings.Contains(all[0], "damaged") {
			t.Errorf("%s: made %d times, said %q; want twice and one warning", name, made.calls, all)
		}
	}
}

func TestTensorsThatCannotBe(t *testing.T) {
	failed := errors.New("the plugin refused")
	for _, c := range []struct {
		name string
		list []Tensor
		fill func([]Tensor) error
		says string
	}{
		{"a type without a size", []Tensor{{Name: "a", DType: "int4", Shape: []int64{2}}}, nil,
			`a: found the element type "int4", needed one of `},
		{"a negative length", []Tensor{{Name: "a", DType: tensor.Int8, Shape: []int64{-1}}}, nil, "a: found shape [-1]"},
		{"more than a file may hold", []Tensor{{Name: "a", DType: tensor.Int8, Shape: []int64{1 << 41}}}, nil,
			"needed at most 1099511627776 bytes in all"},
		{"a fill that fails", layout(1), func([]Tensor) error { return failed }, failed.Error()},
	} {
		cache := At(t.TempDir(), nil)
		if r, _, err := cache.Tensors(KeyOf("a"), c.list, c.fill); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v; want an error that says %s", c.name, r, err, c.says)
		}
		if list, _ := os.ReadDir(cache.folder); len(list) != 0 {
			t.Errorf("%s: %d files are left", c.name, len(list))
		}
	}
}

// A folder that cannot be made costs time and a warning.
func TestTensorsWithoutAFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	logger, said := lines()
	c, made := At(filepath.Join(file, "weights"), logger), &counter{}
	for range 2 {
		r, found, err := c.Tensors(KeyOf("a"), layout(2), made.fill(3))
		must.Succeed(t, err)
		if err := same(r.Tensors(), layout(2), 3); err != nil || found {
			t.Errorf("found %t, %v", found, err)
		}
		r.Close()
	}
	if all := said(); len(all) != 1 || !strings.Contains(all[0], "cannot be stored") {
		t.Errorf("it said %q, want one warning", all)
	}
}

// Of what is more than may be stored, the files that were read longest ago go, and never the newest.
func TestLimitOfTensors(t *testing.T) {
	c, made := At(t.TempDir(), slog.New(slog.DiscardHandler)), &counter{}
	use := func(key string) bool {
		r, found, err := c.Tensors(KeyOf(key), layout(100), made.fill(1))
		must.Succeed(t, err)
		r.Close()
		return found
	}
	use("a")
	info := must.Value(os.Stat(c.path(KeyOf("a"))))(t)
	c.limit = 3*info.Size() + 10
	past := time.Now().Add(-time.Hour)
	for i, key := range []string{"a", "b", "c"} {
		use(key)
		must.Succeed(t, os.Chtimes(c.path(KeyOf(key)), past, past.Add(time.Duration(i)*time.Minute)))
	}
	use("a") // read again: b is the oldest now
	use("d")
	for key, want := range map[string]bool{"a": true, "b": false, "c": true, "d": true} {
		if _, err := os.Stat(c.path(KeyOf(key))); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", key, err == nil, want)
		}
	}
	c.limit = 1
	use("e")
	if list, _ := filepath.Glob(filepath.Join(c.folder, "*"+suffix)); len(list) != 1 || list[0] != c.path(KeyOf("e")) {
		t.Errorf("%v are left, want the newest alone", list)
	}
}

// Several caches over one folder, as several processes have, make and read the same tensors at once.
func TestTensorsAtOnce(t *testing.T) {
	folder := t.TempDir()
	var all sync.WaitGroup
	for range 4 {
		c, made := At(folder, nil), &counter{}
		all.Go(func() {
			for i := range 20 {
				key := KeyOf(fmt.Sprint(i % 5))
				r, _, err := c.Tensors(key, layout(50), made.fill(i%5))
				if err == nil {
					err = same(r.Tensors(), layout(50), i%5)
					r.Close()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	must.Equal(t, len(must.Value(os.ReadDir(folder))(t)), 5)
}
