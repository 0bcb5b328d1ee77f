package isolation

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/plugin/signature"
)

// Operators are the plugin's as ONNX Runtime takes them, in this process. The same library always gets the same.
func (x *Isolated) Operators(l *ort.Library) ([]uintptr, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if known, ok := x.operators[l]; ok {
		return known, nil
	}
	var list []uintptr
	for i := range x.apart.Info.Operators {
		op := &x.apart.Info.Operators[i]
		overloads, err := x.overloads(op)
		if err != nil {
			return nil, err
		}
		for _, o := range overloads {
			address, err := operator.New(l, o)
			if err != nil {
				return nil, err
			}
			list = append(list, address)
		}
	}
	x.operators[l] = list
	return list, nil
}

// overloads are an operator with each choice of types for its type variables: the runtime takes one a parameter.
// There is none of an operator with an output whose type no input says: a host calls that by itself, and no node can
// be it.
func (x *Isolated) overloads(op *signature.Operator) (list []operator.Operator, err error) {
	variables := map[int]signature.Parameter{}
	for _, p := range slices.Concat(op.Inputs, op.Outputs) {
		if p.TypeVariable >= 0 {
			variables[p.TypeVariable] = p
		}
	}
	choices := []map[int]ort.ElementType{{}}
	for _, v := range slices.Sorted(maps.Keys(variables)) {
		var longer []map[int]ort.ElementType
		for _, c := range choices {
			for _, t := range variables[v].Types {
				e, err := elementOf(t)
				if err != nil {
					return nil, err
				}
				more := maps.Clone(c)
				more[v] = e
				longer = append(longer, more)
			}
		}
		choices = longer
	}
	const most = 4096
	if len(choices) > most {
		return nil, fmt.Errorf("%s: operator %s has %d combinations of types, needed at most %d", x.path, op.Name,
			len(choices), most)
	}
	for _, c := range choices {
		o := operator.Operator{Name: op.Name, Since: op.SinceVersion,
			Create: func(n *operator.Node) (operator.Kernel, error) { return x.create(op, n) }}
		for _, side := range []struct {
			from []signature.Parameter
			to   *[]operator.Parameter
		}{{op.Inputs, &o.Inputs}, {op.Outputs, &o.Outputs}} {
			for _, p := range side.from {
				to := operator.Parameter{Optional: p.Optional, Variadic: p.Variadic, MinCount: p.MinCount,
					OneType: p.TypeVariable >= 0 || len(p.Types) == 1}
				if p.TypeVariable >= 0 {
					to.Element = c[p.TypeVariable]
				} else if len(p.Types) == 1 {
					if to.Element, err = elementOf(p.Types[0]); err != nil {
						return nil, err
					}
				}
				*side.to = append(*side.to, to)
			}
		}
		if !slices.ContainsFunc(o.Outputs, func(p operator.Parameter) bool { return p.Element == ort.Undefined }) {
			list = append(list, o)
		}
	}
	return list, nil
}

// create makes the kernel of a node.
func (x *Isolated) create(op *signature.Operator, n *operator.Node) (*Kernel, error) {
	k := &Kernel{of: x, operator: op.Name, inputs: n.Inputs, outputs: n.Outputs}
	if n.Inputs+n.Outputs > maxTensors {
		return nil, fmt.Errorf("a node %s of isolated plugin %s has %d inputs and outputs, needed at most %d", op.Name,
			x.name, n.Inputs+n.Outputs, maxTensors)
	}
	for _, a := range op.Attributes {
		var value any
		var ok bool
		switch a.Kind {
		case "int":
			value, ok = n.Int(a.Name)
		case "float":
			var f float32
			f, ok = n.Float(a.Name)
			value = float64(f)
		case "string":
			value, ok = n.Text(a.Name)
		case "ints":
			value, ok = n.Ints(a.Name)
		case "floats":
			var list []float32
			list, ok = n.Floats(a.Name)
			wide := make([]float64, len(list))
			for i, f := range list {
				wide[i] = float64(f)
			}
			value = wide
		}
		if ok {
			k.attributes = append(k.attributes, signature.Attribute{Name: a.Name, Kind: a.Kind, Default: value})
		}
	}
	constants := map[int]operator.Tensor{}
	for i := range n.Inputs {
		t, ok, err := n.Constant(i)
		if err != nil {
			return nil, err
		}
		if ok && len(t.Data) > 0 {
			constants[i] = t
		}
	}
	for i := range n.Outputs {
		k.wants = append(k.wants, n.Wants(i))
	}
	return k, k.make(constants)
}

// Run is a call of ONNX Runtime's. Where its worker ended, the error has ort.CodeEngineError.
func (k *Kernel) Run(c *operator.Call) error {
	err := k.call(c)
	var e *Ended
	if errors.As(err, &e) {
		return &ort.Error{Code: ort.CodeEngineError, Message: diagnostic.Printable(err.Error())}
	}
	return err
}

// call puts inputs into a window and takes outputs from it.
func (k *Kernel) call(c *operator.Call) error {
	l, err := k.of.acquire()
	if err != nil {
		return err
	}
	defer l.users.Done()
	if err := l.makes(k); err != nil {
		return err
	}
	slot, err := l.take()
	if err != nil {
		return err
	}
	used := int64(0)
	defer func() { l.leave(slot, used) }()
	window := l.at(slot)
	h := headerAt(window)
	h.kernel, h.inputs, h.outputs = k.number, uint32(k.inputs), uint32(k.outputs)
	end := int64(dataStart)
	for i := range k.inputs {
		d := &h.tensors[i]
		d.place = absent
		if at, ok := k.constant[i]; ok {
			p := k.constants[at]
			if err := d.describe(inConstant, numberNamed(p.DType), p.Offset, p.Shape); err != nil {
				return err
			}
			continue
		}
		t, ok, err := c.Input(i)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		number, err := numberOf(t.Element)
		if err != nil {
			return err
		}
		if int64(len(t.Data)) > l.window-end {
			return fmt.Errorf("inputs of a call have more than %d bytes, which an isolated plugin may have in a call", l.window)
		}
		if err := d.describe(inWindow, number, end, t.Shape); err != nil {
			return err
		}
		copy(window[end:], t.Data)
		end = aligned(end + int64(len(t.Data)))
	}
	for i, wants := range k.wants {
		h.tensors[k.inputs+i].place = absent
		if wants {
			h.tensors[k.inputs+i].place = wanted
		}
	}
	used = end
	if err := l.ring(slot, h); err != nil {
		return err
	}
	k.of.calls.Add(1)
	switch failed := h.failed; failed {
	case 0:
	case 1:
		return fmt.Errorf("isolated plugin %s: %s", k.of.name, text(h))
	default:
		return ended(l.fail(l.wrote(fmt.Sprintf("it answered %s with %#x", k.operator, failed))))
	}
	for i, wants := range k.wants {
		if !wants {
			continue
		}
		d := h.tensors[k.inputs+i] // copied: the worker may write on
		from, size, err := d.view(dataStart, l.window)
		if err == nil && d.place != inWindow {
			err = fmt.Errorf("no tensor")
		}
		if err != nil {
			return ended(l.fail(l.wrote(fmt.Sprintf("it answered with output %d of %s as %v", i, k.operator, err))))
		}
		used = max(used, int64(d.offset)+size)
		to, ok, err := c.Output(i, from.Shape)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if e, err := elementOf(from.DType); err != nil || e != to.Element || int64(len(to.Data)) != size {
			return ended(l.fail(l.wrote(
				fmt.Sprintf("it answered with output %d of %s as %s%v, needed %v", i, k.operator, from.DType, from.Shape,
					to.Element))))
		}
		if size > 0 {
			copy(to.Data, window[d.offset:int64(d.offset)+size])
		}
	}
	return nil
}

// text is why an operator failed, as the worker says.
func text(h *header) string {
	b := make([]byte, min(h.length, maxText))
	copy(b, h.text[:])
	return diagnostic.Printable(string(b))
}
