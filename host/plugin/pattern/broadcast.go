package pattern

import (
	"fmt"
	"maps"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
)

// broadcasting are ONNX's operators whose inputs are broadcast to each other.
var broadcasting = []string{"Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Mean", "Sum", "PRelu", "Where",
	"And", "Or", "Xor",
	"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}

// shapeless are operators whose first output has the shape of their first input, whatever that is.
var shapeless = []string{"Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "CastLike",
	"Ceil", "Celu", "Clip", "Cos",
	"Cosh", "CumSum", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Hardmax", "Identity",
	"IsInf", "IsNaN",
	"LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "LpNormalization", "Mish", "Neg", "Not", "RMSNormalization",
	"Reciprocal",
	"Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt",
	"Swish", "Tan", "Tanh",
	"ThresholdedRelu", "Trilu", "com.microsoft.FastGelu", "com.microsoft.Gelu", "com.microsoft.QuickGelu"}

// reducing are operators that leave axes with a length of one.
var reducing = []string{"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
	"ReduceMin", "ReduceProd", "ReduceSum",
	"ReduceSumSquare", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"}

// Unequal says which values of a match meet in an operator that broadcasts them and are not known to have one shape,
// or "". Only those count that come from inputs of whose shapes the pattern says nothing: an operator that stands for
// x + y gives what has the shape of x. A pattern states a broadcast where it reduces axes to one: x - mean(x).
func (m *Match) Unequal() string {
	names := map[*graph.Value]string{}
	for _, name := range slices.Sorted(maps.Keys(m.Values)) {
		names[m.Values[name]] = name
	}
	told := map[string]bool{}
	for _, s := range m.Form.Shapes {
		told[s.Value] = true
	}
	from, like := m.sources(), m.likeness()
	for _, n := range m.Nodes {
		if !n.Is(broadcasting...) {
			continue
		}
		for i := range n.In {
			for j := range i {
				a, b := m.origin(n.In[j]), m.origin(n.In[i])
				if len(from(a)) == 0 || len(from(b)) == 0 || like(a) == like(b) || m.sameShape(a, b) ||
					told[names[a]] && told[names[b]] {
					continue
				}
				both := slices.Concat(from(a), from(b))
				if slices.ContainsFunc(both, func(name string) bool { return !told[name] }) {
					return fmt.Sprintf("%s and %s are not known to have one shape for %s, and its pattern has no shapes of its inputs",
						names[a], names[b], n.Op())
				}
			}
		}
	}
	return ""
}

// sources tells of the values of a match which of the pattern's inputs they are made from, in order.
func (m *Match) sources() func(v *graph.Value) []string {
	known := map[*graph.Value][]string{}
	for _, name := range m.Form.Inputs {
		known[m.Values[name]] = []string{name}
	}
	var from func(v *graph.Value) []string
	from = func(v *graph.Value) []string {
		list, before := known[v]
		if before || v == nil || !slices.Contains(m.Nodes, v.Producer) {
			return list
		}
		for _, in := range v.Producer.In {
			list = append(list, from(m.origin(in))...)
		}
		slices.Sort(list)
		known[v] = slices.Compact(list)
		return known[v]
	}
	return from
}

// likeness tells of the values of a match whose shape they have, but for axes that the pattern reduces to one: of a
// value from outside, or of one whose shape only ONNX Runtime knows, such as half of a Split.
func (m *Match) likeness() func(v *graph.Value) *graph.Value {
	numbers := map[*graph.Value]bool{} // which leave the shape of what they meet alone
	for _, c := range m.Form.Constants {
		numbers[m.Values[c.Name]] = c.IsNumber()
	}
	known := map[*graph.Value]*graph.Value{}
	var like func(v *graph.Value) *graph.Value
	like = func(v *graph.Value) *graph.Value {
		if v == nil || !slices.Contains(m.Nodes, v.Producer) {
			return v
		}
		if known[v] != nil {
			return known[v]
		}
		known[v] = v
		n := v.Producer
		switch {
		case n.Is(broadcasting...):
			var one *graph.Value
			for _, in := range n.In {
				in = m.origin(in)
				switch {
				case in == nil || numbers[in]:
				case one != nil && one != like(in):
					return v
				default:
					one = like(in)
				}
			}
			if one != nil {
				known[v] = one
			}
		case n.Is(shapeless...) && v == n.Output(0), n.Is(reducing...) && n.Int("keepdims", 1) != 0:
			known[v] = like(m.origin(n.Input(0)))
		}
		return known[v]
	}
	return like
}

func (m *Match) sameShape(a, b *graph.Value) bool {
	f, g := m.finder.shapes.Of(a), m.finder.shapes.Of(b)
	return f.Rank >= 0 && f.Rank == g.Rank && equalLengths(f.Dims, g.Dims)
}

// origin is what a node of the match reads, without detours: what another node of it makes, or what comes from outside.
func (m *Match) origin(v *graph.Value) *graph.Value {
	if v != nil && v.Producer != nil && slices.Contains(m.Nodes, v.Producer) {
		return v
	}
	return m.finder.copies.First(v)
}

// Stretched reports a match in which a number is a tensor that broadcasts the
// other operand, to more dimensions or longer ones: what a pattern writes as a
// number is expected to leave shapes alone.
func (m *Match) Stretched() bool {
	var apart []*graph.Value
	for _, name := range m.Form.Inputs {
		apart = append(apart, m.Values[name])
	}
	for _, k := range m.Form.Constants {
		if k.Any {
			apart = append(apart, m.Values[k.Name])
		}
	}
	for _, n := range m.Nodes {
		for i := range n.In {
			number := m.origin(n.In[i])
			if number == nil || number.Tensor == nil || slices.Contains(apart, number) {
				continue
			}
			for j := range n.In {
				if v := m.origin(n.In[j]); v != nil && v != number && m.widens(number.Tensor.Dims, v) {
					return true
				}
			}
		}
	}
	return false
}

// widens reports that broadcasting to a constant's lengths may change a value's.
func (m *Match) widens(by []int64, v *graph.Value) bool {
	f := m.finder.shapes.Of(v)
	if f.Rank < len(by) && len(by) > 0 {
		return true
	}
	for i, n := range by {
		if n != 1 && !f.Dim(i-len(by)).Is(n) {
			return true
		}
	}
	return false
}
