package main

import (
	"runtime/debug"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/generate/cache"
	"github.com/opgraft/graft/host/plan"
)

// part is what layers of one kind store of a number of positions.
type part struct {
	layers    plan.Layers
	strategy  plan.Strategy
	positions int
}

// poolTrial is pools of some geometry filled with requests.
type poolTrial struct {
	Name     string  `json:"name"`
	Requests int     `json:"requests"`
	Parts    []int64 `json:"request_bytes"` // of one request, by kind of layers
	Counted  int64   `json:"counted_bytes"` // by the pools
	Process  int64   `json:"process_bytes"` // that the process grew by
	Off      float64 `json:"off"`           // of the process from the pools
}

// Request is what one request takes.
func (t *poolTrial) Request() (bytes int64) {
	for _, n := range t.Parts {
		bytes += n
	}
	return bytes
}

// poolBytes are enough for pages, and what a process does beside, not to count.
const poolBytes = 256 << 20

// pool fills pools with requests that take poolBytes and more, and takes note of what
// they count and of how much the process grows.
func (d *bytesDetail) pool(name string, parts ...part) (*poolTrial, error) {
	t := &poolTrial{Name: name}
	before, err := anonymousBytes()
	if err != nil {
		return nil, err
	}
	var pools []*cache.Pool
	defer func() {
		for _, p := range pools {
			_ = p.Close() // nothing can be done about a mapping that stays
		}
	}()
	budget := cache.NewBudget(16 << 30)
	for _, x := range parts {
		block := plan.Candidate{Strategy: x.strategy}.Bytes(x.layers, plan.Shape{Keys: abi.CacheBlockSize, Beams: 1})
		p, err := cache.NewPool(block/4, budget)
		if err != nil {
			return nil, err
		}
		pools = append(pools, p)
	}
	for t.Requests = 0; t.Counted < poolBytes; t.Requests++ {
		t.Parts, t.Counted = nil, 0
		for i, p := range pools {
			s := cache.NewSequence(p)
			slots, err := s.Extend(parts[i].positions)
			if err != nil {
				return nil, err
			}
			touch(p, slots)
			t.Parts = append(t.Parts, s.Bytes())
			t.Counted += p.Bytes()
		}
	}
	after, err := anonymousBytes()
	if err != nil {
		return nil, err
	}
	t.Process = after - before
	t.Off = float64(t.Process)/float64(t.Counted) - 1
	d.Pools = append(d.Pools, t)
	return t, nil
}

// touch writes to every page of blocks.
func touch(p *cache.Pool, slots []int32) {
	const pageFloats = 4096 / 4
	floats := p.BlockBytes() / 4
	for _, slot := range slots {
		if slot%abi.CacheBlockSize != 0 {
			continue
		}
		block := p.Floats()[p.At(slot, 0, 0):][:floats]
		for i := int64(0); i < floats; i += pageFloats {
			block[i] = 1
		}
		block[floats-1] = 1
	}
}

// anonymousBytes is the memory of the process's own.
func anonymousBytes() (int64, error) {
	debug.FreeOSMemory()
	return statusBytes("RssAnon")
}
