package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/opgraft/graft/host/graph"
)

// broadcasting are ONNX's operators whose inputs are broadcast to each other.
var broadcasting = []string{"Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Mean", "Sum", "PRelu", "Where", "And", "Or", "Xor",
	"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}

// shapeless are operators whose first output has the shape of their first input, whatever that is.
var shapeless = []string{"Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Cos",
	"Cosh", "CumSum", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Hardmax", "Identity", "IsInf", "IsNaN",
	"LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "LpNormalization", "Mish", "Neg", "Not", "RMSNormalization", "Reciprocal",
	"Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh",
	"ThresholdedRelu", "Trilu", "com.microsoft.FastGelu", "com.microsoft.Gelu", "com.microsoft.QuickGelu"}

// reducing are operators that leave axes with a length of one.
var reducing = []string{"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
	"ReduceSumSquare", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"}

// unequal says which values of a match meet in an operator that broadcasts them and are not known to have one shape, or "". Only
// those count that come from inputs of whose shapes the pattern says nothing: an operator that stands for x + y gives what has the
// shape of x. A pattern states a broadcast where it reduces axes to one: x - mean(x).
func (e *estimator) unequal(m *Match) string {
	p := m.Operator.Replaces.Pattern
	names := map[*graph.Value]string{}
	for _, name := range slices.Sorted(maps.Keys(m.Values)) {
		names[m.Values[name]] = name
	}
	told := map[string]bool{}
	for _, s := range p.Shapes {
		told[s.Value] = true
	}
	from, like := m.sources(), m.likeness()
	for _, n := range m.Nodes {
		if !n.Is(broadcasting...) {
			continue
		}
		for i, b := range n.In {
			for _, a := range n.In[:i] {
				if len(from(a)) == 0 || len(from(b)) == 0 || like(a) == like(b) || e.sameShape(a, b) || told[names[a]] && told[names[b]] {
					continue
				}
				both := slices.Concat(from(a), from(b))
				if slices.ContainsFunc(both, func(name string) bool { return !told[name] }) {
					return fmt.Sprintf("%s and %s are not known to have one shape for %s, and its pattern has no shapes of its inputs", names[a], names[b], n.Op())
				}
			}
		}
	}
	return ""
}

// sources tells of the values of a match which of the pattern's inputs they are made from, in order.
func (m *Match) sources() func(v *graph.Value) []string {
	known := map[*graph.Value][]string{}
	for _, name := range m.Operator.Replaces.Pattern.Inputs {
		known[m.Values[name]] = []string{name}
	}
	var from func(v *graph.Value) []string
	from = func(v *graph.Value) []string {
		list, before := known[v]
		if before || v == nil || !slices.Contains(m.Nodes, v.Producer) {
			return list
		}
		for _, in := range v.Producer.In {
			list = append(list, from(in)...)
		}
		slices.Sort(list)
		known[v] = slices.Compact(list)
		return known[v]
	}
	return from
}

// likeness tells of the values of a match whose shape they have, but for axes that the pattern reduces to one: of a value from
// outside, or of one whose shape only ONNX Runtime knows, such as half of a Split.
func (m *Match) likeness() func(v *graph.Value) *graph.Value {
	numbers := map[*graph.Value]bool{} // which leave the shape of what they meet alone
	for _, c := range m.Operator.Replaces.Pattern.Constants {
		numbers[m.Values[c.Name]] = c.Value != nil
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
			known[v] = like(n.Input(0))
		}
		return known[v]
	}
	return like
}

func (e *estimator) sameShape(a, b *graph.Value) bool {
	f, g := e.shapes.Of(a), e.shapes.Of(b)
	return f.Rank >= 0 && f.Rank == g.Rank && equalLengths(f.Dims, g.Dims)
}
