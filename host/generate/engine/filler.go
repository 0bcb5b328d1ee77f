package engine

import (
	"context"
	"slices"

	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/rewrite/engine"
)

// fillCross computes keys and values of an encoder's output (1, positions, width)
// into the slots.
func (e *Engine) fillCross(ctx context.Context, hidden *ort.Value, slots []int32) error {
	f := &feeder{library: e.library, values: map[string]*ort.Value{engine.CrossPool.Cache: e.cross.tensor}}
	defer f.close()
	add(f, prepare.FillSlotMapping, slots, int64(len(slots)))
	for _, info := range e.filler.Inputs() {
		switch {
		case f.values[info.Name] != nil:
		case info.Element == ort.Float32:
			f.values[info.Name] = hidden
		default:
			// Tokens or masks of which the graph reads lengths, and nothing stored depends on more.
			var shape []int64
			count := 1
			for _, axis := range e.fillerLengths[info.Name] {
				length := int64(1)
				if axis >= 0 {
					length = hidden.Shape()[axis]
				}
				shape, count = append(shape, length), count*int(length)
			}
			add(f, info.Name, slices.Repeat([]int64{1}, count), shape...)
		}
	}
	if f.err != nil {
		return f.err
	}
	results, err := e.filler.Run(ctx, f.values)
	if err != nil {
		return err
	}
	for _, v := range results {
		v.Close()
	}
	return nil
}
