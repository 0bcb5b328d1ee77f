package inputs

import (
	"math"
	"testing"

	"github.com/opgraft/graft/host/graph"
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
