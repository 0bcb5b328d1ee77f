package model

import "google.golang.org/protobuf/encoding/protowire"

// splice is a protobuf message under construction: literal bytes, and cuts where
// a payload that lies elsewhere belongs. Lengths count the payloads, so the
// whole can be streamed without ever being in memory at once.
type splice struct {
	lit   []byte
	cuts  []cut
	extra int64 // bytes in the cuts
}

// cut says that payload p belongs before lit[pos].
type cut struct {
	pos int
	p   payload
}

// payload is a run of bytes in memory, or in a source when src is set.
type payload struct {
	mem    []byte
	src    *source
	offset int64
	length int64
	home   *source // the buffer that mem is a part of, at offset; nil for none
}

func inMemory(b []byte) payload { return payload{mem: b, length: int64(len(b))} }

// size is the length of the message so far, payloads included.
func (s *splice) size() int64 { return int64(len(s.lit)) + s.extra }

// bytes appends v: as literal bytes when short, else as a cut, since nesting
// moves literal bytes.
func (s *splice) bytes(v []byte) {
	const short = 1 << 12
	if len(v) <= short {
		s.lit = append(s.lit, v...)
		return
	}
	s.cut(inMemory(v))
}

func (s *splice) cut(p payload) {
	if p.length == 0 {
		return
	}
	s.cuts = append(s.cuts, cut{len(s.lit), p})
	s.extra += p.length
}

// field appends a length-delimited field with payload p.
func (s *splice) field(num protowire.Number, p payload) {
	s.lit = protowire.AppendTag(s.lit, num, protowire.BytesType)
	s.lit = protowire.AppendVarint(s.lit, uint64(p.length))
	s.cut(p)
}

// nest appends a message field whose content body writes.
func (s *splice) nest(num protowire.Number, body func() error) error {
	s.lit = protowire.AppendTag(s.lit, num, protowire.BytesType)
	start, first, before := len(s.lit), len(s.cuts), s.extra
	if err := body(); err != nil {
		return err
	}
	var prefix [10]byte
	n := len(s.lit) - start
	p := protowire.AppendVarint(prefix[:0], uint64(int64(n)+s.extra-before))
	s.lit = append(s.lit, p...)
	copy(s.lit[start+len(p):], s.lit[start:start+n])
	copy(s.lit[start:], p)
	for i := first; i < len(s.cuts); i++ {
		s.cuts[i].pos += len(p)
	}
	return nil
}

// pieces calls f with every run of the message in order.
func (s *splice) pieces(f func(payload) error) error {
	at := 0
	for _, c := range s.cuts {
		if c.pos > at {
			if err := f(inMemory(s.lit[at:c.pos])); err != nil {
				return err
			}
			at = c.pos
		}
		if err := f(c.p); err != nil {
			return err
		}
	}
	if at < len(s.lit) {
		return f(inMemory(s.lit[at:]))
	}
	return nil
}

// flatten gives the whole message as one slice.
func (s *splice) flatten() ([]byte, error) {
	if len(s.cuts) == 0 {
		return s.lit, nil
	}
	out := make([]byte, 0, s.size())
	err := s.pieces(func(p payload) error {
		b, err := p.bytes()
		if err != nil {
			return err
		}
		out = append(out, b...)
		return nil
	})
	return out, err
}

// bytes gives the payload, read when it lies in a file.
func (p payload) bytes() ([]byte, error) {
	if p.src == nil {
		return p.mem, nil
	}
	return p.src.bytes(p.offset, p.length)
}
