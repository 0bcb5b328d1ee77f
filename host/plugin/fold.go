package plugin

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Fold computes weights from weights for an operator of the manifest. An error of kind ErrRefused means
// that the constants do not qualify, and the place in the model stays as it is.
func (p *Plugin) Fold(operator string, constants []tensor.Weight, attributes []manifest.Attribute) ([]tensor.Weight,
	error) {
	what := "fold of " + operator
	if err := p.elsewhere(what); err != nil {
		return nil, err
	}
	if p.table.Fold == 0 {
		return nil, &diagnostic.Error{Kind: refusal.ErrKernel, Path: p.Path, Found: "found no fold function",
			Needed: "one for operator " + operator}
	}
	attrs, err := cAttributes(attributes)
	if err != nil {
		return nil, p.misuse(what, err)
	}
	named := make([]*abi.NamedTensor, len(constants))
	for i, w := range constants {
		t, err := w.Tensor()
		if err != nil {
			return nil, p.misuse(what, err)
		}
		c, err := t.ABI()
		if err != nil {
			return nil, p.misuse(what, err)
		}
		named[i] = &abi.NamedTensor{Size: uint64(unsafe.Sizeof(abi.NamedTensor{})), Name: abi.CString(w.Name), Tensor: c}
	}
	var (
		out    []tensor.Weight
		faulty error
	)
	take := &emitter{take: func(name string, tensor *abi.Tensor) int32 {
		w, err := copyWeight(name, tensor)
		if err != nil {
			faulty = p.misuse(what, err)
			return abi.ErrorInvalidArgument
		}
		out = append(out, w)
		return abi.OK
	}}
	request := &abi.FoldRequest{
		Size: uint64(unsafe.Sizeof(abi.FoldRequest{})), OperatorName: abi.CString(operator),
		Constants: unsafe.SliceData(named), NumConstants: uint32(len(named)),
		Attributes: unsafe.SliceData(attrs), NumAttributes: uint32(len(attrs)),
		Emit: emit(), EmitContext: unsafe.Pointer(take),
	}
	err = p.invoke(what, p.table.Fold, newMessage(), uintptr(unsafe.Pointer(request)))
	runtime.KeepAlive(constants)
	runtime.KeepAlive(attributes)
	if faulty != nil {
		return nil, faulty
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// maxFolded bounds one result of a fold: 8 GiB of float64.
const maxFolded = 1 << 30

// copyWeight takes what a plugin emitted.
func copyWeight(name string, c *abi.Tensor) (tensor.Weight, error) {
	switch {
	case !manifest.IsValueName(name):
		return tensor.Weight{}, fmt.Errorf("it emitted a constant called %q", diagnostic.Clip(name))
	case c == nil || c.Ndim < 0 || c.Ndim > abi.MaxRank || (c.Ndim > 0 && c.Shape == nil):
		return tensor.Weight{}, fmt.Errorf("it emitted %s without a shape", name)
	case c.Strides != nil && !compact(c):
		return tensor.Weight{}, fmt.Errorf("it emitted %s with strides, needed a compact tensor", name)
	}
	w := tensor.Weight{Name: name, Shape: append([]int64{}, unsafe.Slice(c.Shape, c.Ndim)...)}
	n, err := tensor.Elements(w.Shape)
	if err != nil {
		return tensor.Weight{}, fmt.Errorf("it emitted %s: %w", name, err)
	}
	if n > maxFolded || (n > 0 && c.Data == nil) {
		return tensor.Weight{}, fmt.Errorf("it emitted %s with %d elements at %p, needed at most %d", name, n, c.Data,
			maxFolded)
	}
	data := unsafe.Add(c.Data, c.ByteOffset)
	switch dtype, _ := tensor.DTypeOf(c.Dtype); dtype {
	case tensor.Float64:
		w.Floats = append(make([]float64, 0, n), unsafe.Slice((*float64)(data), n)...)
	case tensor.Int64:
		w.Ints = append(make([]int64, 0, n), unsafe.Slice((*int64)(data), n)...)
	default:
		return tensor.Weight{}, fmt.Errorf("it emitted %s with type code %d of %d bits, needed float64 or int64", name,
			c.Dtype.Code, c.Dtype.Bits)
	}
	return w, nil
}

// compact reports whether strides are those of a row-major tensor.
func compact(c *abi.Tensor) bool {
	step := int64(1)
	shape, strides := unsafe.Slice(c.Shape, c.Ndim), unsafe.Slice(c.Strides, c.Ndim)
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] != 1 && strides[i] != step {
			return false
		}
		step *= shape[i]
	}
	return true
}
