package engine

import "github.com/opgraft/graft/host/base/abi"

// Room is how many bytes the pools may take in all.
func (e *Engine) Room() int64 { return e.budget.Left() + e.budget.Used() }

// Need is the maximum number of bytes that a sequence takes: the positions of its prompt, `rest` of each of its rows,
// and their recurrent states.
func (e *Engine) Need(prompt, rows, rest int) int64 {
	p := e.self
	if e.prompt != nil {
		p = e.prompt
	}
	// The last block of each part is begun before one that nobody reads is given back.
	return blocksOf(prompt)*p.BlockBytes() + (blocksOf(rows*rest)+blocksOf(rows*e.beside())+2)*e.self.BlockBytes() +
		int64(rows)*e.states.rowBytes()
}

// EncodedBytes is what an input's encoded positions take, for a number of beams.
func (e *Engine) EncodedBytes(positions, beams int) (bytes int64) {
	keys, output := e.stored(positions, beams)
	if keys {
		bytes += blocksOf(positions) * e.cross.BlockBytes()
	}
	if output {
		bytes += blocksOf(positions) * e.output.BlockBytes()
	}
	return bytes
}

// stored says which pools an input's encoded positions go to.
func (e *Engine) stored(positions, beams int) (keys, output bool) {
	keys, output = e.cross != nil, e.output != nil
	if keys && output && e.choose != nil {
		output = e.choose(positions, beams)
		keys = !output
	}
	return keys, output
}

func blocksOf(positions int) int64 {
	return abi.CacheBlocks(int64(positions))
}
