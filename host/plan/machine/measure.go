package machine

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/base/threads"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// rounds is how often each figure is taken, the three in turn.
const rounds = 11

// Positions of the attention that reads: a few requests of one row, of 8 heads of 64,
// 4 KiB a position.
const (
	readers       = 4
	readHeads     = 8
	readSize      = 64
	positionBytes = 4 * 2 * readHeads * readSize
)

// The matmul that computes: rows times depth times columns.
const (
	matmulRows    = 256
	matmulDepth   = 1024
	matmulColumns = 512
)

// measure takes the machine's figures: how fast attention reads keys and values that
// lie in memory, and that lie in the last cache, and how fast a matmul of many rows
// computes. Each is the median of several rounds in which all take turns, since
// machines have fast and slow spells.
func measure(plugins []*plugin.Plugin, attends, linear Operator, n int) (f Figures, spread float64, err error) {
	attention := named(plugins, attends.Plugin)
	cache := lastCache("/sys/devices/system/cpu/cpu0/cache")
	crew := threads.NewPool(n)
	defer crew.Close()
	inMemory, err := newReader(attention, attends.Name, min(max(4*cache, 64<<20), 256<<20), crew)
	if err != nil {
		return f, 0, err
	}
	defer inMemory.close()
	inCache, err := newReader(attention, attends.Name, max(cache/2, 1<<20), crew)
	if err != nil {
		return f, 0, err
	}
	defer inCache.close()
	matmul, err := newMatmul(named(plugins, linear.Plugin), linear.Name, crew)
	if err != nil {
		return f, 0, err
	}
	defer matmul.close()
	tasks := []func() (float64, error){inMemory.rate, inCache.rate, matmul.rate}
	rates := make([][]float64, len(tasks))
	for round := range rounds + 1 {
		for i, task := range tasks {
			if i == 1 { // what it reads has to be in the cache first
				if _, err := task(); err != nil {
					return f, 0, err
				}
			}
			r, err := task()
			if err != nil {
				return f, 0, err
			}
			if round > 0 {
				rates[i] = append(rates[i], r)
			}
		}
	}
	f = Figures{Bandwidth: upper(rates[0]), FLOPS: upper(rates[2])}
	if cache > 0 {
		f.LastCacheBandwidth, f.LastCacheBytes = max(upper(rates[1]), f.Bandwidth), float64(cache)
	}
	slices.Sort(rates[0])
	n = len(rates[0])
	return f, (rates[0][n*3/4] - rates[0][n/4]) / rates[0][n/2], nil
}

// upper is the upper quartile.
func upper(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)*3/4]
}

// probe is how fast all cores read memory once, in bytes a second: the better of two reads of 32 MiB, of which a cache
// may give a part. It takes milliseconds and is made once.
var probe = sync.OnceValue(func() float64 {
	const size = 32 << 20
	region, err := memory.Reserve(size)
	if err != nil {
		return 0
	}
	defer region.Close()
	data := region.Bytes()
	for i := 0; i < size; i += 4096 {
		data[i] = 1
	}
	cores, best := runtime.NumCPU(), 0.0
	for range 2 {
		start := time.Now()
		var done sync.WaitGroup
		for c := range cores {
			done.Go(func() { _ = bytes.IndexByte(data[size/cores*c:size/cores*(c+1)], 2) }) // which is not there
		}
		done.Wait()
		best = max(best, size/seconds(time.Since(start)))
	}
	return best
})

func named(plugins []*plugin.Plugin, name string) *plugin.Plugin {
	for _, p := range plugins {
		if p.Manifest.Name == name {
			return p
		}
	}
	return nil
}

// reader reads keys and values.
type reader struct {
	kernel  *plugin.Kernel
	cache   *memory.Region
	in, out []*tensor.Tensor
	context plugin.RunContext
	bytes   float64
}

func newReader(p *plugin.Plugin, operator string, bytes int64, crew *threads.Pool) (_ *reader, err error) {
	blocks := bytes / positionBytes / abi.CacheBlockSize
	keys := blocks / readers * abi.CacheBlockSize // of each request
	x := &reader{bytes: float64(keys * readers * positionBytes)}
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	if x.cache, err = memory.Reserve(blocks * abi.CacheBlockSize * positionBytes); err != nil {
		return nil, err
	}
	list := x.cache.Floats()
	for i := range list {
		list[i] = 1e-2
	}
	if x.kernel, err = p.Create(operator,
		[]manifest.Attribute{{Name: "num_heads", Value: int64(readHeads)}, {Name: "kv_num_heads", Value: int64(readHeads)},
			{Name: "head_size", Value: int64(readSize)}, {Name: "value_size", Value: int64(readSize)}}, nil,
		tensor.CPU); err != nil {
		return nil, err
	}
	steps, err := tensor.New(tensor.Int32, readers, abi.SequenceColumns)
	if err != nil {
		return nil, err
	}
	shared, err := tensor.New(tensor.Int32, readers*keys)
	if err != nil {
		return nil, err
	}
	for i := range tensor.Elems[int32](shared) {
		tensor.Elems[int32](shared)[i] = int32(i)
	}
	for i := range int32(readers) { // each a row of its own, over positions of its own
		copy(tensor.Elems[int32](steps)[i*abi.SequenceColumns:], []int32{i, 1, i * int32(keys), int32(keys)})
	}
	query, err := tensor.New(tensor.Float32, readers, readHeads*readSize)
	if err != nil {
		return nil, err
	}
	out, err := tensor.New(tensor.Float32, readers, readHeads, 1, readSize)
	if err != nil {
		return nil, err
	}
	cache := &tensor.Tensor{DType: tensor.Float32, Shape: []int64{blocks, abi.CacheBlockSize * positionBytes / 4},
		Data: unsafe.Pointer(unsafe.SliceData(list))}
	x.in, x.out = []*tensor.Tensor{query, nil, nil, cache, steps, shared}, []*tensor.Tensor{out}
	need, err := x.kernel.Workspace(x.in, x.out, crew.Threads())
	if err != nil {
		return nil, err
	}
	x.context = plugin.RunContext{Pool: crew, Workspace: plugin.NewWorkspace(need)}
	return x, nil
}

func (x *reader) close() {
	if x.kernel != nil {
		x.kernel.Destroy()
	}
	if x.cache != nil {
		_ = x.cache.Close() // nothing can be done about a mapping that stays
	}
}

// rate is bytes a second.
func (x *reader) rate() (float64, error) {
	start := time.Now()
	err := x.kernel.Run(&x.context, x.in, x.out)
	return x.bytes / seconds(time.Since(start)), err
}

// matmul computes.
type matmul struct {
	kernel  *plugin.Kernel
	weights *memory.Region
	in, out []*tensor.Tensor
	context plugin.RunContext
}

func newMatmul(p *plugin.Plugin, operator string, crew *threads.Pool) (*matmul, error) {
	x := &matmul{context: plugin.RunContext{Pool: crew}}
	var err error
	if x.weights, err = memory.Reserve(4 * matmulColumns * matmulDepth); err != nil {
		return nil, err
	}
	list := x.weights.Floats()
	for i := range list {
		list[i] = 1
	}
	if x.kernel, err = p.Create(operator, []manifest.Attribute{{Name: "columns", Value: int64(matmulColumns)}},
		nil, tensor.CPU); err != nil {
		x.close()
		return nil, err
	}
	rows, err := tensor.New(tensor.Float32, matmulRows, matmulDepth)
	if err == nil {
		var out *tensor.Tensor
		out, err = tensor.New(tensor.Float32, matmulRows, matmulColumns)
		x.out = []*tensor.Tensor{out}
	}
	if err != nil {
		x.close()
		return nil, err
	}
	x.in = []*tensor.Tensor{rows,
		{DType: tensor.Float32, Shape: []int64{abi.Panels(matmulColumns), matmulDepth, abi.PanelColumns},
			Data: unsafe.Pointer(unsafe.SliceData(list))}}
	need, err := x.kernel.Workspace(x.in, x.out, crew.Threads())
	if err != nil {
		x.close()
		return nil, err
	}
	x.context.Workspace = plugin.NewWorkspace(need)
	return x, nil
}

func (x *matmul) close() {
	if x.kernel != nil {
		x.kernel.Destroy()
	}
	_ = x.weights.Close() // nothing can be done about a mapping that stays
}

// rate is operations a second.
func (x *matmul) rate() (float64, error) {
	start := time.Now()
	err := x.kernel.Run(&x.context, x.in, x.out)
	return 2 * matmulRows * matmulDepth * matmulColumns / seconds(time.Since(start)), err
}

func seconds(d time.Duration) float64 { return max(d, 1).Seconds() }

// lastCache is the bytes of the cache that is furthest from a core, when that is a
// third level or further; 0 where the system says of none.
func lastCache(folder string) int64 {
	indexes, _ := filepath.Glob(filepath.Join(folder, "index*")) // the pattern is well formed
	furthest, bytes := 2, int64(0)
	for _, index := range indexes {
		level, err := strconv.Atoi(word(filepath.Join(index, "level")))
		if err != nil || level <= furthest {
			continue
		}
		size, unit := word(filepath.Join(index, "size")), int64(1)
		for suffix, times := range map[string]int64{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30} {
			if number, found := strings.CutSuffix(size, suffix); found {
				size, unit = number, times
			}
		}
		if n, err := strconv.ParseInt(size, 10, 64); err == nil && n > 0 {
			furthest, bytes = level, n*unit
		}
	}
	return bytes
}

// word is a file's content without the blanks around it; "" where it cannot be read.
func word(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
