// Package padding compares sessions whose padding is removed with ONNX Runtime's own, over random masks.
package padding

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/opgraft/graft/host/ort"
)

// forms are ways to hide tokens of a sequence.
var forms = []string{"none", "right", "left", "both", "holes", "one", "all"}

// mask hides tokens of a batch, each sequence in a form of its own. empty lets a sequence be hidden wholly.
func mask(r *rand.Rand, batch, positions int, empty bool) []bool {
	visible := make([]bool, batch*positions)
	for b := range batch {
		row := visible[b*positions : (b+1)*positions]
		n := len(forms)
		if !empty {
			n--
		}
		length := 0
		if positions > 0 {
			length = 1 + r.IntN(positions)
		}
		start := 0
		switch form := forms[r.IntN(n)]; form {
		case "none":
			length = positions
		case "left":
			start = positions - length
		case "both":
			start = r.IntN(positions - length + 1)
		case "one":
			length, start = min(1, positions), r.IntN(max(1, positions))
		case "all":
			length = 0
		case "holes":
			for i := range row {
				row[i] = r.IntN(3) > 0
			}
			if positions > 0 {
				row[r.IntN(positions)] = true
			}
			continue
		}
		for i := start; i < start+length; i++ {
			row[i] = true
		}
	}
	return visible
}

// write puts a mask into a tensor: 1 where a token is visible or, where it is added to scores, 0 there and a number
// below all scores where it is hidden.
func write(v *ort.Value, visible []bool, added bool) error {
	b, err := v.Bytes()
	if err != nil {
		return err
	}
	size := len(b) / max(1, len(visible))
	for i, seen := range visible {
		x := uint64(0)
		if seen {
			x = 1
		}
		at := b[i*size : (i+1)*size]
		switch v.Element() {
		case ort.Int64:
			binary.LittleEndian.PutUint64(at, x)
		case ort.Int32:
			binary.LittleEndian.PutUint32(at, uint32(x))
		case ort.Float32:
			if added {
				x := float32(0)
				if !seen {
					x = []float32{-1e4, -math.MaxFloat32, float32(math.Inf(-1))}[i%3]
				}
				binary.LittleEndian.PutUint32(at, math.Float32bits(x))
				break
			}
			binary.LittleEndian.PutUint32(at, math.Float32bits(float32(x)))
		case ort.Bool:
			at[0] = byte(x)
		}
	}
	return nil
}
