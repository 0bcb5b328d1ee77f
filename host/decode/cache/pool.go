// Package cache keeps the keys and values of sequences under way. A Pool is
// memory in blocks of 16 slots; a slot holds one token's keys and values for all
// layers. A Sample is one input with its rows (beams): the slots of positions on
// which its rows agree are kept once, those of the others once for each row that
// differs. Reordering rows moves numbers of slots, never keys or values.
package cache

import (
	"errors"
	"fmt"
	"math"

	"github.com/opgraft/graft/host/memory"
)

// BlockSlots is the number of slots of a block.
const BlockSlots = 16

// ErrFull reports a pool without a free block.
var ErrFull = errors.New("the cache is full")

// Geometry is what one slot holds.
type Geometry struct {
	Layers, KVHeads, HeadSize, ValueSize int64
}

// LayerFloats is the number of floats of one layer of a block: keys
// [KVHeads][BlockSlots][HeadSize], then values [KVHeads][BlockSlots][ValueSize].
func (g Geometry) LayerFloats() int64 { return BlockSlots * g.KVHeads * (g.HeadSize + g.ValueSize) }

// BlockBytes is the size of a block.
func (g Geometry) BlockBytes() int64 { return 4 * g.Layers * g.LayerFloats() }

// Pool is the memory of one kind of cache. The address range is reserved at
// once and backed as blocks are used for the first time; blocks that were given
// back are used again before new ones. A Pool is not for concurrent use.
type Pool struct {
	geometry Geometry
	capacity int32 // blocks
	memory   *memory.Region
	free     []int32
	fresh    int32 // the first block that was never used
	used     int32
	peak     int32
}

// NewPool reserves a pool of at most so many bytes.
func NewPool(g Geometry, bytes int64) (*Pool, error) {
	if g.Layers <= 0 || g.KVHeads <= 0 || g.HeadSize <= 0 || g.ValueSize <= 0 {
		return nil, fmt.Errorf("a cache of %+v is none: every size must be positive", g)
	}
	blocks := min(bytes/g.BlockBytes(), math.MaxInt32/BlockSlots)
	if blocks <= 0 {
		return nil, fmt.Errorf("a cache of %d bytes holds no block of %d positions, which takes %d", bytes, BlockSlots, g.BlockBytes())
	}
	region, err := memory.Reserve(blocks * g.BlockBytes())
	if err != nil {
		return nil, fmt.Errorf("the cache: %w", err)
	}
	return &Pool{geometry: g, capacity: int32(blocks), memory: region}, nil
}

// Close gives the memory back. Nothing may use the pool afterwards.
func (p *Pool) Close() error { return p.memory.Close() }

// Geometry is what a slot holds.
func (p *Pool) Geometry() Geometry { return p.geometry }

// Floats is the whole pool.
func (p *Pool) Floats() []float32 { return p.memory.Floats() }

// Shape is that of the pool as a tensor: blocks, floats of a block.
func (p *Pool) Shape() []int64 {
	return []int64{int64(p.capacity), p.geometry.BlockBytes() / 4}
}

// Bytes is what the blocks in use take, Peak the most they ever took.
func (p *Pool) Bytes() int64 { return int64(p.used) * p.geometry.BlockBytes() }

// Peak is the most bytes that were in use at once.
func (p *Pool) Peak() int64 { return int64(p.peak) * p.geometry.BlockBytes() }

// FreeSlots is how many more slots the pool can give.
func (p *Pool) FreeSlots() int64 { return int64(p.capacity-p.used) * BlockSlots }

// take gives a block.
func (p *Pool) take() (int32, error) {
	var b int32
	switch {
	case len(p.free) > 0:
		b, p.free = p.free[len(p.free)-1], p.free[:len(p.free)-1]
	case p.fresh < p.capacity:
		b = p.fresh
		p.fresh++
	default:
		return 0, fmt.Errorf("%w: all %d positions of %d bytes are in use", ErrFull, int64(p.capacity)*BlockSlots, int64(p.capacity)*p.geometry.BlockBytes())
	}
	p.used++
	p.peak = max(p.peak, p.used)
	return b, nil
}

func (p *Pool) give(blocks ...int32) {
	p.free = append(p.free, blocks...)
	p.used -= int32(len(blocks))
}

// Key is the key of a slot, layer and head; Value its value.
func (p *Pool) Key(slot int32, layer, head int64) []float32 {
	g := p.geometry
	at := p.layer(slot, layer) + (head*BlockSlots+int64(slot%BlockSlots))*g.HeadSize
	return p.Floats()[at : at+g.HeadSize]
}

// Value is the value of a slot, layer and head.
func (p *Pool) Value(slot int32, layer, head int64) []float32 {
	g := p.geometry
	at := p.layer(slot, layer) + BlockSlots*g.KVHeads*g.HeadSize + (head*BlockSlots+int64(slot%BlockSlots))*g.ValueSize
	return p.Floats()[at : at+g.ValueSize]
}

func (p *Pool) layer(slot int32, layer int64) int64 {
	return (int64(slot/BlockSlots)*p.geometry.Layers + layer) * p.geometry.LayerFloats()
}
