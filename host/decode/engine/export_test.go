package engine

// BlockBytes is the size of a block of the decoder's own positions.
func (e *Engine) BlockBytes() int64 { return e.self.BlockBytes() }
