package tensor

import "github.com/opgraft/graft/host/base/half"

// Floats reads a compact tensor in host memory as float64; booleans are 0 and 1.
func (t *Tensor) Floats() []float64 {
	out := make([]float64, t.Elements())
	switch t.DType {
	case Float32:
		widen(out, Elems[float32](t))
	case Float64:
		widen(out, Elems[float64](t))
	case Int8:
		widen(out, Elems[int8](t))
	case Int16:
		widen(out, Elems[int16](t))
	case Int32:
		widen(out, Elems[int32](t))
	case Int64:
		widen(out, Elems[int64](t))
	case Uint8, Bool:
		widen(out, Elems[uint8](t))
	case Uint16:
		widen(out, Elems[uint16](t))
	case Uint32:
		widen(out, Elems[uint32](t))
	case Uint64:
		widen(out, Elems[uint64](t))
	case Float16:
		for i, bits := range Elems[uint16](t) {
			out[i] = half.ToFloat(bits)
		}
	case BFloat16:
		for i, bits := range Elems[uint16](t) {
			out[i] = half.BFloatToFloat(bits)
		}
	}
	return out
}

type number interface {
	~float32 | ~float64 | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

func widen[E number](out []float64, in []E) {
	for i, v := range in {
		out[i] = float64(v)
	}
}

// Set writes one element, rounded to the tensor's type.
func (t *Tensor) Set(i int64, value float64) {
	switch t.DType {
	case Float32:
		Elems[float32](t)[i] = float32(value)
	case Float64:
		Elems[float64](t)[i] = value
	case Int8:
		Elems[int8](t)[i] = int8(value)
	case Int16:
		Elems[int16](t)[i] = int16(value)
	case Int32:
		Elems[int32](t)[i] = int32(value)
	case Int64:
		Elems[int64](t)[i] = int64(value)
	case Uint8:
		Elems[uint8](t)[i] = uint8(value)
	case Uint16:
		Elems[uint16](t)[i] = uint16(value)
	case Uint32:
		Elems[uint32](t)[i] = uint32(value)
	case Uint64:
		Elems[uint64](t)[i] = uint64(value)
	case Bool:
		Elems[uint8](t)[i] = 0
		if value != 0 {
			Elems[uint8](t)[i] = 1
		}
	case Float16:
		Elems[uint16](t)[i] = half.FromFloat(value)
	case BFloat16:
		Elems[uint16](t)[i] = half.BFloatFromFloat(value)
	}
}
