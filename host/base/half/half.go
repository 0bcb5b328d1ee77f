// Package half converts the two floating-point formats of 16 bits, IEEE half and bfloat16.
package half

import "math"

// ToFloat widens the bits of an IEEE half.
func ToFloat(bits uint16) float64 {
	exponent, fraction := int(bits>>10&31), float64(bits&1023)
	value := math.Ldexp(1024+fraction, exponent-25)
	switch {
	case exponent == 0:
		value = math.Ldexp(fraction, -24)
	case exponent == 31 && fraction == 0:
		value = math.Inf(1)
	case exponent == 31:
		return math.NaN()
	}
	if bits&0x8000 != 0 {
		value = -value
	}
	return value
}

// FromFloat gives the bits of the nearest half, of two the even one.
func FromFloat(value float64) uint16 {
	var sign uint16
	if math.Signbit(value) {
		sign = 0x8000
	}
	magnitude := math.Abs(value)
	switch {
	case math.IsNaN(value):
		return sign | 0x7e00
	case magnitude >= 65520:
		return sign | 0x7c00
	case magnitude == 0:
		return sign
	}
	_, exponent := math.Frexp(magnitude)
	unit := max(exponent-11, -24) // of the last place
	steps := uint16(math.RoundToEven(math.Ldexp(magnitude, -unit)))
	if unit == -24 {
		return sign | steps
	}
	// steps is 1024 to 2048, whose carry into the exponent is right.
	return sign | (uint16(unit+24)<<10 + steps)
}

// BFloatToFloat widens the bits of a bfloat16.
func BFloatToFloat(bits uint16) float64 { return float64(math.Float32frombits(uint32(bits) << 16)) }

// BFloatFromFloat gives the bits of the nearest bfloat16, of two the even one.
func BFloatFromFloat(value float64) uint16 {
	bits := math.Float32bits(float32(value))
	if math.IsNaN(value) {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
