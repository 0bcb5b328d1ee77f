package models

import (
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/opgraft/graft/host/base/storage"
)

// chunk is how many bytes of a weight a worker makes at a time.
const chunk = 4 << 20

// job is a piece of an output: where it goes, and what it is.
type job struct {
	at, from, size int64
	segment        segment
	generators     []generator
}

// jobs splits an output into pieces.
func (o *output) jobs(seed uint64) []job {
	var list []job
	var at int64
	for _, s := range o.segments {
		if s.fill == nil {
			list = append(list, job{at: at, size: int64(len(s.literal)), segment: s})
			at += int64(len(s.literal))
			continue
		}
		generators, total := s.fill.generators(seed), s.fill.bytes()
		for from := int64(0); from < total; from += chunk {
			size := min(chunk, total-from)
			list = append(list, job{at + from, from, size, s, generators})
		}
		at += total
	}
	return list
}

// writeTo fills the output and writes it, several pieces at once.
func (o *output) writeTo(w io.WriterAt, seed uint64) error {
	queue := make(chan job)
	workers := min(runtime.GOMAXPROCS(0), 8)
	failed := make([]error, workers)
	var wait sync.WaitGroup
	for i := range workers {
		wait.Go(func() {
			var buffer []byte
			for j := range queue {
				if failed[i] != nil {
					continue // drain
				}
				b := j.segment.literal
				if j.segment.fill != nil {
					if buffer == nil {
						buffer = make([]byte, chunk)
					}
					b = buffer[:j.size]
					j.segment.fill.fill(b, j.from, j.generators)
				}
				_, failed[i] = w.WriteAt(b, j.at)
			}
		})
	}
	for _, j := range o.jobs(seed) {
		queue <- j
	}
	close(queue)
	wait.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// memory is an io.WriterAt over bytes.
type memory []byte

func (m memory) WriteAt(b []byte, at int64) (int, error) {
	if n := copy(m[at:], b); n < len(b) {
		return n, io.ErrShortWrite
	}
	return len(b), nil
}

// writeFile fills the output into a new file beside path and renames it to path
// when it is whole.
func (o *output) writeFile(path string, seed uint64) error {
	f, err := storage.Create(path, storage.Shared)
	if err == nil {
		defer f.Discard()
		err = o.writeTo(f, seed)
	}
	if err == nil {
		err = f.Commit()
	}
	if err != nil {
		return fmt.Errorf("write %s (%d bytes): %w", path, o.size, err)
	}
	return nil
}
