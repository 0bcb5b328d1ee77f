// Package cache stores what decoders attend over. A Pool is memory in blocks of
// slots, as abi/graft_cache.h says; a slot holds what all layers store of one token, as plan.Layout says. A
// Sequence is one input with its rows (beams): the slots of positions on which its
// rows agree are stored once, those of the others once for each row that differs.
// Reordering rows moves numbers of slots, never what they hold.
package cache

import (
	"errors"
	"fmt"
	"math"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/memory"
)

// ErrFull reports that no block is free, or that the budget is spent.
var ErrFull = errors.New("the cache is full")

// Budget bounds the bytes that several pools take together.
type Budget struct {
	limit, used int64
}

// NewBudget is a budget in bytes.
func NewBudget(bytes int64) *Budget { return &Budget{limit: bytes} }

// Left is how many bytes may still be taken.
func (b *Budget) Left() int64 { return b.limit - b.used }

// Used is how many bytes are taken.
func (b *Budget) Used() int64 { return b.used }

// Pool is the memory of one kind of cache. Addresses for all that the budget allows
// are reserved at once and backed as blocks are used for the first time; blocks that
// were given back are used again before new ones. A Pool is not for concurrent use.
type Pool struct {
	floats   int64 // of a block
	capacity int32 // blocks
	budget   *Budget
	memory   *memory.Region
	free     []int32
	fresh    int32 // the first block that was never used
	used     int32
	peak     int32
}

// NewPool reserves a pool of blocks of a number of floats.
func NewPool(floats int64, budget *Budget) (*Pool, error) {
	if floats <= 0 {
		return nil, fmt.Errorf("a cache with blocks of %d floats is none", floats)
	}
	blocks := min(budget.limit/(4*floats), math.MaxInt32/abi.CacheBlockSize)
	if blocks <= 0 {
		return nil, fmt.Errorf("a cache of %d bytes holds no block of %d positions, which takes %d", budget.limit,
			abi.CacheBlockSize, 4*floats)
	}
	region, err := memory.Reserve(4 * blocks * floats)
	if err != nil {
		return nil, fmt.Errorf("the cache: %w", err)
	}
	return &Pool{floats: floats, capacity: int32(blocks), budget: budget, memory: region}, nil
}

// Close gives the memory back. Nothing may use the pool afterwards.
func (p *Pool) Close() error { return p.memory.Close() }

// BlockBytes is the size of a block.
func (p *Pool) BlockBytes() int64 { return 4 * p.floats }

// Floats is the whole pool.
func (p *Pool) Floats() []float32 { return p.memory.Floats() }

// Shape is that of the pool as a tensor: blocks, floats of a block.
func (p *Pool) Shape() []int64 { return []int64{int64(p.capacity), p.floats} }

// Bytes is what the blocks in use take.
func (p *Pool) Bytes() int64 { return int64(p.used) * p.BlockBytes() }

// Peak is the maximum number of bytes that were in use at once.
func (p *Pool) Peak() int64 { return int64(p.peak) * p.BlockBytes() }

// At is where a slot's row of floats begins, in rows that stand at an offset
// in every block.
func (p *Pool) At(slot int32, offset, width int64) int64 {
	return int64(slot/abi.CacheBlockSize)*p.floats + offset + int64(slot%abi.CacheBlockSize)*width
}

// take gives a block.
func (p *Pool) take() (int32, error) {
	var b int32
	switch {
	case p.budget.Left() < p.BlockBytes():
		return 0, fmt.Errorf("%w: %d of %d bytes are in use", ErrFull, p.budget.used, p.budget.limit)
	case len(p.free) > 0:
		b, p.free = p.free[len(p.free)-1], p.free[:len(p.free)-1]
	case p.fresh < p.capacity:
		b = p.fresh
		p.fresh++
	default:
		return 0, fmt.Errorf("%w: all %d positions of %d bytes are in use", ErrFull, int64(p.capacity)*abi.CacheBlockSize,
			int64(p.capacity)*p.BlockBytes())
	}
	p.used++
	p.peak = max(p.peak, p.used)
	p.budget.used += p.BlockBytes()
	return b, nil
}

func (p *Pool) give(blocks ...int32) {
	p.free = append(p.free, blocks...)
	p.used -= int32(len(blocks))
	p.budget.used -= int64(len(blocks)) * p.BlockBytes()
}
