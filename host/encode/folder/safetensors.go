package folder

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/half"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/storage"
)

// maxWeights is the greatest file of weights that is read, in bytes.
const maxWeights = 1 << 30

// weights is a tensor of a file.
type weights struct {
	shape  []int
	values []float32
}

// readSafetensors reads the floats of a file of safetensors.
func readSafetensors(path string) (map[string]weights, error) {
	data, err := storage.ReadRegular(path, maxWeights)
	if err != nil {
		return nil, err
	}
	tensors, err := parseSafetensors(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return tensors, nil
}

// parseSafetensors reads a length of 8 bytes, a header of JSON and the bytes of tensors.
func parseSafetensors(data []byte) (map[string]weights, error) {
	if len(data) < 8 {
		return nil, &diagnostic.Error{Found: fmt.Sprintf("%d bytes", len(data)), Needed: "the header of safetensors"}
	}
	size := binary.LittleEndian.Uint64(data)
	if size > uint64(len(data)-8) || size > limit.Config {
		return nil, &diagnostic.Error{Found: fmt.Sprintf("a header of %d bytes in a file of %d", size, len(data)),
			Needed: "one that lies in the file"}
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(data[8:8+size], &header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	data = data[8+size:]
	tensors := map[string]weights{}
	for name, text := range header {
		if name == "__metadata__" {
			continue
		}
		var h struct {
			Type    string   `json:"dtype"`
			Shape   []int    `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(text, &h); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", diagnostic.Clip(name), err)
		}
		bytes := map[string]int64{"F32": 4, "F16": 2, "BF16": 2, "F64": 8}[h.Type]
		n := int64(1)
		for _, d := range h.Shape {
			if d < 0 || d > maxWeights || n > maxWeights {
				n = -1
				break
			}
			n *= int64(d)
		}
		if bytes == 0 {
			continue // no floats: nothing that is asked for
		}
		from, to := h.Offsets[0], h.Offsets[1]
		if n < 0 || from < 0 || to < from || to > int64(len(data)) || to-from != n*bytes {
			return nil, &diagnostic.Error{Found: fmt.Sprintf("tensor %q of shape %v at %v of %d bytes", diagnostic.Clip(name),
				h.Shape, h.Offsets, len(data)), Needed: "its bytes in the file"}
		}
		tensors[name] = weights{h.Shape, floats(data[from:to], h.Type, int(n))}
	}
	return tensors, nil
}

func floats(data []byte, kind string, n int) []float32 {
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
		}
	}
	return out
}
