package fold

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/internal/must"
)

// half is a plugin that halves its constants, counts its calls, and refuses negative
// ones.
type half struct{ calls atomic.Int64 }

func (h *half) source() source { return source{"/plugins/half.so", "5ca1ab1e", h.fold} }

func (h *half) fold(operator string, constants []tensor.Weight, _ []manifest.Attribute) ([]tensor.Weight, error) {
	h.calls.Add(1)
	var out []tensor.Weight
	for _, w := range constants {
		if w.Ints != nil {
			out = append(out, tensor.Weight{Name: w.Name, Shape: w.Shape, Ints: w.Ints})
			continue
		}
		halved := tensor.Weight{Name: w.Name, Shape: w.Shape, Floats: []float64{}}
		for _, x := range w.Floats {
			if x < 0 {
				return nil, &diagnostic.Error{Kind: refusal.ErrFold, Path: "/plugins/half.so",
					Found: fmt.Sprintf("fold of %s failed: %v is negative (refused)", operator, x)}
			}
			if math.IsNaN(x) {
				return nil, &diagnostic.Error{Kind: refusal.ErrKernel, Path: "/plugins/half.so", Found: "no number"}
			}
			halved.Floats = append(halved.Floats, x/2)
		}
		out = append(out, halved)
	}
	return out, nil
}

func constants(seed int) []tensor.Weight {
	a := tensor.Weight{Name: "a", Shape: []int64{3, 5}}
	for i := range 15 {
		a.Floats = append(a.Floats, float64(seed*100+i))
	}
	return []tensor.Weight{a, {Name: "b", Shape: []int64{}, Floats: []float64{0.1}},
		{Name: "none", Shape: []int64{0, 2}, Floats: []float64{}}}
}

// want is what constants fold to.
func want(seed int) map[string][]float32 {
	m := map[string][]float32{"b": {0.05}, "none": {}}
	for i := range 15 {
		m["a"] = append(m["a"], float32(seed*100+i)/2)
	}
	return m
}

func check(t *testing.T, r *Result, err error, seed int) {
	t.Helper()
	if err != nil {
		t.Error(err)
		return
	}
	defer r.Close()
	got := map[string][]float32{}
	for _, w := range r.Weights() {
		got[w.Name] = w.Floats
		if w.Name == "a" && cmp.Diff([]int64{3, 5}, w.Shape) != "" {
			t.Errorf("a has the shape %v", w.Shape)
		}
	}
	must.Equal(t, cmp.Diff(want(seed), got), "")
}

// lines is a logger for tests and what it was told.
func lines() (*slog.Logger, func() []string) {
	var mutex sync.Mutex
	var all bytes.Buffer
	locked := writer(func(p []byte) (int, error) {
		mutex.Lock()
		defer mutex.Unlock()
		return all.Write(p)
	})
	return slog.New(slog.NewTextHandler(locked, nil)), func() []string {
		mutex.Lock()
		defer mutex.Unlock()
		return strings.Split(strings.TrimSuffix(all.String(), "\n"), "\n")
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func stored1(t *testing.T, c *Cache) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(c.folder, "*"+suffix))
	if err != nil || len(list) != 1 {
		t.Fatalf("found the files %v, %v; want one", list, err)
	}
	return list[0]
}

func TestGet(t *testing.T) {
	h := &half{}
	logger, said := lines()
	c := At(filepath.Join(t.TempDir(), "deep", "folder"), logger)
	for range 3 {
		r, err := c.get(h.source(), "Halve", constants(1), nil, float32s)
		check(t, r, err, 1)
	}
	must.Equal(t, h.calls.Load(), 1)
	// Another process finds it too.
	r, err := At(c.folder, logger).get(h.source(), "Halve", constants(1), nil, float32s)
	check(t, r, err, 1)
	must.Equal(t, h.calls.Load(), 1)
	if got := said(); got[0] != "" {
		t.Errorf("it said %q", got)
	}
	if list, _ := os.ReadDir(c.folder); len(list) != 1 {
		t.Errorf("the folder holds %v, want one file", list)
	}
}

func TestKey(t *testing.T) {
	type input struct {
		library, operator string
		constants         []tensor.Weight
		attributes        []manifest.Attribute
		as                elements
	}
	base := func() input {
		return input{"l", "O", []tensor.Weight{{Name: "a", Shape: []int64{2, 3}, Floats: []float64{1, 2, 3, 4, 5, 6}},
			{Name: "b", Shape: []int64{1}, Ints: []int64{7}}},
			[]manifest.Attribute{{Name: "x", Value: int64(1)}, {Name: "y", Value: "s"}}, float32s}
	}
	of := func(change func(*input)) string {
		i := base()
		change(&i)
		k := must.Value(key(i.library, i.operator, i.constants, i.attributes, i.as))(t)
		return k
	}
	same := of(func(*input) {})
	must.Equal(t, of(func(i *input) {
		i.constants[0], i.constants[1] = i.constants[1], i.constants[0]
		i.attributes[0], i.attributes[1] = i.attributes[1], i.attributes[0]
	}), same)
	must.Equal(t, of(func(i *input) { i.attributes[0].Value = 1 }), same)
	seen := map[string]string{same: "the base"}
	for name, change := range map[string]func(*input){
		"library":            func(i *input) { i.library = "m" },
		"operator":           func(i *input) { i.operator = "P" },
		"between the two":    func(i *input) { i.library, i.operator = "lO", "" },
		"name":               func(i *input) { i.constants[0].Name = "c" },
		"shape":              func(i *input) { i.constants[0].Shape = []int64{3, 2} },
		"rank":               func(i *input) { i.constants[0].Shape = []int64{6} },
		"number":             func(i *input) { i.constants[0].Floats[4] = math.Nextafter(5, 6) },
		"sign of zero":       func(i *input) { i.constants[0].Floats[4] = math.Copysign(0, -1) },
		"zero":               func(i *input) { i.constants[0].Floats[4] = 0 },
		"integer":            func(i *input) { i.constants[1].Ints[0] = 8 },
		"type":               func(i *input) { i.constants[1].Ints, i.constants[1].Floats = nil, []float64{7} },
		"fewer constants":    func(i *input) { i.constants = i.constants[:1] },
		"attribute":          func(i *input) { i.attributes[0].Value = int64(2) },
		"attribute's type":   func(i *input) { i.attributes[0].Value = 1.0 },
		"attribute's name":   func(i *input) { i.attributes[0].Name = "z" },
		"attribute's text":   func(i *input) { i.attributes[1].Value = "t" },
		"attribute's list":   func(i *input) { i.attributes[1].Value = []int64{1} },
		"attribute's floats": func(i *input) { i.attributes[1].Value = []float64{1} },
		"fewer attributes":   func(i *input) { i.attributes = i.attributes[:1] },
		"elements":           func(i *input) { i.as = float64s },
	} {
		k := of(change)
		if other, dup := seen[k]; dup {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[k] = name
	}
	if _, err := key("l", "O", nil, []manifest.Attribute{{Name: "x", Value: true}}, float32s); err == nil ||
		err.Error() != "fold of O: attribute x: found a value of type bool, needed int64, float64, string, []int64 or "+
			"[]float64" {
		t.Errorf("an attribute of another type: %v", err)
	}
}

// TestDamage truncates a file at every length and alters every byte of it.
func TestDamage(t *testing.T) {
	h := &half{}
	logger, said := lines()
	c := At(t.TempDir(), logger)
	r, err := c.get(h.source(), "Halve", constants(2), nil, float32s)
	check(t, r, err, 2)
	path := stored1(t, c)
	good := must.Value(os.ReadFile(path))(t)
	damage := func(what string, data []byte) {
		t.Helper()
		before, told := h.calls.Load(), len(said())
		must.Succeed(t, os.WriteFile(path, data, 0o644))
		r, err := c.get(h.source(), "Halve", constants(2), nil, float32s)
		check(t, r, err, 2)
		must.Equal(t, h.calls.Load(), before+1, what)
		if all := said(); told > 1 && len(all) != told+1 ||
			!strings.Contains(all[len(all)-1], "a stored fold is damaged and is computed anew") {
			t.Errorf("%s: it said %q", what, all[told:])
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, good) {
			t.Errorf("%s: the file was not written anew: %v", what, err)
		}
	}
	for n := range len(good) {
		damage(fmt.Sprintf("a file of %d of %d bytes", n, len(good)), good[:n])
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		damage(fmt.Sprintf("a file with byte %d changed", i), bad)
	}
	damage("a longer file", append(bytes.Clone(good), 0))
	damage("zeros", make([]byte, len(good)))
}

func TestRefusal(t *testing.T) {
	h := &half{}
	c := At(t.TempDir(), nil)
	bad := constants(3)
	bad[0].Floats[7] = -1
	const text = "/plugins/half.so: fold of Halve failed: -1 is negative (refused)"
	for i := range 3 {
		r, err := c.get(h.source(), "Halve", bad, nil, float32s)
		if r != nil || !errors.Is(err, refusal.ErrFold) || err.Error() != text {
			t.Errorf("call %d: %v, want %s", i, err, text)
		}
	}
	must.Equal(t, h.calls.Load(), 1)
	// A failure is not a refusal: the next call may succeed.
	bad[0].Floats[7] = math.NaN()
	for range 2 {
		must.Fail(t, must.Error(c.get(h.source(), "Halve", bad, nil, float32s)), refusal.ErrKernel)
	}
	must.Equal(t, h.calls.Load(), 3)
}

func TestIntegersNeedTheirOwnPrecision(t *testing.T) {
	h := &half{}
	c := At(t.TempDir(), nil)
	in := []tensor.Weight{{Name: "n", Shape: []int64{2}, Ints: []int64{1 << 62, -1}},
		{Name: "x", Shape: []int64{1}, Floats: []float64{1e-300}}}
	if _, err := c.get(h.source(), "Halve", in, nil, float32s); err == nil ||
		err.Error() != "/plugins/half.so: fold of Halve: found the integers n, needed real numbers" {
		t.Errorf("integers as float32: %v", err)
	}
	for range 2 {
		r := must.Value(c.get(h.source(), "Halve", in, nil, float64s))(t)
		in[1].Floats = []float64{1e-300}
		expect := []tensor.Weight{in[0], {Name: "x", Shape: []int64{1}, Floats: []float64{5e-301}}}
		must.Equal(t, cmp.Diff(expect, r.unpack()), "")
		r.Close()
	}
	must.Equal(t, h.calls.Load(), 2)
}

// TestUnusableFolder computes every time and says so once.
func TestUnusableFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o644))
	readOnly := t.TempDir()
	must.Succeed(t, os.Chmod(readOnly, 0o555))
	directory := t.TempDir()
	h := &half{}
	name := must.Value(key("5ca1ab1e", "Halve", constants(4), nil, float32s))(t)
	must.Succeed(t, os.MkdirAll(filepath.Join(directory, name+suffix, "x"), 0o755))
	for what, folder := range map[string]string{"beneath a file": filepath.Join(file, "folds"), "read-only": readOnly,
		"a folder in the file's place": directory, "no folder at all": ""} {
		t.Run(what, func(t *testing.T) {
			if what == "read-only" && os.Geteuid() == 0 {
				// Root writes wherever it likes; /proc it cannot.
				folder = "/proc/graft-folds"
			}
			logger, said := lines()
			c := At(folder, logger)
			if folder == "" {
				t.Setenv("HOME", "")
				t.Setenv("XDG_CACHE_HOME", "")
				c = User(logger)
			}
			before := h.calls.Load()
			for range 3 {
				r, err := c.get(h.source(), "Halve", constants(4), nil, float32s)
				check(t, r, err, 4)
			}
			must.Equal(t, h.calls.Load()-before, 3)
			if got := said(); len(got) != 1 ||
				!strings.Contains(got[0], "folded weights cannot be stored and are computed for every session") {
				t.Errorf("it said %q, want one line", got)
			}
		})
	}
}

// TestConcurrent has many goroutines, of caches that share a folder, ask for a few folds.
func TestConcurrent(t *testing.T) {
	h := &half{}
	folder := t.TempDir()
	var all sync.WaitGroup
	const caches, seeds = 4, 3
	for range caches {
		c := At(folder, nil)
		for i := range 24 {
			all.Go(func() {
				r, err := c.get(h.source(), "Halve", constants(i%seeds), nil, float32s)
				check(t, r, err, i%seeds)
			})
		}
	}
	all.Wait()
	if n := h.calls.Load(); n < seeds || n > caches*seeds {
		t.Errorf("%d folds, want at least %d and at most one a cache more", n, seeds)
	}
	list, err := os.ReadDir(folder)
	must.Succeed(t, err)
	must.Equal(t, len(list), seeds)
}
