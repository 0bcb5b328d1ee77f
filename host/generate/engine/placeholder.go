package engine

import "github.com/opgraft/graft/host/generate/cache"

// HasPlaceholder reports that the model predicts in the place of a placeholder after each row: of a prompt there are
// the scores after its last token alone, and nothing can be drafted.
func (e *Engine) HasPlaceholder() bool { return e.placeholder != nil }

// beside is the number of positions that a row takes beyond its own: 1 in a model that predicts in the place of a
// placeholder.
func (e *Engine) beside() int {
	if e.placeholder == nil {
		return 0
	}
	return 1
}

// place notes where a row stands.
func (b *stepBuffers) place(e *Engine, at int, prompt bool) {
	b.positions = append(b.positions, int64(at))
	if !e.graph.Lines {
		return
	}
	line := int64(at)
	if !prompt {
		line += e.positions
	}
	b.lines = append(b.lines, line)
}

// placeholders adds, from a first row on, a placeholder after each row of a sequence that has grown: it sees all of
// its row and itself, and the logits are its own. Its slots are those of the step before: what they held nobody
// reads. It returns the number of rows.
func (b *stepBuffers) placeholders(e *Engine, s *Sequence, first int) (int, error) {
	n := s.Rows()
	if s.beside == nil {
		s.beside = cache.NewSequence(e.self.Pool)
	}
	if missing := n - s.beside.Len(); missing > 0 {
		if _, err := s.beside.Extend(missing); err != nil {
			return 0, err
		}
	}
	slots := s.beside.Shared()[:n]
	for i := range n {
		b.tokens = append(b.tokens, *e.placeholder)
		b.selected = append(b.selected, int64(first+i))
		b.place(e, s.Len(), false)
	}
	b.self.slotMapping = append(b.self.slotMapping, slots...)
	b.self.groupBeside(first, s.own, slots)
	if s.prompt != nil {
		b.prompt.slotMapping = append(b.prompt.slotMapping, none(n)...)
		b.prompt.group(first, n, s.prompt, 0)
	}
	return n, nil
}
