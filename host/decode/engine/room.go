package engine

import "github.com/opgraft/graft/host/decode/cache"

// SlotBytes is what one position of self attention takes.
func (e *Engine) SlotBytes() int64 { return e.self.Geometry().BlockBytes() / cache.BlockSlots }

// CrossRoom is how many more positions the encoder's pool can hold; 0 without an
// encoder.
func (e *Engine) CrossRoom() int64 {
	if e.cross == nil {
		return 0
	}
	return e.cross.FreeSlots()
}
