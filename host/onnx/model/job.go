package model

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
)

// writeJob writes files under temporary names and then gives them their own.
type writeJob struct {
	ctx         context.Context
	progress    func(done, total int64)
	done, total int64
	staged      []stagedFile
}

type stagedFile struct {
	file  *storage.File
	final string
}

// stage writes the pieces to a temporary file beside final and syncs it.
func (j *writeJob) stage(final string, pieces func(func(payload) error) error) error {
	if err := j.ctx.Err(); err != nil {
		return j.cancelled(final)
	}
	f, err := storage.Create(final, storage.Shared)
	if err != nil {
		return failure(final, "create a file in its folder", err)
	}
	j.staged = append(j.staged, stagedFile{f, final})
	c := &copier{job: j, final: final, out: bufio.NewWriterSize(f, copyChunk)}
	if err := pieces(c.payload); err != nil {
		return err
	}
	if err := errors.Join(c.out.Flush(), f.Finish()); err != nil {
		return failure(final, "write the file", err)
	}
	return nil
}

func (j *writeJob) cancelled(final string) error {
	return &diagnostic.Error{Path: final, Found: "writing was interrupted: found " + j.ctx.Err().Error(),
		Fix: "nothing was left behind; run it again", Cause: j.ctx.Err()}
}

// commit renames the staged files into place, in order. Where several belong
// together, files that stand there already step aside first, the last one
// first, so that at no time an old model stands beside new data; a failure puts
// them back, and so does the next run where this one was killed.
func (j *writeJob) commit() (err error) {
	if j.ctx.Err() != nil {
		return j.cancelled(j.staged[len(j.staged)-1].final)
	}
	var aside, placed []string
	defer func() {
		if err == nil {
			return
		}
		for _, p := range placed {
			_ = os.Remove(p)
		}
		for i := len(aside) - 1; i >= 0; i-- {
			_ = os.Rename(asideName(aside[i]), aside[i])
		}
	}()
	if len(j.staged) > 1 {
		for i := len(j.staged) - 1; i >= 0; i-- {
			final := j.staged[i].final
			switch err := os.Rename(final, asideName(final)); {
			case err == nil:
				aside = append(aside, final)
			case !errors.Is(err, fs.ErrNotExist):
				return failure(final, "replace the file", err)
			}
		}
	}
	for _, s := range j.staged {
		if err := s.file.Commit(); err != nil {
			return failure(s.final, "put the file in place", err)
		}
		placed = append(placed, s.final)
	}
	for i := len(aside) - 1; i >= 0; i-- { // the data first: a model aside says that both are
		_ = os.Remove(asideName(aside[i])) // the new files stand; the old one is only litter
	}
	return nil
}

// cleanUp removes temporary files that were not put in place.
func (j *writeJob) cleanUp() {
	for _, s := range j.staged {
		s.file.Discard()
	}
}

// putBack undoes what a run that was killed in commit left: files aside go back where the model is missing, and away
// where it stands.
func putBack(path string) error {
	data := path + ".data"
	if _, err := os.Lstat(path); err == nil {
		_, _ = os.Remove(asideName(path)), os.Remove(asideName(data)) // only litter
		return nil
	}
	for _, final := range []string{data, path} {
		if err := os.Rename(asideName(final), final); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return failure(final, "put the older file back, which an interrupted run had moved", err)
		}
	}
	return nil
}

// asideName is where a file lies while the two that replace it and its companion are put in place.
func asideName(final string) string {
	return filepath.Join(filepath.Dir(final), "."+filepath.Base(final)+".graft-aside")
}

// copyChunk is what is copied between two looks at the context.
const copyChunk = 1 << 20

// copier streams payloads.
type copier struct {
	job   *writeJob
	final string
	out   *bufio.Writer
	buf   []byte
}

func (c *copier) payload(p payload) error {
	for at := int64(0); at < p.length; {
		n := min(p.length-at, copyChunk)
		var chunk []byte
		if p.src != nil && p.src.made != nil {
			b, err := p.bytes()
			if err != nil {
				return err
			}
			p = inMemory(b)
		}
		if p.src == nil {
			chunk = p.mem[at : at+n]
		} else {
			var err error
			if chunk, err = c.read(p.src, p.offset+at, n); err != nil {
				return err
			}
		}
		if c.job.ctx.Err() != nil {
			return c.job.cancelled(c.final)
		}
		if _, err := c.out.Write(chunk); err != nil {
			return failure(c.final, "write the file", err)
		}
		at += n
		c.job.done += n
		if c.job.progress != nil {
			c.job.progress(c.job.done, c.job.total)
		}
	}
	return nil
}

func (c *copier) read(s *source, offset, n int64) ([]byte, error) {
	if c.buf == nil {
		c.buf = make([]byte, copyChunk)
	}
	return c.buf[:n], s.read(c.buf[:n], offset)
}
