package isolation

import (
	"fmt"
	"sync/atomic"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Kernel is a plugin's kernel of one node, which each worker makes anew. Its methods may be called at once, but for
// Close.
type Kernel struct {
	of              *Isolated
	number          uint64
	operator        string
	attributes      []signature.Attribute
	inputs, outputs int
	wants           []bool      // outputs that the node has
	constants       []placed    // in the memory of constants
	constant        map[int]int // input -> index in constants
}

type placed struct {
	constant
	size int64
}

var numbers atomic.Uint64

// Kernel makes the kernel of a node that is asked for shapes, without constants.
func (x *Isolated) Kernel(operator string, attributes []manifest.Attribute, inputs int) (*Kernel, error) {
	k := &Kernel{of: x, operator: operator, inputs: inputs}
	op := signature.Find(x.apart.Info.Operators, operator)
	if op == nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: x.path,
			Found: fmt.Sprintf("found no operator %q", operator)}
	}
	for _, a := range attributes {
		if value, ok := signature.As(op.Kind(a.Name), a.Value); ok {
			k.attributes = append(k.attributes, signature.Attribute{Name: a.Name, Kind: op.Kind(a.Name), Default: value})
		} else {
			return nil, &diagnostic.Error{Kind: refusal.ErrKernel, Path: x.path,
				Found: fmt.Sprintf("create of %s: attribute %s is %v, needed is %s", operator, a.Name, a.Value, op.Kind(a.Name))}
		}
	}
	return k, k.make(nil)
}

// make numbers the kernel, lays its constants down and has the worker make it.
func (k *Kernel) make(constants map[int]operator.Tensor) error {
	x := k.of
	k.number, k.constant = numbers.Add(1), map[int]int{}
	l, err := x.acquire() // before it is held: it may be the first
	if err != nil {
		return err
	}
	x.hold()
	for i, t := range constants {
		if err = k.lay(i, t); err != nil {
			break
		}
	}
	if err == nil {
		err = l.makes(k)
	}
	l.users.Done()
	if err != nil {
		x.drop(k)
	}
	return err
}

// lay puts a constant where workers can read it.
func (k *Kernel) lay(input int, t operator.Tensor) error {
	number, err := numberOf(t.Element)
	if err != nil {
		return err
	}
	x := k.of
	x.mu.Lock()
	at, ok := x.room.take(int64(len(t.Data)), int64(len(x.constants.bytes)))
	x.mu.Unlock()
	if !ok {
		return &diagnostic.Error{Kind: refusal.ErrKernel, Path: x.path,
			Found: fmt.Sprintf("constants of isolated plugin %s have more than %d bytes", x.name, len(x.constants.bytes)),
			Fix:   "use it without isolation"}
	}
	k.constant[input] = len(k.constants)
	k.constants = append(k.constants, placed{constant{input, dtypes[number].name, t.Shape, at}, int64(len(t.Data))})
	copy(x.constants.bytes[at:], t.Data)
	return nil
}

// request is what a worker makes the kernel from.
func (k *Kernel) request() createRequest {
	r := createRequest{Kernel: k.number, Operator: k.operator, Attributes: k.attributes, Inputs: k.inputs}
	for _, c := range k.constants {
		r.Constants = append(r.Constants, c.constant)
	}
	return r
}

// has reports that the worker has a kernel.
func (l *link) has(number uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made[number]
}

// makes has the worker make a kernel that it has not.
func (l *link) makes(k *Kernel) error {
	if l.has(k.number) {
		return nil
	}
	if err := l.run(taskCreate, k.request(), &nothing{}); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made[k.number] = true
	return nil
}

// Infer gives types and shapes of outputs, as plugin.Kernel's does.
func (k *Kernel) Infer(inputs []*tensor.Tensor, wants []bool) ([]*tensor.Tensor, error) {
	l, err := k.of.acquire()
	if err != nil {
		return nil, err
	}
	defer l.users.Done()
	if err := l.makes(k); err != nil {
		return nil, err
	}
	r := inferRequest{Kernel: k.number, Inputs: make([]*shape, len(inputs)), Wanted: wants}
	for i, t := range inputs {
		if t != nil {
			r.Inputs[i] = &shape{t.DType, t.Shape}
		}
	}
	var answer []*shape
	if err := l.run(taskInfer, r, &answer); err != nil {
		return nil, err
	}
	list := make([]*tensor.Tensor, len(wants))
	for i := range list {
		if wants[i] && i < len(answer) && answer[i] != nil {
			list[i] = &tensor.Tensor{DType: answer[i].DType, Shape: answer[i].Shape}
		}
	}
	return list, nil
}

// Destroy ends the kernel.
func (k *Kernel) Destroy() { k.of.drop(k) }

// Close is Destroy, for ONNX Runtime.
func (k *Kernel) Close() { k.of.drop(k) }
