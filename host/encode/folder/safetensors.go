package folder

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/half"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/storage"
)

// maxWeights is the greatest tensor that is read, in bytes.
const maxWeights = 1 << 30

// weights is a tensor of a file.
type weights struct {
	shape  []int
	values []float32
}

// safetensors is a file of tensors, which are read one by one: most of a model's are in its graph too.
type safetensors struct {
	io.Closer
	path   string
	from   io.ReaderAt // the bytes of the tensors
	size   int64
	header map[string]json.RawMessage
}

// openSafetensors opens the weights of a module.
func openSafetensors(path, what string) (*safetensors, error) {
	f, err := storage.OpenRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		e := &diagnostic.Error{Path: path, Found: "there is no such file", Needed: "the weights of the " + what, Cause: err}
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "pytorch_model.bin")); err == nil {
			e.Found, e.Needed = "only pytorch_model.bin, which is a program in Python's pickle", "model.safetensors"
			e.Fix = "load the model with sentence-transformers and save it again: SentenceTransformer(FOLDER).save(FOLDER)"
		}
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	s := &safetensors{Closer: f, path: path}
	info, err := f.Stat()
	if err == nil {
		err = s.read(f, info.Size())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return s, nil
}

// read reads a length of 8 bytes and a header of JSON, after which the bytes of tensors come.
func (s *safetensors) read(from io.ReaderAt, all int64) error {
	var size [8]byte
	if _, err := from.ReadAt(size[:], 0); err != nil {
		return &diagnostic.Error{Path: s.path, Found: fmt.Sprintf("%d bytes", all), Needed: "the header of safetensors"}
	}
	n := binary.LittleEndian.Uint64(size[:])
	if n > uint64(all-8) || n > limit.Config {
		return &diagnostic.Error{Path: s.path, Found: fmt.Sprintf("a header of %d bytes in a file of %d", n, all),
			Needed: "one that lies in the file"}
	}
	text := make([]byte, n)
	if _, err := from.ReadAt(text, 8); err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	if err := json.Unmarshal(text, &s.header); err != nil {
		return &diagnostic.Error{Path: s.path, Found: "a header that is no JSON of tensors: " + err.Error(),
			Needed: "names with dtype, shape and data_offsets"}
	}
	s.size = all - 8 - int64(n)
	s.from = io.NewSectionReader(from, 8+int64(n), s.size)
	return nil
}

func (s *safetensors) has(name string) bool { return s.header[name] != nil }

// elements are the bytes of an element, by the name of its type.
var elements = map[string]int64{"F32": 4, "F16": 2, "BF16": 2, "F64": 8, "I64": 8, "I32": 4, "I8": 1, "U8": 1}

// take reads a tensor as float32. Its shape is the one that is asked for, where -1 is any length.
func (s *safetensors) take(name string, shape ...int) (w weights, err error) {
	refuse := func(found string) (weights, error) {
		return w, &diagnostic.Error{Path: s.path, Found: found, Needed: fmt.Sprint(shape)}
	}
	text, ok := s.header[name]
	if !ok {
		return refuse(name + " is missing")
	}
	var h struct {
		Type    string   `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return refuse(fmt.Sprintf("tensor %q: %v", diagnostic.Clip(name), err))
	}
	fits, n := len(h.Shape) == len(shape), int64(1)
	for i, d := range h.Shape {
		fits = fits && (shape[i] == d || shape[i] < 0 && d > 0)
		if d < 0 || d > maxWeights || n > maxWeights {
			fits = false
			break
		}
		n *= int64(d)
	}
	if !fits {
		return refuse(fmt.Sprintf("%s has the shape %v", diagnostic.Clip(name), h.Shape))
	}
	bytes, known := elements[h.Type]
	if !known {
		return refuse(fmt.Sprintf("%s is of the type %q", diagnostic.Clip(name), diagnostic.Clip(h.Type)))
	}
	from, to := h.Offsets[0], h.Offsets[1]
	if from < 0 || to < from || to > s.size || to-from != n*bytes || to-from > maxWeights {
		return refuse(fmt.Sprintf("tensor %q of shape %v at %v of %d bytes", diagnostic.Clip(name), h.Shape, h.Offsets,
			s.size))
	}
	data := make([]byte, to-from)
	if _, err := s.from.ReadAt(data, from); err != nil {
		return w, fmt.Errorf("%s: %w", s.path, err)
	}
	return weights{h.Shape, numbers(data, h.Type, int(n))}, nil
}

func numbers(data []byte, kind string, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		switch kind {
		case "F32":
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		case "F64":
			out[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:])))
		case "F16":
			out[i] = float32(half.ToFloat(binary.LittleEndian.Uint16(data[2*i:])))
		case "BF16":
			out[i] = float32(half.BFloatToFloat(binary.LittleEndian.Uint16(data[2*i:])))
		case "I64":
			out[i] = float32(int64(binary.LittleEndian.Uint64(data[8*i:])))
		case "I32":
			out[i] = float32(int32(binary.LittleEndian.Uint32(data[4*i:])))
		case "I8":
			out[i] = float32(int8(data[i]))
		case "U8":
			out[i] = float32(data[i])
		}
	}
	return out
}
