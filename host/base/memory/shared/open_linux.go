package shared

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// How long another process is waited for that makes the same bytes. None of this changes what is answered: who stops
// waiting makes its own.
var (
	step      = 5 * time.Millisecond
	unseen    = 100 * time.Millisecond // while nothing is seen that it makes
	patience  = time.Second            // and a second for as many bytes as the slowest disks read then
	perSecond = int64(100 << 20)
)

// Open gives a content that other processes have already, or makes it for them. An error that wraps ErrOwn says why it
// cannot be shared; others are those of the content's functions.
func Open(c Content) (*Region, error) {
	if err := allowed(c); err != nil {
		return nil, err
	}
	s := &search{content: c, refused: map[uint64]bool{}}
	begun := time.Now()
	last := begun
	for {
		r, err := s.find()
		if r != nil || err != nil {
			return r, err
		}
		turn, err := bind(turnName(c.Key))
		switch {
		case err == nil:
			defer unix.Close(turn)
			if r, err := s.find(); r != nil || err != nil { // it was made since we looked
				return r, err
			}
			return create(c)
		case !errors.Is(err, unix.EADDRINUSE):
			return nil, own("a name cannot be taken: %w", err)
		}
		now := time.Now()
		if s.unfinished {
			last = now
		}
		if now.Sub(last) > unseen || now.Sub(begun) > patience+time.Duration(c.Size/perSecond)*time.Second {
			return create(c)
		}
		time.Sleep(step)
	}
}

// search looks for a content, several times.
type search struct {
	content    Content
	refused    map[uint64]bool // inodes of what is not it
	unfinished bool            // somebody is making it
}

// find gives the content from the first process that has it; nil where none has.
func (s *search) find() (*Region, error) {
	s.unfinished = false
	for _, a := range announced(s.content.Key) {
		f, found := a.open(s.content.Key, s.content.Size)
		switch {
		case !found:
			continue
		case !f.sealed:
			s.unfinished = true
			unix.Close(f.fd)
			continue
		case s.refused[f.inode]:
			unix.Close(f.fd)
			continue
		}
		r, err := s.take(f)
		if r != nil || err != nil {
			return r, err
		}
		s.refused[f.inode] = true
	}
	return nil, nil
}

// take maps what was found, and compares it.
func (s *search) take(f found) (*Region, error) {
	r := &Region{file: f.fd, name: -1}
	if err := r.remap(s.content.Size, unix.PROT_READ); err != nil {
		r.Close()
		return nil, nil
	}
	if err := largePages(r.bytes); err != nil && s.content.Wish != Always {
		r.Close()
		return nil, nil
	}
	same, err := s.content.Same(r.bytes)
	if err != nil || !same {
		r.Close()
		return nil, err
	}
	r.announce(s.content.Key) // where it fails, others find it with who made it
	return r, nil
}
