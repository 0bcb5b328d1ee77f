package engine

import (
	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/generate/cache"
)

// Imagine makes a sequence as it is after a prompt and steps of rows that
// differ, without computing any of it: its positions hold zeros, in memory of their
// own. What a step costs does not depend on what is stored, so this is how shapes are
// timed that would take long to get to.
func (e *Engine) Imagine(prompt, rows, steps int) (_ *Sequence, err error) {
	s := e.NewSequence()
	defer func() {
		if err != nil {
			s.Release()
		}
	}()
	first := s.own
	if s.prompt != nil {
		first = s.prompt
	}
	if _, err := first.Extend(prompt); err != nil {
		return nil, err
	}
	if err := s.Reorder(make([]int, rows)); err != nil {
		return nil, err
	}
	slots := make([]int32, rows)
	for range steps {
		if err := s.own.Append(slots); err != nil {
			return nil, err
		}
	}
	back(e.self, s.own)
	if s.prompt != nil {
		back(e.prompt, s.prompt)
	}
	return s, nil
}

// pageFloats is at most as many as a page of memory holds.
const pageFloats = 4096 / 4

// back writes to every page of a sequence's blocks: pages that were only ever read are
// one and the same.
func back(p *pool, s *cache.Sequence) {
	list, floats := p.Floats(), p.BlockBytes()/4
	done := map[int32]bool{}
	clearBlocks := func(slots []int32) {
		for _, slot := range slots {
			b := slot / abi.CacheBlockSize
			if done[b] {
				continue
			}
			done[b] = true
			block := list[int64(b)*floats:][:floats]
			for i := int64(0); i < floats; i += pageFloats {
				block[i] = 0
			}
			block[floats-1] = 0
		}
	}
	clearBlocks(s.Shared())
	for row := range s.Rows() {
		clearBlocks(s.Private(row))
	}
}
