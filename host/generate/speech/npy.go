package speech

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// npyMagic begins a NumPy file.
const npyMagic = "\x93NUMPY"

var (
	npyDescr   = regexp.MustCompile(`['"]descr['"]\s*:\s*['"]([^'"]*)['"]`)
	npyFortran = regexp.MustCompile(`['"]fortran_order['"]\s*:\s*(True|False)`)
	npyShape   = regexp.MustCompile(`['"]shape['"]\s*:\s*\(([^)]*)\)`)
)

// readNPY reads features from a NumPy file: float32 of the shape [mel bins, frames],
// or the same with a 1 before.
func readNPY(r io.Reader, shape []int64) ([]float32, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil || string(head[:6]) != npyMagic {
		return nil, errors.New("it is no NumPy file")
	}
	length := make([]byte, 2)
	if head[6] > 1 {
		length = make([]byte, 4)
	}
	if _, err := io.ReadFull(r, length); err != nil {
		return nil, errors.New("the NumPy file ends in its head")
	}
	n := int(binary.LittleEndian.Uint16(length))
	if len(length) == 4 {
		n = int(min(binary.LittleEndian.Uint32(length), 1<<20))
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, errors.New("the NumPy file ends in its head")
	}
	descr, fortran, dims := npyDescr.FindSubmatch(text), npyFortran.FindSubmatch(text), npyShape.FindSubmatch(text)
	if descr == nil || fortran == nil || dims == nil {
		return nil, fmt.Errorf("the NumPy file's head %q is not understood", text[:min(n, 80)])
	}
	if string(descr[1]) != "<f4" || string(fortran[1]) != "False" {
		return nil, fmt.Errorf("the NumPy file holds numbers of type %s with fortran_order %s; needed are <f4 (float32) "+
			"and False: save numpy.ascontiguousarray(features, dtype=numpy.float32)", descr[1], fortran[1])
	}
	found := []int64{}
	for part := range strings.SplitSeq(string(dims[1]), ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		d, err := strconv.ParseInt(part, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the NumPy file's shape (%s) is not understood", dims[1])
		}
		found = append(found, d)
	}
	inner := found
	if len(inner) == 3 && inner[0] == 1 {
		inner = inner[1:]
	}
	if len(inner) != 2 || inner[0] != shape[1] || inner[1] != shape[2] {
		return nil, fmt.Errorf("the NumPy file has the shape %d, needed is [%d %d], mel bins and frames", found, shape[1],
			shape[2])
	}
	data := make([]byte, 4*shape[1]*shape[2])
	if read, err := io.ReadFull(r, data); err != nil {
		return nil, fmt.Errorf("the NumPy file ends after %d of %d bytes", read, len(data))
	}
	values := make([]float32, shape[1]*shape[2])
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		if v := float64(values[i]); math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("feature %d of bin %d is %g", int64(i)%shape[2], int64(i)/shape[2], v)
		}
	}
	return values, nil
}
