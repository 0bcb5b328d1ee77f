package fold

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"unsafe"

	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// elements is how the numbers of a result are stored.
type elements uint32

const (
	float32s elements = 4 // for kernels
	float64s elements = 8 // as plugins emit them, integers too
)

// Weight is a folded constant. Its elements lie outside Go's heap.
type Weight struct {
	Name   string
	Shape  []int64
	Floats []float32 // row-major, a view into the Result
}

// Result is what a fold emitted.
type Result struct {
	refusal string // why there is nothing; then the rest is empty
	layout  []stored
	data    *memory.Region
}

// stored is one constant of a file. Its elements begin at Offset of the data.
type stored struct {
	Name   string  `json:"name"`
	Shape  []int64 `json:"shape"`
	Offset int64   `json:"offset"`
	// Size is the bytes of an element. Integers have 8, two's complement.
	Size    int64 `json:"size"`
	Integer bool  `json:"integer,omitempty"`
	// Type is that of a tensor's elements; "" for what a plugin emitted.
	Type string `json:"type,omitempty"`
}

// Weights are views of the floating-point constants, valid until Close. Nothing may
// write to them.
func (r *Result) Weights() []Weight {
	var out []Weight
	for _, s := range r.layout {
		if s.Size == int64(float32s) && s.Type == "" {
			out = append(out, Weight{s.Name, s.Shape, view[float32](r, s)})
		}
	}
	return out
}

// Size is the bytes that it takes.
func (r *Result) Size() int64 { return r.data.Size() }

// Close gives the memory back; Weights are gone with it.
func (r *Result) Close() error { return r.data.Close() }

// view is a constant's elements in place.
func view[T float32 | float64 | int64](r *Result, s stored) []T {
	n := count(s.Shape)
	if n == 0 {
		return []T{}
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&r.data.Bytes()[s.Offset])), n)
}

// count is the number of elements of a shape that was checked.
func count(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// alignment of each constant: a cache line.
const alignment = 64

func aligned(n int64) int64 { return (n + alignment - 1) / alignment * alignment }

// pack copies what a plugin emitted. As float32s, there may be no integers.
func pack(weights []tensor.Weight, as elements) (*Result, error) {
	r := &Result{}
	total := int64(0)
	for _, w := range weights {
		s := stored{Name: w.Name, Shape: w.Shape, Offset: total, Size: int64(as), Integer: w.Floats == nil && w.Ints != nil}
		if s.Integer && as == float32s {
			return nil, fmt.Errorf("found the integers %s, needed real numbers", w.Name)
		}
		r.layout = append(r.layout, s)
		total = aligned(total + s.Size*count(s.Shape))
	}
	var err error
	if r.data, err = memory.Reserve(max(total, alignment)); err != nil {
		return nil, err
	}
	for i, s := range r.layout {
		switch w := weights[i]; {
		case s.Integer:
			copy(view[int64](r, s), w.Ints)
		case as == float64s:
			copy(view[float64](r, s), w.Floats)
		default:
			to := view[float32](r, s)
			for k, x := range w.Floats {
				to[k] = float32(x)
			}
		}
	}
	return r, nil
}

// unpack is what pack copied.
func (r *Result) unpack() []tensor.Weight {
	out := make([]tensor.Weight, len(r.layout))
	for i, s := range r.layout {
		out[i] = tensor.Weight{Name: s.Name, Shape: s.Shape}
		if s.Integer {
			out[i].Ints = append([]int64{}, view[int64](r, s)...)
		} else {
			out[i].Floats = append([]float64{}, view[float64](r, s)...)
		}
	}
	return out
}

// A file is a prelude, a header and the data. The prelude holds the magic, the lengths
// of the other two (uint64, little endian) and the SHA-256 of everything before and
// after it: nothing of a file is trusted before all of it was hashed.
const (
	magic     = "GRFTFLD1"
	hashStart = 24
	prelude   = hashStart + sha256.Size
)

type header struct {
	Version string   `json:"version"`
	Order   string   `json:"order"` // of bytes
	Refusal string   `json:"refusal,omitempty"`
	Weights []stored `json:"weights,omitempty"`
}

// errDamaged is a file that is not what was written.
var errDamaged = errors.New("damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errDamaged, fmt.Sprintf(format, args...))
}

// Limits of a header and of the data, so that lengths cannot overflow.
const (
	maxHeader = 1 << 20
	maxData   = 1 << 40
)

// byteOrder is this machine's: data is used in place, so the file has it, and a file
// of the other order is not for this machine.
func byteOrder() string {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return "little"
	}
	return "big"
}

func (r *Result) write(w io.Writer) error {
	head, err := json.Marshal(header{version, byteOrder(), r.refusal, r.layout})
	if err != nil {
		return err
	}
	var data []byte
	if r.data != nil {
		data = r.data.Bytes()
	}
	start := make([]byte, prelude)
	copy(start, magic)
	binary.LittleEndian.PutUint64(start[8:], uint64(len(head)))
	binary.LittleEndian.PutUint64(start[16:], uint64(len(data)))
	copy(start[hashStart:], checksum(start, head, data))
	for _, part := range [][]byte{start, head, data} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// checksum covers the lengths, the header and the data.
func checksum(start, head, data []byte) []byte {
	h := sha256.New()
	h.Write(start[:hashStart])
	h.Write(head)
	h.Write(data)
	return h.Sum(nil)
}

// read reads a file. Errors that are errDamaged mean that the file is to be removed.
func read(path string) (*Result, error) {
	f, err := storage.OpenOwn(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	start := make([]byte, prelude)
	if _, err := io.ReadFull(f, start); err != nil {
		return nil, whole(err)
	}
	if !bytes.HasPrefix(start, []byte(magic)) {
		return nil, damaged("found %q at its start, needed %q", start[:len(magic)], magic)
	}
	headSize, dataSize := binary.LittleEndian.Uint64(start[8:]), binary.LittleEndian.Uint64(start[16:])
	if headSize > maxHeader || dataSize > maxData || prelude+headSize+dataSize != uint64(info.Size()) {
		return nil, damaged("found %d bytes, needed %d + %d + %d", info.Size(), prelude, headSize, dataSize)
	}
	head := make([]byte, headSize)
	if _, err := io.ReadFull(f, head); err != nil {
		return nil, whole(err)
	}
	r := &Result{}
	var data []byte
	if dataSize > 0 {
		if r.data, err = memory.Reserve(int64(dataSize)); err != nil {
			return nil, err
		}
		data = r.data.Bytes()
	}
	if _, err = io.ReadFull(f, data); err != nil {
		err = whole(err)
	} else {
		err = r.accept(start, head, data)
	}
	if err != nil {
		r.data.Close()
		return nil, err
	}
	return r, nil
}

// whole makes damage of a file's early end.
func whole(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged("it ends early")
	}
	return err
}

// accept checks what was read and takes the header's content.
func (r *Result) accept(start, head, data []byte) error {
	if !bytes.Equal(checksum(start, head, data), start[hashStart:]) {
		return damaged("the checksum does not hold")
	}
	var h header
	if err := json.Unmarshal(head, &h); err != nil {
		return damaged("its header: %v", err)
	}
	if h.Version != version || h.Order != byteOrder() {
		return damaged("found version %q and byte order %q, needed %q and %q", h.Version, h.Order, version, byteOrder())
	}
	for _, s := range h.Weights {
		n := int64(1)
		for _, d := range s.Shape {
			if d < 0 || d > 0 && n > math.MaxInt64/16/d {
				return damaged("%s has the shape %v", s.Name, s.Shape)
			}
			n *= d
		}
		known := s.Size == int64(float32s) || s.Size == int64(float64s)
		if s.Type != "" {
			known = s.Size > 0 && s.Size == tensor.DType(s.Type).Size()
		}
		if !known || s.Offset < 0 || s.Offset%alignment != 0 ||
			n*s.Size > int64(len(data))-s.Offset {
			return damaged("%s of shape %v lies at %d of %d bytes", s.Name, s.Shape, s.Offset, len(data))
		}
	}
	if h.Refusal == "" && data == nil {
		return damaged("it holds neither weights nor a refusal")
	}
	r.refusal, r.layout = h.Refusal, h.Weights
	return nil
}
