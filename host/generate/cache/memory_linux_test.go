package cache_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/generate/cache"
	"github.com/opgraft/graft/internal/must"
)

// anonymous is how much memory of its own the process holds, in bytes, as the
// kernel counts it.
func anonymous(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	data := must.Value(os.ReadFile("/proc/self/status"))(t)
	_, after, found := strings.Cut(string(data), "RssAnon:")
	var kilobytes int64
	if _, err := fmt.Sscan(after, &kilobytes); err != nil || !found {
		t.Fatalf("/proc/self/status has no RssAnon: %v", err)
	}
	return kilobytes << 10
}

// grown are sequences of a prompt and generated tokens with beams that are reordered,
// every line of every slot written, as a step does.
func grown(t *testing.T, p *cache.Pool, sequences, prompt, steps, beams int) []*cache.Sequence {
	t.Helper()
	const line = 16 // floats of a cache line, of which one is written
	width, r := p.BlockBytes()/4/abi.CacheBlockSize, rand.New(rand.NewPCG(5, 6))
	fill := func(slots []int32) {
		for _, slot := range slots {
			for at := p.At(slot, 0, width); at < p.At(slot, width, width); at += line {
				p.Floats()[at] = 1
			}
		}
	}
	list := make([]*cache.Sequence, sequences)
	for i := range list {
		list[i] = cache.NewSequence(p)
		slots := must.Value(list[i].Extend(prompt))(t)
		fill(slots)
		must.Succeed(t, list[i].Reorder(make([]int, beams)))
	}
	slots, parents := make([]int32, beams), make([]int, beams)
	for range steps {
		for _, s := range list {
			must.Succeed(t, s.Append(slots))
			fill(slots)
			for i := range parents {
				parents[i] = r.IntN(beams)
			}
			must.Succeed(t, s.Reorder(parents))
		}
	}
	return list
}

// TestCountAgreesWithTheProcess: what the pool says that it holds is what the
// process grew by, within 5 %, however large the range is that was reserved, and
// what was given back is used again before the process grows.
func TestCountAgreesWithTheProcess(t *testing.T) {
	const reserved = 16 << 30
	for _, c := range []struct {
		name                     string
		floats                   int64 // a position
		sequences, prompt, steps int
	}{
		{"GPT-2", 12 * 2 * 12 * 64, 6, 704, 64},
		{"BART-large", 12 * 2 * 16 * 64, 3, 1024, 64},
		{"grouped heads", 6 * 2 * (48 + 32), 70, 704, 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := anonymous(t)
			p := must.Value(cache.NewPool(abi.CacheBlockSize*c.floats, cache.NewBudget(reserved)))(t)
			defer p.Close()
			if took := anonymous(t) - before; took > 4<<20 {
				t.Errorf("reserving took %d bytes", took)
			}
			sequences := grown(t, p, c.sequences, c.prompt, c.steps, 4)
			process, counted := anonymous(t)-before, p.Bytes()
			ratio := float64(process) / float64(p.Peak())
			t.Logf("the pool counts %.1f MB at most and %.1f MB now, the process grew by %.1f MB: %.3f",
				float64(p.Peak())/1e6, float64(counted)/1e6, float64(process)/1e6, ratio)
			if p.Peak() < 150<<20 {
				t.Errorf("%d bytes are too few to compare", p.Peak())
			}
			if ratio < 0.95 || ratio > 1.05 {
				t.Errorf("the process grew by %d bytes, the pool counts %d: %.3f, needed is within 5 %%", process, p.Peak(), ratio)
			}
			for _, s := range sequences {
				s.Release()
			}
			grown(t, p, c.sequences, c.prompt, c.steps, 4)
			if again := anonymous(t) - before; float64(again) > 1.02*float64(process) {
				t.Errorf("doing the same again took the process from %d to %d bytes", process, again)
			}
		})
	}
}
