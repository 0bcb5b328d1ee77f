package model

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/base/memory/shared"
)

// span is a run of bytes of a file.
type span struct{ offset, length int64 }

// held is a weight in memory of our own. Whoever holds it counts in holders.
type held struct {
	data    []byte
	holders int
	block   *block
	file    *heldFile
	part    part
	span    span // in the source that it was first read from
}

// block is memory of weights that were read together.
type block struct {
	region  region
	weights int // that are held
}

// region is memory of the process's own, or that it shares with others.
type region interface {
	Bytes() []byte
	Discard(part []byte) // gives a part back that nothing uses any more
	Close() error
}

// heldFile is what the process holds of one content of a file.
type heldFile struct {
	reading sync.Mutex // held while weights are read, so that nobody reads them twice
	users   int
	weights map[part]*held
	key     Identity
}

// part is what a weight is within the file: where it lies, or what it is made from.
type part struct {
	span span
	made string
}

// part is that of bytes of the source.
func (s *source) part(p span) part {
	if s.made == nil {
		return part{span: p}
	}
	return part{made: s.made.list[p.offset].text}
}

// holding is what all sessions of the process hold of files.
var holding struct {
	sync.Mutex
	files map[Identity]*heldFile
}

// enter finds what is held of a source already.
func (s *source) enter() *heldFile {
	file := &heldFile{weights: map[part]*held{}}
	holding.Lock()
	defer holding.Unlock()
	if s.info != nil {
		if file.key = identityOf(s.info); file.key.Lasting() {
			if known := holding.files[file.key]; known != nil {
				file = known
			}
			if holding.files == nil {
				holding.files = map[Identity]*heldFile{}
			}
			holding.files[file.key] = file
		}
	}
	file.users++
	return file
}

// hold reads parts of a source into memory, once for all sessions of the process that read the same file, or as is
// wished for all processes that read the same bytes. Each part is to be released once.
func (s *source) hold(spans []span, wish shared.Wish) (list []*held, err error) {
	file := s.enter()
	file.reading.Lock()
	defer file.reading.Unlock()
	defer func() {
		if err != nil {
			for _, h := range list {
				h.release()
			}
			list = nil
		}
		holding.Lock()
		defer holding.Unlock()
		file.users--
		file.leave()
	}()

	var missing []*held
	var total int64
	holding.Lock()
	for _, p := range spans {
		h := file.weights[s.part(p)]
		if h == nil {
			h = &held{span: p, part: s.part(p), file: file}
			file.weights[h.part] = h
			missing = append(missing, h)
			total += aligned(p.length)
		}
		h.holders++
		list = append(list, h)
	}
	holding.Unlock()
	if len(missing) == 0 {
		return list, s.unchanged()
	}
	r, err := s.region(missing, total, wish)
	if err != nil {
		return list, err
	}
	b := &block{region: r, weights: len(missing)}
	lie(missing, r.Bytes())
	for _, h := range missing {
		h.block = b
	}
	return list, nil
}

// region is memory with weights one after the other.
func (s *source) region(list []*held, total int64, wish shared.Wish) (region, error) {
	if wish != shared.Never {
		r, err := s.share(list, total, wish)
		if err == nil || !errors.Is(err, shared.ErrOwn) {
			return r, err
		}
	}
	if err := affordable(s.shown, total); err != nil {
		return nil, err
	}
	r, err := memory.Reserve(total)
	if err != nil {
		return nil, err
	}
	lie(list, r.Bytes())
	if err := s.fill(list); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

// lie says where in memory weights lie.
func lie(list []*held, in []byte) {
	for _, h := range list {
		h.data = in[:h.span.length:h.span.length]
		in = in[aligned(h.span.length):]
	}
}

// aligned is room for n bytes so that what follows lies at a cache line.
func aligned(n int64) int64 { return (n + 63) &^ 63 }

// readers is how many threads read at once, each up to readChunk: copying from the system's cache takes a processor.
const (
	readers   = 4
	readChunk = 8 << 20
)

// fill reads weights.
func (s *source) fill(list []*held) error {
	if s.made != nil {
		return s.made.fill(list)
	}
	if s.path == "" {
		for _, h := range list {
			b, err := s.bytes(h.span.offset, h.span.length)
			if err != nil {
				return err
			}
			copy(h.data, b)
		}
		return nil
	}
	return s.chunks(list, readChunk, func(f *os.File, chunk []byte, at int64) error { return s.readFrom(f, chunk, at) })
}

// chunks calls f with the chunks of weights of a file, and where they lie in it, from several threads.
func (s *source) chunks(list []*held, size int, f func(file *os.File, chunk []byte, at int64) error) error {
	type part struct {
		data []byte
		at   int64
	}
	var parts []part
	for _, h := range list {
		if err := s.inside(h.span.offset, h.span.length); err != nil {
			return err
		}
		at := h.span.offset
		for chunk := range slices.Chunk(h.data, size) {
			parts = append(parts, part{chunk, at})
			at += int64(len(chunk))
		}
	}
	return s.use(func(file *os.File) error {
		return onThreads(len(parts), func(next func() int) error {
			for k := next(); k < len(parts); k = next() {
				if err := f(file, parts[k].data, parts[k].at); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// onThreads calls f from as many threads as read at once, of which next gives each other numbers of n things. One
// that fails ends all.
func onThreads(n int, f func(next func() int) error) error {
	var at atomic.Int64
	threads := min(readers, runtime.GOMAXPROCS(0), n)
	errs := make([]error, threads)
	var group sync.WaitGroup
	for i := range threads {
		group.Go(func() {
			if errs[i] = f(func() int { return int(at.Add(1)) - 1 }); errs[i] != nil {
				at.Store(int64(n))
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// leave forgets a file of which nothing is held. The lock is held.
func (f *heldFile) leave() {
	if f.users == 0 && len(f.weights) == 0 && holding.files[f.key] == f {
		delete(holding.files, f.key)
	}
}

// release gives memory back that nobody holds any more.
func (h *held) release() {
	holding.Lock()
	defer holding.Unlock()
	if h.holders--; h.holders > 0 {
		return
	}
	delete(h.file.weights, h.part)
	h.file.leave()
	if h.block == nil {
		return // was never read
	}
	if h.block.weights--; h.block.weights == 0 {
		_ = h.block.region.Close() // nothing can be done about memory that stays
		return
	}
	h.block.region.Discard(h.data)
}
