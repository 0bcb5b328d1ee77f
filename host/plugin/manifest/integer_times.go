package manifest

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/opgraft/graft/host/plugin/capability"
)

// CPUs are the instruction sets that times may hold for: the newest of a CPU's that products of integers are chosen by,
// or any.
var CPUs = []string{"avx2", "avx_vnni", "avx512", "neon", "any"}

// IntegerTimes say how long products with a weight of integers of one form take, measured on one core: by the operator,
// and by the MatMulNBits of ONNX Runtime that it replaces.
type IntegerTimes struct {
	Bits          int64   `json:"bits"`
	AccuracyLevel int64   `json:"accuracy_level"` // 4, which rounds rows to eight bits, or 0 for all others
	CPU           string  `json:"cpu"`            // one of CPUs
	GFLOPS        float64 `json:"gflops"`         // of products in float32 on that core
	// Picoseconds a number of the weight, at so many rows.
	Rows     []float64 `json:"rows"`
	Replaced []float64 `json:"replaced"`
	Operator []float64 `json:"operator"`
}

// integerTimes reads the times of an operator.
func (r *reader) integerTimes(n *yaml.Node, what string, op *Operator) {
	if !slices.Contains(op.Provides, capability.LinearPanels) {
		r.fail(n.Line, "%s stands without provides: %s, which it is about; remove it", what, capability.LinearPanels)
	}
	for i, item := range r.list(n, what, maxValues) {
		what := fmt.Sprintf("%s[%d]", what, i)
		keys := []string{"bits", "accuracy_level", "cpu", "gflops", "rows", "replaced", "operator"}
		f := r.fields(item, what, keys...)
		if f == nil {
			continue
		}
		before := len(r.problems)
		for _, key := range keys {
			if f[key] == nil {
				r.fail(item.Line, "%s.%s is missing; add it", what, key)
			}
		}
		if len(r.problems) > before {
			continue
		}
		numbers := func(key string) (list []float64) {
			for j, x := range r.list(f[key], what+"."+key, maxValues) {
				list = append(list, r.finite(x, fmt.Sprintf("%s.%s[%d]", what, key, j)))
			}
			return list
		}
		t := IntegerTimes{Bits: r.integer(f["bits"], what+".bits", 1, 8),
			AccuracyLevel: r.integer(f["accuracy_level"], what+".accuracy_level", 0, 4),
			CPU:           r.oneOf(f["cpu"], what+".cpu", CPUs...), GFLOPS: r.finite(f["gflops"], what+".gflops"),
			Rows: numbers("rows"), Replaced: numbers("replaced"), Operator: numbers("operator")}
		if t.AccuracyLevel != 0 && t.AccuracyLevel != 4 {
			r.fail(f["accuracy_level"].Line, "%s.accuracy_level is %d, needed 4, or 0 for all others", what, t.AccuracyLevel)
		}
		if len(r.problems) == before && !t.sound() {
			r.fail(item.Line, "%s has %d rows, %d and %d times, needed as many of each, two at least, all above 0, and rows "+
				"that ascend", what, len(t.Rows), len(t.Replaced), len(t.Operator))
		}
		op.IntegerTimes = append(op.IntegerTimes, t)
	}
}

// sound reports times that can be interpolated.
func (t *IntegerTimes) sound() bool {
	if len(t.Rows) < 2 || len(t.Replaced) != len(t.Rows) || len(t.Operator) != len(t.Rows) || t.GFLOPS <= 0 {
		return false
	}
	for i := range t.Rows {
		if t.Rows[i] <= 0 || t.Replaced[i] <= 0 || t.Operator[i] <= 0 || i > 0 && t.Rows[i] <= t.Rows[i-1] {
			return false
		}
	}
	return true
}

// Seconds is the expected time of a product of some rows with a weight of so many numbers, by the operator or by what
// it replaces, on a machine of so many operations a second: between those that were measured, or beyond, as the last
// ones grow.
func (t *IntegerTimes) Seconds(rows, numbers, flops float64, operator bool) float64 {
	times := t.Replaced
	if operator {
		times = t.Operator
	}
	at := times[0]
	if rows > t.Rows[0] {
		i := 1
		for i < len(t.Rows)-1 && rows > t.Rows[i] {
			i++
		}
		at = times[i-1] + (times[i]-times[i-1])*(rows-t.Rows[i-1])/(t.Rows[i]-t.Rows[i-1])
	}
	return at * 1e-12 * numbers * t.GFLOPS * 1e9 / flops
}
