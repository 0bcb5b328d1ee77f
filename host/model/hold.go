package model

import (
	"os"
	"runtime"
	"slices"
	"sync"

	"github.com/opgraft/graft/host/memory"
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
	region  *memory.Region
	weights int // that are held
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
		if file.key = identityOf(s.info); file.key.lasting() {
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

// hold reads parts of a source into memory, once for all sessions of the process that read the same file. Each part
// is to be released once.
func (s *source) hold(spans []span) (list []*held, err error) {
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
	if err := affordable(s.shown, total); err != nil {
		return list, err
	}
	region, err := memory.Reserve(total)
	if err != nil {
		return list, err
	}
	b := &block{region: region, weights: len(missing)}
	rest := region.Bytes()
	for _, h := range missing {
		h.data, h.block = rest[:h.span.length:h.span.length], b
		rest = rest[aligned(h.span.length):]
	}
	return list, s.fill(missing)
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
	type part struct {
		to []byte
		at int64
	}
	var parts []part
	for _, h := range list {
		if err := s.inside(h.span.offset, h.span.length); err != nil {
			return err
		}
		at := h.span.offset
		for chunk := range slices.Chunk(h.data, readChunk) {
			parts = append(parts, part{chunk, at})
			at += int64(len(chunk))
		}
	}
	return s.use(func(f *os.File) error {
		threads := min(readers, runtime.GOMAXPROCS(0), len(parts))
		errs := make([]error, threads)
		var group sync.WaitGroup
		for i := range threads {
			group.Go(func() {
				for k := i; k < len(parts) && errs[i] == nil; k += threads {
					errs[i] = s.readFrom(f, parts[k].to, parts[k].at)
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
	})
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
