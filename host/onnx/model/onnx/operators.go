package onnx

import (
	_ "embed"
	"math"
	"strconv"
	"strings"
	"sync"
)

// Schema is what ONNX says of one version of an operator of its own.
type Schema struct {
	Since                  int64 // the operator set that brought this version
	MinInputs, MaxInputs   int
	MinOutputs, MaxOutputs int
	Attributes             []SchemaAttribute
}

// SchemaAttribute is an attribute of an operator. Kind is int, float, string, ints, floats, strings or graph; Default
// is an int64, float64, string or []int64, nil for none.
type SchemaAttribute struct {
	Name, Kind string
	Required   bool
	Default    any
}

// OfMicrosoft are operators of ONNX Runtime's domain com.microsoft whose defaults are known (ONNX Runtime,
// docs/ContribOperators.md).
var OfMicrosoft = map[string]Schema{
	"FusedMatMul": {Since: 1, MinInputs: 2, MaxInputs: 2, MinOutputs: 1, MaxOutputs: 1, Attributes: []SchemaAttribute{
		{Name: "alpha", Kind: "float", Default: 1.0}, {Name: "transA", Kind: "int", Default: int64(0)},
		{Name: "transB", Kind: "int", Default: int64(0)}, {Name: "transBatchA", Kind: "int", Default: int64(0)},
		{Name: "transBatchB", Kind: "int", Default: int64(0)}}},
}

// Attribute returns the attribute of that name.
func (s *Schema) Attribute(name string) (a SchemaAttribute, ok bool) {
	for _, a := range s.Attributes {
		if a.Name == name {
			return a, true
		}
	}
	return a, false
}

// Newest stands for the newest operator set that is known.
const Newest = math.MaxInt64

// SchemaOf is what the operator set of a version says of one of ONNX's own operators; nil where it has none.
func SchemaOf(op string, version int64) *Schema {
	var found *Schema
	for _, s := range schemas()[op] {
		if s.Since <= version {
			found = s
		}
	}
	return found
}

// AttributeKind is the kind of an attribute of one of ONNX's own operators, in the newest version that has it; "" for
// none.
func AttributeKind(op, name string) (kind string) {
	for _, s := range schemas()[op] {
		if a, ok := s.Attribute(name); ok {
			kind = a.Kind
		}
	}
	return kind
}

// OperatorNames lists ONNX's own operators.
func OperatorNames() (names []string) {
	for name := range schemas() {
		names = append(names, name)
	}
	return names
}

//go:embed operators.txt
var operatorsText string

// schemas are all versions of each operator, the oldest first.
var schemas = sync.OnceValue(func() map[string][]*Schema {
	all := map[string][]*Schema{}
	for _, line := range strings.Split(strings.TrimSpace(operatorsText), "\n")[1:] {
		f := strings.Fields(line)
		s := &Schema{}
		s.Since, _ = strconv.ParseInt(f[1], 10, 64)
		s.MinInputs, s.MaxInputs = span(f[2])
		s.MinOutputs, s.MaxOutputs = span(f[3])
		for _, text := range f[4:] {
			s.Attributes = append(s.Attributes, schemaAttribute(text))
		}
		all[f[0]] = append(all[f[0]], s)
	}
	return all
})

// span reads "1-3" and "1-*".
func span(text string) (least, most int) {
	low, high, _ := strings.Cut(text, "-")
	least, _ = strconv.Atoi(low)
	if most, _ = strconv.Atoi(high); high == "*" {
		most = math.MaxInt
	}
	return least, most
}

// schemaAttribute reads "name:kind", "name:kind!" where it is required, or "name:kind=default".
func schemaAttribute(text string) (a SchemaAttribute) {
	text, a.Required = strings.CutSuffix(text, "!")
	text, value, has := strings.Cut(text, "=")
	a.Name, a.Kind, _ = strings.Cut(text, ":")
	switch {
	case !has:
	case a.Kind == "int":
		a.Default, _ = strconv.ParseInt(value, 10, 64)
	case a.Kind == "float":
		a.Default, _ = strconv.ParseFloat(value, 64)
	case a.Kind == "string":
		a.Default = value
	default:
		list := []int64{}
		for _, item := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' }) {
			i, _ := strconv.ParseInt(item, 10, 64)
			list = append(list, i)
		}
		a.Default = list
	}
	return a
}
