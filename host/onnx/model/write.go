package model

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// defaultInlineLimit leaves a margin below protobuf's 2 GiB for readers that
// count with less care.
const defaultInlineLimit = 1<<31 - 64<<20

// WriteOptions says how a model is written to a file.
type WriteOptions struct {
	// Progress is told the bytes written and their total, as they are written,
	// from the goroutine that called Write. nil for none.
	Progress func(done, total int64)
	// InlineLimit is the largest file, in bytes, that holds its own weights;
	// a larger model gets a second file beside it. 0 means 2 GiB - 64 MiB.
	InlineLimit int64
}

// Write writes p with its weights to path: into the file itself, or, where that
// would pass InlineLimit, into path + ".data" beside it ("model.onnx.data"),
// each weight at a multiple of 64 bytes, of 4,096 from 1 MiB on. The files
// appear whole or not at all: they are written under other names in the same
// folder, synced and renamed, the data first. A file that the model is read from
// is never written over. p is not changed. Cancelling ctx ends the writing with
// an error that wraps ctx.Err() and removes what was begun.
func (m *Model) Write(ctx context.Context, p *onnx.Model, path string, o WriteOptions) error {
	limit := o.InlineLimit
	if limit <= 0 || limit > maxMessage {
		limit = defaultInlineLimit
	}
	if err := m.mayWrite(path); err != nil {
		return err
	}
	if err := putBack(path); err != nil {
		return err
	}
	whole, err := m.write(p, func(site, *onnx.Tensor, payload) (place, error) { return place{}, nil })
	if err != nil {
		return err
	}
	job := &writeJob{ctx: ctx, progress: o.Progress}
	defer job.cleanUp()
	if whole.size() <= limit {
		job.total = whole.size()
		if err := job.stage(path, whole.pieces); err != nil {
			return err
		}
		return job.commit()
	}
	return m.writeSplit(job, p, path)
}

// writeSplit writes the weights into a second file.
func (m *Model) writeSplit(job *writeJob, p *onnx.Model, path string) error {
	dataPath := path + ".data"
	if err := m.mayWrite(dataPath); err != nil {
		return err
	}
	data := &splice{}
	placed := map[payloadKey]int64{}
	head, err := m.write(m.lifted(p), func(at site, _ *onnx.Tensor, p payload) (place, error) {
		if !at.initializer() {
			return place{}, nil
		}
		key := keyOf(p)
		offset, ok := placed[key]
		if !ok {
			offset = data.align(p.length)
			data.cut(p)
			placed[key] = offset
		}
		return place{filepath.Base(dataPath), offset}, nil
	})
	if err != nil {
		return err
	}
	if head.size() > maxMessage {
		return &diagnostic.Error{Kind: ErrTooLarge, Path: path,
			Found: fmt.Sprintf("the model is too large for one file apart from the weights that can lie beside it: found %d "+
				"bytes", head.size()),
			Needed: fmt.Sprintf("at most %d", maxMessage), Fix: "replace fewer blocks"}
	}
	job.total = data.size() + head.size()
	if err := job.stage(dataPath, data.pieces); err != nil {
		return err
	}
	if err := job.stage(path, head.pieces); err != nil {
		return err
	}
	return job.commit()
}

// payloadKey tells payloads apart, so that a weight used twice is written once.
type payloadKey struct {
	src    *source
	first  *byte
	offset int64
	length int64
}

func keyOf(p payload) payloadKey {
	k := payloadKey{src: p.src, offset: p.offset, length: p.length}
	if len(p.mem) > 0 {
		k.first = &p.mem[0]
	}
	return k
}

// align pads so that a payload of n bytes starts where it can be mapped or
// loaded well, and gives that offset.
func (s *splice) align(n int64) int64 {
	step := int64(64)
	if n >= 1<<20 {
		step = 4096
	}
	if over := s.size() % step; over != 0 {
		s.lit = append(s.lit, make([]byte, step-over)...)
	}
	return s.size()
}

// mayWrite refuses a target that the model is read from, by whatever name.
func (m *Model) mayWrite(path string) error {
	if path == "" {
		return &diagnostic.Error{Kind: ErrMisused, Path: m.shown(), Found: "no path was given to write to",
			Needed: "the path of an .onnx file", Fix: "name the file to write"}
	}
	there, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return failure(path, "write the model", err)
	case there.IsDir():
		return &diagnostic.Error{Kind: ErrMisused, Path: path, Found: "cannot write the model: found a folder",
			Needed: "the path of a file", Fix: "name a file inside it"}
	}
	for _, s := range m.allSources() {
		if os.SameFile(there, s.info) {
			return &diagnostic.Error{Kind: ErrInUse, Path: path,
				Found:  "refusing to overwrite a file that the model is read from: found " + s.path,
				Needed: "another file", Fix: "choose another output path"}
		}
	}
	return nil
}
