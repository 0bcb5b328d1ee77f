package text

import (
	"math"
	"strconv"
)

// readNumber reads a JSON number as tokenizers does: not to the nearest double
// but by one multiplication or division of its digits with a power of ten. The
// last bit of a score decides between ways of equal length through a run of
// equal characters, so it has to be the same bit.
func readNumber(s string) (float64, error) {
	nearest, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, err
	}
	digits := uint64(0)
	exponent := 0
	i := 0
	if s[0] == '-' {
		i++
	}
	decimal := false
	for full := false; i < len(s) && (s[i] == '.' || s[i] >= '0' && s[i] <= '9'); i++ {
		if s[i] == '.' {
			decimal = true
			continue
		}
		d := uint64(s[i] - '0')
		if full || digits > (math.MaxUint64-d)/10 {
			if !decimal { // more than 19 digits before the point
				return nearest, nil
			}
			full = true // what follows is dropped
			continue
		}
		digits = digits*10 + d
		if decimal {
			exponent--
		}
	}
	if i < len(s) { // e or E: ParseFloat has seen that it is one
		e, err := strconv.Atoi(s[i+1:])
		if err != nil {
			return nearest, nil
		}
		exponent += e
	}
	f := float64(digits)
	for exponent < -308 && f != 0 {
		f /= 1e308
		exponent += 308
	}
	if exponent > 308 || exponent < -308 {
		return nearest, nil
	}
	// The tables of powers hold the nearest doubles, as ParseFloat gives them.
	power, err := strconv.ParseFloat("1e"+strconv.Itoa(max(exponent, -exponent)), 64)
	if err != nil {
		return 0, err
	}
	if exponent < 0 {
		f /= power
	} else {
		f *= power
	}
	if s[0] == '-' {
		f = -f
	}
	return f, nil
}
