package plan

import (
	"math"

	"github.com/opgraft/graft/host/abi"
)

// wholeBlocks is the slots of whole blocks that hold so many positions.
func wholeBlocks(positions int64) int64 {
	return abi.CacheBlocks(positions) * abi.CacheBlockSize
}

// rowBytes is the bytes of a row of some width: its share of a block's area.
func (c Candidate) rowBytes(width int64) int64 {
	storage := Float32
	if c.half() {
		storage = c.Storage
	}
	return 4 * abi.CacheRowArea(width, storage.Bytes()) / abi.CacheBlockSize
}

// slotBytes is what one position takes of all layers, at positions that are shared
// and at those generated since; they are the same where one pool holds both.
func (c Candidate) slotBytes(l Layers) (shared, own int64) {
	both := 4 * (l.KeyWidth() + l.ValueWidth())
	switch c.Strategy {
	case PromptHiddenStates:
		if l.Type == "cross" {
			n := c.rowBytes(l.Width)
			return n, n
		}
		return l.Layers * c.rowBytes(l.Width), l.Layers * both
	case Keys:
		n := l.Layers * c.rowBytes(l.KeyWidth())
		return n, n
	case HiddenStates:
		n := l.Layers * c.rowBytes(l.Width)
		return n, n
	case FirstLayerKeys:
		n := c.rowBytes(l.KeyWidth())
		return n, n
	}
	return l.Layers * both, l.Layers * both
}

// Bytes is what a sample keeps at a shape, in whole blocks; Batch does not count.
// Positions that beams do not share are counted once a beam: it is the most that a
// sample can take.
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
	case c.Strategy == PromptHiddenStates && l.Type == "self": // two pools
		return shared*wholeBlocks(s.Keys) + own*wholeBlocks(generated)
	}
	return shared * wholeBlocks(s.Keys+generated)
}

// BatchWithin is how many samples of so many bytes a memory holds.
func BatchWithin(bytes, sample int64) int64 {
	if sample <= 0 {
		return math.MaxInt64
	}
	return bytes / sample
}
