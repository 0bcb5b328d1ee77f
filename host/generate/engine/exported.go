package engine

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// exportedIntegers are integers that the model holds, and the linear layers that multiply with them.
type exportedIntegers struct {
	*matrix
	from  *model.Integers
	sizes model.IntegerPanels
}

// bytes are those of panels, of their scales and of their zero points.
func (x *exportedIntegers) bytes() (panels, scales, zeros int64) {
	numbers := x.sizes.Panels * x.sizes.Groups * abi.PanelColumns
	if x.sizes.Zeros {
		zeros = numbers
	}
	return x.sizes.Panels * x.sizes.Rows * abi.PanelColumns, 4 * numbers, zeros
}

// aligned is room for n bytes, so that what follows lies at a cache line.
func aligned(n int64) int64 { return (n + 63) &^ 63 }

// exported lets linear layers whose weights the model holds as integers multiply with these integers, whatever else
// is asked for: they are what the model is. It gives back all other weights.
func (p *panels) exported(of *prepare.Graph, list []*matrix, o Options) (others []*matrix, err error) {
	by, _, err := laysOut(of, o)
	if err != nil {
		return nil, err
	}
	scale, zero := takesIntegers(by)
	var chosen []*exportedIntegers
	total := int64(0)
	for _, w := range list {
		q := of.Model.IntegersOf(w.value.Tensor)
		if q == nil {
			others = append(others, w)
			continue
		}
		sizes, ok := q.Panels()
		if !ok || zero < 0 {
			p.refused[w.value] = fmt.Sprintf("integers of the model in groups of %d, which %s does not take", q.Block,
				by.Manifest.Name)
			others = append(others, w)
			continue
		}
		x := &exportedIntegers{w, q, sizes}
		chosen = append(chosen, x)
		panels, scales, zeros := x.bytes()
		total += aligned(panels) + aligned(scales) + aligned(zeros)
	}
	if len(chosen) == 0 {
		return others, nil
	}
	if p.given, err = memory.Reserve(total); err != nil {
		return nil, fmt.Errorf("weights in panels: %w", err)
	}
	rest := p.given.Bytes()
	take := func(list []*tensor.Tensor) {
		lieIn(rest, list)
		size := int64(0)
		for _, t := range list {
			size += int64(len(t.Bytes()))
		}
		rest = rest[aligned(size):]
	}
	for _, group := range beside(chosen, func(x *exportedIntegers) *matrix { return x.matrix }, (*exportedIntegers).kind) {
		if err := p.lay(of, group, take, scale, zero, o); err != nil {
			return nil, fmt.Errorf("weights %s: %w", group[0].value.Name, err)
		}
	}
	counts := map[string]*LinearWeights{}
	for _, x := range chosen {
		name := fmt.Sprintf("int%d of the model", x.from.Bits)
		if counts[name] == nil {
			counts[name] = &LinearWeights{Type: name}
		}
		panels, scales, zeros := x.bytes()
		counts[name].add(x.matrix, panels+scales+zeros)
	}
	for _, c := range counts {
		p.counts = append(p.counts, *c)
	}
	return others, nil
}

// kind is equal for weights that can lie side by side.
func (x *exportedIntegers) kind() string {
	return fmt.Sprint(x.from.Bits, x.sizes.Rows, x.sizes.Groups, x.sizes.Zeros, x.from.RoundsRows())
}

// lay lays out integers side by side and lets their linear layers read them.
func (p *panels) lay(of *prepare.Graph, group []*exportedIntegers, take func([]*tensor.Tensor), scale, zero int,
	o Options) error {
	first := group[0]
	element := tensor.Int8
	if first.from.Bits == 4 {
		element = tensor.Uint8
	}
	var weights []*matrix
	var integers, scales, zeros []*tensor.Tensor
	for _, x := range group {
		weights = append(weights, x.matrix)
		integers = append(integers,
			&tensor.Tensor{DType: element, Shape: []int64{x.sizes.Panels, x.sizes.Rows, abi.PanelColumns}})
		scales = append(scales, &tensor.Tensor{DType: tensor.Float32,
			Shape: []int64{x.sizes.Panels, x.sizes.Groups, abi.PanelColumns}})
		if x.sizes.Zeros {
			zeros = append(zeros, &tensor.Tensor{DType: tensor.Int8,
				Shape: []int64{x.sizes.Panels, x.sizes.Groups, abi.PanelColumns}})
		}
	}
	operands := []operand{{weightOperand, "graft.exported.", integers}, {scale, "graft.exported.", scales}}
	if zeros != nil {
		operands = append(operands, operand{zero, "graft.exported.", zeros})
	}
	for _, o := range operands {
		take(o.tensors)
	}
	for i, x := range group {
		var subtracted []int8
		if zeros != nil {
			subtracted = unsafe.Slice((*int8)(zeros[i].Data), len(zeros[i].Bytes()))
		}
		if err := of.Model.LayIntegers(x.from, integers[i].Bytes(),
			unsafe.Slice((*float32)(scales[i].Data), len(scales[i].Bytes())/4), subtracted); err != nil {
			return err
		}
	}
	activations := prepare.Float32Activations
	if first.from.RoundsRows() {
		activations = prepare.Int8Activations
	}
	return p.stand(of, o.Library, weights, operands, words(activationsAttribute, string(activations)))
}

// takesIntegers says where a plugin's operator takes scales of float32 and zero points; -1 for one that does not.
func takesIntegers(p *plugin.Plugin) (scale, zero int) {
	multiplies := signature.Find(p.Info.Operators, p.Manifest.Providing(capability.LinearPanels).Name)
	at := func(name string, t tensor.DType) int {
		return slices.IndexFunc(multiplies.Inputs,
			func(in signature.Parameter) bool { return in.Name == name && slices.Contains(in.Types, t) })
	}
	if scale, zero = at(scaleInput, tensor.Float32), at(zeroInput, tensor.Int8); scale < 0 || zero < 0 {
		return -1, -1
	}
	return scale, zero
}
