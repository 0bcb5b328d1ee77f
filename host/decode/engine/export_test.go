package engine

// Grow makes an empty sample as long as one that was fed a prompt and then so many
// steps of rows that differ, without computing anything: what it keeps can be counted.
func (s *Sample) Grow(prompt, rows, steps int) error {
	part := s.own
	if s.prompt != nil {
		part = s.prompt
	}
	if _, err := part.Extend(prompt); err != nil {
		return err
	}
	if err := s.own.Reorder(make([]int, rows)); err != nil {
		return err
	}
	slots := make([]int32, rows)
	for range steps {
		if err := s.own.Append(slots); err != nil {
			return err
		}
	}
	return nil
}

// BlockBytes is the size of a block of the decoder's own positions.
func (e *Engine) BlockBytes() int64 { return e.self.BlockBytes() }
