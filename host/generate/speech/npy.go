package speech

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/opgraft/graft/host/base/npy"
)

// readNPY reads features from a NumPy file: float32 of the shape [mel bins, frames],
// or the same with a 1 before.
func readNPY(r io.Reader, shape []int64) ([]float32, error) {
	h, err := npy.ReadHeader(r)
	if err != nil {
		return nil, err
	}
	if h.Type != "<f4" {
		return nil, fmt.Errorf("the NumPy file holds numbers of type %s, needed are <f4: save features.astype(numpy.float32)",
			h.Type)
	}
	inner := h.Shape
	if len(inner) == 3 && inner[0] == 1 {
		inner = inner[1:]
	}
	if len(inner) != 2 || inner[0] != shape[1] || inner[1] != shape[2] {
		return nil, fmt.Errorf("the NumPy file has the shape %d, needed is [%d %d], mel bins and frames", h.Shape, shape[1],
			shape[2])
	}
	data := make([]byte, 4*shape[1]*shape[2])
	if read, err := io.ReadFull(r, data); err != nil {
		return nil, fmt.Errorf("the NumPy file ends after %d of %d bytes", read, len(data))
	}
	data = h.Rows(data, 4)
	values := make([]float32, shape[1]*shape[2])
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		if v := float64(values[i]); math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("feature %d of bin %d is %g", int64(i)%shape[2], int64(i)/shape[2], v)
		}
	}
	return values, nil
}
