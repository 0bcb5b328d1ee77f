package plugin

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Info is what a library says of itself once it is loaded.
type Info struct {
	Name      string               `json:"name"`
	Version   string               `json:"version"`
	Summary   string               `json:"summary"`
	Device    string               `json:"device"`
	Operators []signature.Operator `json:"operators"`
}

var attributeKinds = []string{
	abi.AttributeInt: "int", abi.AttributeFloat: "float", abi.AttributeString: "string", abi.AttributeInts: "ints",
	abi.AttributeFloats: "floats",
}

// Limits of a description, against tables full of garbage.
const (
	maxOperators       = 256
	maxTypes           = 64
	maxParameters      = 1024
	maxAttributeValues = 4096
)

// describer copies a description out of C memory and collects the first fault.
type describer struct {
	p   *Plugin
	err error
}

func (d *describer) fail(format string, args ...any) {
	if d.err == nil {
		d.err = refusal.Incompatible(d.p.Path, "a faulty description: "+fmt.Sprintf(format, args...),
			"one as abi/graft_plugin.h says", "report this to its author")
	}
}

// whole reports whether a struct is there and as large as ABI 1.0 has it; its first member is its size.
func (d *describer) whole(p unsafe.Pointer, need uintptr, what string) bool {
	if p == nil {
		d.fail("%s is null", what)
	} else if size := *(*uint64)(p); size < uint64(need) {
		d.fail("%s has %d bytes, less than %d", what, size, need)
	}
	return d.err == nil
}

// array is a C array of pointers.
func array[T any](d *describer, first **T, count uint32, limit uint32, what string) []*T {
	if count > limit || (count > 0 && first == nil) {
		d.fail("%d %s at %p", count, what, first)
		return nil
	}
	return unsafe.Slice(first, count)
}

func (d *describer) name(p *byte, what string) string {
	s := abi.GoString(p)
	if !manifest.IsValueName(s) {
		d.fail("%s is called %q", what, diagnostic.Clip(s))
	}
	return s
}

func (p *Plugin) describe() (*Info, error) {
	address, _, _ := purego.SyscallN(p.table.Describe)
	c := pointer[abi.PluginInfo](address)
	d := &describer{p: p}
	if c == nil {
		// Why, a library says where it can: in probe's message.
		var why *diagnostic.Error
		if _, _, err := p.Probe(tensor.CPU); errors.As(err, &why) {
			return nil, &diagnostic.Error{Kind: refusal.ErrVerification, Path: p.Path,
				Found: "found that it cannot describe its operators: " + why.Found, Fix: "correct what describes them"}
		}
	}
	if !d.whole(unsafe.Pointer(c), unsafe.Sizeof(abi.PluginInfo{}), "it") {
		return nil, d.err
	}
	info := &Info{Name: diagnostic.Printable(abi.GoString(c.Name)), Version: diagnostic.Printable(abi.GoString(c.Version)),
		Summary: diagnostic.Printable(abi.GoString(c.Summary))}
	switch c.DeviceType {
	case abi.DeviceCPU:
		info.Device = "cpu"
	case abi.DeviceCUDA:
		info.Device = "cuda"
	default:
		d.fail("device type %d", c.DeviceType)
	}
	for i, op := range array(d, c.Operators, c.NumOperators, maxOperators, "operators") {
		what := fmt.Sprintf("operator %d", i)
		if d.whole(unsafe.Pointer(op), unsafe.Sizeof(abi.Operator{}), what) {
			info.Operators = append(info.Operators, d.operator(op, what))
		}
	}
	if d.err != nil {
		return nil, d.err
	}
	return info, nil
}

func (d *describer) operator(c *abi.Operator, what string) signature.Operator {
	op := signature.Operator{
		Name: d.name(c.Name, what), Summary: diagnostic.Printable(abi.GoString(c.Summary)), SinceVersion: int(c.SinceVersion),
		Inputs: []signature.Parameter{}, Outputs: []signature.Parameter{}, Attributes: []signature.Attribute{},
	}
	for i, x := range array(d, c.Inputs, c.NumInputs, maxParameters, "inputs of "+what) {
		op.Inputs = append(op.Inputs, d.parameter(x, fmt.Sprintf("input %d of %s", i, what)))
	}
	for i, x := range array(d, c.Outputs, c.NumOutputs, maxParameters, "outputs of "+what) {
		op.Outputs = append(op.Outputs, d.parameter(x, fmt.Sprintf("output %d of %s", i, what)))
	}
	for i, x := range array(d, c.Attributes, c.NumAttributes, maxParameters, "attributes of "+what) {
		op.Attributes = append(op.Attributes, d.attribute(x, fmt.Sprintf("attribute %d of %s", i, what)))
	}
	return op
}

func (d *describer) parameter(c *abi.Parameter, what string) signature.Parameter {
	if !d.whole(unsafe.Pointer(c), unsafe.Sizeof(abi.Parameter{}), what) {
		return signature.Parameter{}
	}
	x := signature.Parameter{
		Name: d.name(c.Name, what), TypeVariable: int(c.TypeVariable), MinCount: int(c.MinCount),
		Optional: c.Flags&abi.ParameterOptional != 0, Variadic: c.Flags&abi.ParameterVariadic != 0,
		Strided: c.Flags&abi.ParameterStrided != 0, HostMemory: c.Flags&abi.ParameterHostMemory != 0,
	}
	if c.NumTypes == 0 || c.NumTypes > maxTypes || c.Types == nil {
		d.fail("%s lists %d types", what, c.NumTypes)
		return x
	}
	for _, t := range unsafe.Slice(c.Types, c.NumTypes) {
		name, ok := tensor.DTypeOf(t)
		if !ok {
			d.fail("%s lists the type of code %d, %d bits, %d lanes", what, t.Code, t.Bits, t.Lanes)
			return x
		}
		x.Types = append(x.Types, name)
	}
	return x
}

func (d *describer) attribute(c *abi.Attribute, what string) signature.Attribute {
	if !d.whole(unsafe.Pointer(c), unsafe.Sizeof(abi.Attribute{}), what) {
		return signature.Attribute{}
	}
	a := signature.Attribute{Name: d.name(c.Name, what), Required: c.Flags&abi.AttributeRequired != 0}
	if c.Kind < abi.AttributeInt || c.Kind > abi.AttributeFloats {
		d.fail("%s has kind %d", what, c.Kind)
		return a
	}
	a.Kind = attributeKinds[c.Kind]
	if a.Required {
		return a
	}
	if c.Count > maxAttributeValues || (c.Count > 0 && c.Data == nil && c.Kind >= abi.AttributeString) {
		d.fail("%s has a default of %d values", what, c.Count)
		return a
	}
	switch c.Kind {
	case abi.AttributeInt:
		a.Default = c.IntValue
	case abi.AttributeFloat:
		a.Default = c.FloatValue
	case abi.AttributeString:
		a.Default = diagnostic.Printable(string(unsafe.Slice((*byte)(c.Data), c.Count)))
	case abi.AttributeInts:
		a.Default = append([]int64{}, unsafe.Slice((*int64)(c.Data), c.Count)...)
	case abi.AttributeFloats:
		wide := make([]float64, 0, c.Count)
		for _, f := range unsafe.Slice((*float32)(c.Data), c.Count) {
			wide = append(wide, float64(f))
		}
		a.Default = wide
	}
	return a
}

// Operator returns an operator of the description and its index, which create takes.
func (i *Info) Operator(name string) (op *signature.Operator, index int, ok bool) {
	index = slices.IndexFunc(i.Operators, func(op signature.Operator) bool { return op.Name == name })
	if index < 0 {
		return nil, 0, false
	}
	return &i.Operators[index], index, true
}
