package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// share has weights in memory that all processes have in common which read the same bytes. An error that wraps
// shared.ErrOwn says why not.
func (s *source) share(list []*held, total int64, wish shared.Wish) (*shared.Region, error) {
	if total < shared.Least {
		return nil, shared.ErrOwn
	}
	key, err := s.shareKey(list)
	if err != nil {
		return nil, err
	}
	r, err := shared.Open(shared.Content{Key: key, Size: total, Wish: wish,
		Afford: func() error { return affordable(s.shown, total) },
		Make:   func(to []byte) error { lie(list, to); return s.fill(list) },
		Same:   func(found []byte) (bool, error) { lie(list, found); return s.equal(list) },
	})
	if err != nil {
		return nil, err // not a region that is nil
	}
	return r, nil
}

// sampled is how many bytes are looked at in each of three places of a weight.
const sampled = 64

// shareKey tells most contents apart, whatever file they are of. Those that it does not are compared.
func (s *source) shareKey(list []*held) (key shared.Key, err error) {
	hash := sha256.New()
	for _, h := range list {
		var b []byte
		if s.made != nil {
			b, err = s.made.sample(h.span.offset)
		} else {
			b, err = s.sample(h.span)
		}
		if err != nil {
			return key, err
		}
		hash.Write(binary.LittleEndian.AppendUint64(nil, uint64(h.span.length)))
		hash.Write(b)
	}
	copy(key[:], hash.Sum(nil))
	return key, nil
}

// sample is some bytes of a part of a source.
func (s *source) sample(p span) (sample []byte, err error) {
	if err := s.inside(p.offset, p.length); err != nil {
		return nil, err
	}
	n := min(p.length, sampled)
	for _, at := range []int64{0, (p.length - n) / 2, p.length - n} {
		b, err := s.bytes(p.offset+at, n)
		if err != nil {
			return nil, err
		}
		sample = append(sample, b...)
	}
	return sample, nil
}

// sample is some bytes of the weights that the layout at an offset is made from, and how it is.
func (l *layouts) sample(offset int64) (sample []byte, err error) {
	var tensors []*onnx.Tensor
	for _, x := range l.list[offset].matrices {
		depth, columns := x.Size()
		sample = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(sample, uint64(depth)), uint64(columns))
		if x.Transposed {
			sample = append(sample, 1)
		}
		tensors = append(tensors, x.Tensor)
	}
	integers := l.list[offset].laid
	if q := l.list[offset].integers; q != nil {
		integers = []*Integers{q}
	}
	for _, q := range integers {
		sample = fmt.Appendf(sample, "%d %d %d %d %t %t %d", q.Depth, q.Columns, q.Bits, q.Block, q.Packed, q.Transposed,
			l.list[offset].part)
		tensors = append(tensors, q.tensors()...)
	}
	for _, t := range tensors {
		ref, refers, err := l.model.reference(t)
		var b []byte
		switch {
		case err != nil:
		case refers && ref.src.made == nil:
			b, err = ref.src.sample(span{ref.offset, ref.length})
		case !refers:
			b, err = l.model.data(t, nil) // it is small
		}
		if err != nil {
			return nil, err
		}
		sample = append(sample, b...)
	}
	return sample, nil
}

// compareChunk stays in a processor's cache.
const compareChunk = 256 << 10

// equal reports that memory in which weights would lie has their bytes.
func (s *source) equal(list []*held) (bool, error) {
	var differ atomic.Bool
	err := s.compare(list, &differ)
	return err == nil && !differ.Load(), err
}

func (s *source) compare(list []*held, differ *atomic.Bool) error {
	if s.made != nil {
		return s.made.compare(list, differ)
	}
	if s.path == "" {
		for _, h := range list {
			b, err := s.bytes(h.span.offset, h.span.length)
			if err != nil {
				return err
			}
			if !bytes.Equal(b, h.data) {
				differ.Store(true)
			}
		}
		return nil
	}
	return s.chunks(list, readChunk, func(f *os.File, chunk []byte, at int64) error {
		room := make([]byte, compareChunk)
		for len(chunk) > 0 && !differ.Load() {
			part := chunk[:min(len(chunk), len(room))]
			if err := s.readFrom(f, room[:len(part)], at); err != nil {
				return err
			}
			if !bytes.Equal(room[:len(part)], part) {
				differ.Store(true)
			}
			chunk, at = chunk[len(part):], at+int64(len(part))
		}
		return nil
	})
}

func (l *layouts) compare(list []*held, differ *atomic.Bool) error {
	return onThreads(len(list), func(next func() int) error {
		var buffer, room scratch
		defer buffer.close()
		defer room.close()
		for k := next(); k < len(list) && !differ.Load(); k = next() {
			h := list[k]
			b, err := room.bytes(l.model.shown(), h.span.length)
			if err != nil {
				return err
			}
			b = b[:h.span.length]
			if err := l.lay(&held{data: b, span: h.span}, &buffer); err != nil {
				return err
			}
			if !bytes.Equal(b, h.data) {
				differ.Store(true)
			}
		}
		return nil
	})
}
