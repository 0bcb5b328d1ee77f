package ab

import (
	"math"
	"testing"

	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model/onnx"
	"github.com/opgraft/graft/host/ort"
)

// TestHalfRoundTrip: every half precision number becomes itself again.
func TestHalfRoundTrip(t *testing.T) {
	for bits := range 1 << 16 {
		x := graph.HalfToFloat(uint16(bits))
		got := halfBits(x)
		if math.IsNaN(x) {
			if back := graph.HalfToFloat(got); !math.IsNaN(back) {
				t.Fatalf("%#04x is NaN and became %g", bits, back)
			}
			continue
		}
		if got != uint16(bits) {
			t.Fatalf("%#04x is %g and became %#04x", bits, x, got)
		}
	}
}

// TestHalfRounding: between neighbours the nearest is taken, at the middle the
// even one.
func TestHalfRounding(t *testing.T) {
	for bits := range uint16(0x7bff) {
		x, y := graph.HalfToFloat(bits), graph.HalfToFloat(bits+1)
		middle := (x + y) / 2
		even := bits + bits&1
		for _, c := range []struct {
			x    float64
			want uint16
		}{{math.Nextafter(middle, x), bits}, {middle, even}, {math.Nextafter(middle, y), bits + 1}} {
			if got := halfBits(c.x); got != c.want {
				t.Fatalf("%g becomes %#04x, want %#04x", c.x, got, c.want)
			}
			if got := halfBits(-c.x); got != c.want|0x8000 {
				t.Fatalf("%g becomes %#04x, want %#04x", -c.x, got, c.want|0x8000)
			}
		}
	}
	for x, want := range map[float64]uint16{65519.999: 0x7bff, 65520: 0x7c00, 1e300: 0x7c00, 1e-300: 0, math.Inf(-1): 0xfc00} {
		if got := halfBits(x); got != want {
			t.Errorf("%g becomes %#04x, want %#04x", x, got, want)
		}
	}
}

// TestReader: numbers written in a type are read back.
func TestReader(t *testing.T) {
	for kind, element := range map[onnx.Tensor_DataType]ort.ElementType{
		onnx.Tensor_FLOAT: ort.Float32, onnx.Tensor_DOUBLE: ort.Float64, onnx.Tensor_FLOAT16: ort.Float16, onnx.Tensor_BFLOAT16: ort.BFloat16,
	} {
		var data []byte
		want := []float64{0, 1, -2.5, 0.09375, -96}
		for _, x := range want {
			var err error
			if data, err = appendNumber(data, kind, x); err != nil {
				t.Fatal(err)
			}
		}
		read := reader(element)
		for i, x := range want {
			if got := read(data, int64(i)); got != x {
				t.Errorf("%s: %g was read as %g", element, x, got)
			}
		}
	}
	if reader(ort.Int64) != nil {
		t.Error("integers are read as floats")
	}
	if _, err := appendNumber(nil, onnx.Tensor_STRING, 1); err == nil {
		t.Error("a number became a string")
	}
}
