package conformance

import (
	"unsafe"

	"github.com/opgraft/graft/host/plugin/tensor"
)

// shifted makes a compact tensor that begins `shift` elements behind a 64-byte boundary.
func shifted(d tensor.DType, shape []int64, shift int64) (*tensor.Tensor, error) {
	elements := int64(1)
	for _, size := range shape {
		elements *= size
	}
	memory, err := tensor.New(d, elements+shift)
	if err != nil {
		return nil, err
	}
	return &tensor.Tensor{DType: d, Shape: shape, Data: unsafe.Add(memory.Data, shift*d.Size())}, nil
}

// reversed stores the elements of x with the first axis innermost and two places an element, the unused
// ones filled with ones, and describes that with strides.
func reversed(x *tensor.Tensor) (*tensor.Tensor, error) {
	const gap = 2
	strides := make([]int64, len(x.Shape))
	step := int64(gap)
	for axis := range x.Shape {
		strides[axis] = step
		step *= max(x.Shape[axis], 1)
	}
	memory, err := tensor.New(x.DType, step)
	if err != nil {
		return nil, err
	}
	bytes, width := memory.Bytes(), x.DType.Size()
	for i := range bytes {
		bytes[i] = 0xff
	}
	for i := range x.Elements() {
		rest, to := i, int64(0)
		for axis := len(x.Shape) - 1; axis >= 0; axis-- {
			to += rest % x.Shape[axis] * strides[axis]
			rest /= x.Shape[axis]
		}
		copy(bytes[to*width:(to+1)*width], x.Bytes()[i*width:])
	}
	return &tensor.Tensor{DType: x.DType, Shape: x.Shape, Strides: strides, Data: memory.Data}, nil
}
