package model

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/host/diagnostic"
)

// writeJob writes files under temporary names and then gives them their own.
type writeJob struct {
	ctx         context.Context
	progress    func(done, total int64)
	done, total int64
	staged      []stagedFile
}

type stagedFile struct{ temp, final string }

// stage writes the pieces to a temporary file beside final and syncs it.
func (j *writeJob) stage(final string, pieces func(func(payload) error) error) (err error) {
	if err := j.ctx.Err(); err != nil {
		return j.cancelled(final)
	}
	temp, f, err := createBeside(final)
	if err != nil {
		return failure(final, "create a file in its folder", err)
	}
	j.staged = append(j.staged, stagedFile{temp, final})
	c := &copier{job: j, final: final, out: bufio.NewWriterSize(f, copyChunk)}
	defer c.close()
	err = pieces(c.payload)
	if err == nil {
		if err = c.out.Flush(); err == nil {
			err = f.Sync()
		}
		if err != nil {
			err = failure(final, "write the file", err)
		}
	}
	if e := f.Close(); err == nil && e != nil {
		err = failure(final, "write the file", e)
	}
	return err
}

func (j *writeJob) cancelled(final string) error {
	return &diagnostic.Error{Path: final, Found: "writing was interrupted: found " + j.ctx.Err().Error(),
		Fix: "nothing was left behind; run it again", Cause: j.ctx.Err()}
}

// commit renames the staged files into place, in order. Where several belong
// together, files that stand there already step aside first, the last one
// first, so that at no time an old model stands beside new data; a failure puts
// them back.
func (j *writeJob) commit() (err error) {
	if j.ctx.Err() != nil {
		return j.cancelled(j.staged[len(j.staged)-1].final)
	}
	for _, s := range j.staged {
		if info, err := os.Stat(s.final); err == nil {
			if err := os.Chmod(s.temp, info.Mode().Perm()); err != nil {
				return failure(s.final, "keep the permissions of the file", err)
			}
		}
	}
	var aside []stagedFile // temp: where the old file went
	var placed []string
	defer func() {
		if err == nil {
			for _, a := range aside {
				_ = os.Remove(a.temp) // the new files stand; the old one is only litter
			}
			return
		}
		for _, p := range placed {
			_ = os.Remove(p)
		}
		for i := len(aside) - 1; i >= 0; i-- {
			_ = os.Rename(aside[i].temp, aside[i].final)
		}
	}()
	if len(j.staged) > 1 {
		for i := len(j.staged) - 1; i >= 0; i-- {
			final := j.staged[i].final
			old := besideName(final)
			switch err := os.Rename(final, old); {
			case err == nil:
				aside = append(aside, stagedFile{old, final})
			case !errors.Is(err, fs.ErrNotExist):
				return failure(final, "replace the file", err)
			}
		}
	}
	for _, s := range j.staged {
		if err := os.Rename(s.temp, s.final); err != nil {
			return failure(s.final, "put the file in place", err)
		}
		placed = append(placed, s.final)
	}
	j.staged = nil
	syncFolder(filepath.Dir(placed[0]))
	return nil
}

// cleanUp removes temporary files that were not put in place.
func (j *writeJob) cleanUp() {
	for _, s := range j.staged {
		_ = os.Remove(s.temp) // gone already when it was renamed
	}
}

// syncFolder makes renames durable where the system can; the files themselves
// are synced, so a failure loses at most the new name.
func syncFolder(folder string) {
	if d, err := os.Open(folder); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

// besideName is an unused hidden name in the folder of final.
func besideName(final string) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, as crypto/rand promises
	return filepath.Join(filepath.Dir(final), "."+filepath.Base(final)+"."+hex.EncodeToString(b[:])+".tmp")
}

// createBeside makes a new file in final's folder with the usual permissions,
// which os.CreateTemp would narrow to the owner.
func createBeside(final string) (string, *os.File, error) {
	temp := besideName(final)
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	return temp, f, err
}

// copyChunk is what is copied between two looks at the context.
const copyChunk = 1 << 20

// copier streams payloads. Files are read, not touched through their mapping:
// that leaves memory flat, and a file cut short is an error and no fault.
type copier struct {
	job   *writeJob
	final string
	out   *bufio.Writer
	buf   []byte

	// One file is open at a time: a model may have thousands, a process may not.
	src *source
	in  *os.File
}

func (c *copier) close() {
	if c.in != nil {
		c.in.Close()
	}
	c.src, c.in = nil, nil
}

func (c *copier) payload(p payload) error {
	for at := int64(0); at < p.length; {
		n := min(p.length-at, copyChunk)
		var chunk []byte
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
	if c.src != s {
		c.close()
		f, err := s.open()
		if err != nil {
			return nil, err
		}
		c.src, c.in = s, f
	}
	if c.buf == nil {
		c.buf = make([]byte, copyChunk)
	}
	if got, err := c.in.ReadAt(c.buf[:n], offset); int64(got) < n {
		if err == io.EOF {
			return nil, s.changed()
		}
		return nil, failure(s.shown, "read the file", err)
	}
	return c.buf[:n], nil
}
