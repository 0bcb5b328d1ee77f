package half

import (
	"math"
	"testing"
)

func TestHalves(t *testing.T) {
	for bits := range 1 << 16 {
		if v := ToFloat(uint16(bits)); math.IsNaN(v) {
			if back := FromFloat(v); back&0x7c00 != 0x7c00 || back&0x3ff == 0 {
				t.Fatalf("NaN %#x becomes %#x", bits, back)
			}
		} else if back := FromFloat(v); back != uint16(bits) {
			t.Fatalf("half %#x is %v, back it is %#x", bits, v, back)
		}
		if v := BFloatToFloat(uint16(bits)); math.IsNaN(v) {
			if back := BFloatFromFloat(v); back&0x7f80 != 0x7f80 || back&0x7f == 0 {
				t.Fatalf("NaN %#x becomes %#x", bits, back)
			}
		} else if back := BFloatFromFloat(v); back != uint16(bits) {
			t.Fatalf("bfloat16 %#x is %v, back it is %#x", bits, v, back)
		}
	}
	for _, test := range []struct {
		value        float64
		half, bfloat uint16
	}{
		{1 + 1.0/2048, 0x3c00, 0x3f80},    // a tie in half, to even
		{1 + 3.0/2048, 0x3c02, 0x3f80},    // a tie, to even upwards
		{1 + 1.0/256, 0x3c04, 0x3f80},     // a tie in bfloat16
		{1 + 3.0/256, 0x3c0c, 0x3f82},     // a tie, to even upwards
		{65519, 0x7bff, 0x4780},           // the largest half
		{65520, 0x7c00, 0x4780},           // beyond it
		{math.Ldexp(1, -25), 0, 0x3300},   // half of the smallest half, to even
		{math.Ldexp(1.5, -25), 1, 0x3340}, // above that
		{2047.0 / 2048, 0x3bff, 0x3f80},   // below 1
		{math.Ldexp(-1, -24), 0x8001, 0xb380},
	} {
		if half, bfloat := FromFloat(test.value), BFloatFromFloat(test.value); half != test.half || bfloat != test.bfloat {
			t.Errorf("%v is %#x and %#x, want %#x and %#x", test.value, half, bfloat, test.half, test.bfloat)
		}
	}
}
