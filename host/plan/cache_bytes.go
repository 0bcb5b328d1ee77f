package plan

import (
	"math"

	"github.com/opgraft/graft/host/base/abi"
)

// wholeBlocks is the slots of whole blocks that hold n positions.
func wholeBlocks(positions int64) int64 {
	return abi.CacheBlocks(positions) * abi.CacheBlockSize
}

// Area is the floats of a layer's area in a block.
func (c Candidate) Area(l Layers) int64 {
	numbers, storage := c.Layout().slot(l), c.stored()
	switch {
	case storage != Int8:
		return abi.CacheRowArea(numbers, storage.bytes())
	case c.Inputs() == KeysValues:
		return abi.CacheTypedKVArea(l.KVHeads, l.HeadSize, l.ValueSize, storage.bytes(), abi.CacheScales(l.KVHeads))
	}
	return abi.CacheRowArea(abi.CacheInt8Row(numbers), storage.bytes())
}

// BesideArea is the floats of the area of keys and values that a layer stores beside rows.
func (c Candidate) BesideArea(l Layers) int64 {
	return Candidate{Strategy: KeysValues, Storage: c.Storage}.Area(l)
}

// rowBytes is the bytes of one position in a layer's area.
func (c Candidate) rowBytes(l Layers) int64 { return 4 * c.Area(l) / abi.CacheBlockSize }

// slotBytes is what one position takes of all layers, at positions that are shared
// and at those generated since; they are the same where one pool holds both.
func (c Candidate) slotBytes(l Layers) (shared, own int64) {
	n := c.rowBytes(l)
	switch inputs := c.Inputs(); {
	case inputs == FirstLayerKeys, inputs == PromptHiddenStates && l.Type == "cross":
		return n, n // one area for all layers
	case inputs == PromptHiddenStates:
		return l.Layers * n, l.Layers * Candidate{Strategy: KeysValues, Storage: c.Storage}.rowBytes(l)
	}
	return l.Layers * n, l.Layers * n
}

// Bytes is what a request stores at a shape, in whole blocks; Batch does not count.
// Positions that beams do not share are counted once a beam: it is the maximum that a
// request can take.
func (c Candidate) Bytes(l Layers, s Shape) int64 {
	shared, own := c.slotBytes(l)
	generated := s.Own * max(s.Beams, 1)
	if l.Type == "cross" {
		generated = 0
	}
	switch {
	case c.Strategy == Exported:
		if l.Type == "cross" {
			return shared * s.Keys * max(s.Beams, 1)
		}
		return shared * (s.Keys + s.Own) * max(s.Beams, 1)
	case c.Inputs() == PromptHiddenStates && l.Type == "self": // two pools
		return shared*wholeBlocks(s.Keys) + own*wholeBlocks(generated)
	}
	return shared * wholeBlocks(s.Keys+generated)
}

// BatchWithin is how many requests of a size in bytes a memory holds.
func BatchWithin(bytes, request int64) int64 {
	if request <= 0 {
		return math.MaxInt64
	}
	return bytes / request
}
