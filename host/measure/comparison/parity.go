package comparison

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/opgraft/graft/host/base/half"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
)

// Parity says how far the answers of B are from those of A.
type Parity struct {
	OK      bool           `json:"ok"`
	Outputs []OutputParity `json:"outputs"`
	// Random is why answers that differ say nothing: a node draws random numbers without a seed. "" where they agree.
	Random string `json:"random,omitempty"`
}

// OutputParity compares one output. An element agrees when
// |b - a| <= absolute + relative * |a|; NaN agrees with NaN, an infinity with
// itself; integers, booleans and strings agree when they are equal.
type OutputParity struct {
	Name        string  `json:"name"`
	Type        string  `json:"type"`
	Shape       []int64 `json:"shape"`
	OK          bool    `json:"ok"`
	MaxAbsolute float64 `json:"max_absolute"`
	MaxRelative float64 `json:"max_relative"`
	// OfTolerance is the greatest difference as a part of the tolerance at its place: all agree up to 1.
	OfTolerance float64 `json:"of_tolerance"`
	P50         float64 `json:"p50_absolute"`
	P99         float64 `json:"p99_absolute"`
	Disagree    int64   `json:"disagree"` // elements outside the tolerance
	// Cosine is the least cosine similarity of two rows of the last axis; nil for rows of less than two elements.
	Cosine      *float64 `json:"least_cosine,omitempty"`
	Top1        *float64 `json:"top1_agreement,omitempty"` // share of rows with the same largest element
	Absolute    float64  `json:"absolute"`                 // the tolerance that held
	Relative    float64  `json:"relative"`
	Problem     string   `json:"problem,omitempty"`          // why it could not be compared
	Noise       *Noise   `json:"reference_noise,omitempty"`  // of A, measured where the tolerance was missed
	Unoptimized *Noise   `json:"from_unoptimized,omitempty"` // of B, measured where that is asked for
	// Of A and B from the model in float64, measured where B is further from A than A's noise.
	WideA *Noise `json:"a_from_float64,omitempty"`
	WideB *Noise `json:"b_from_float64,omitempty"`
}

// Tolerance is what counts as the same answer in a data type.
func Tolerance(e ort.ElementType) (absolute, relative float64) {
	switch e {
	case ort.Float16:
		return 2.5e-3, 1e-3
	case ort.BFloat16:
		return 2e-2, 1e-2
	case ort.Float64, ort.Float32:
		return 1e-5, 1e-4
	}
	return 0, 0
}

func compare(a, b *side, o Options) Parity {
	p := Parity{OK: true}
	for i, info := range a.session.Outputs() {
		out := CompareValues(info.Name, a.results[i], b.results[i], o.Absolute, o.Relative)
		p.OK = p.OK && out.OK
		p.Outputs = append(p.Outputs, out)
	}
	return p
}

// draws says which node of a model draws random numbers without a seed, "" for none.
func draws(path string) (string, error) {
	m, err := model.Open(path)
	if err != nil {
		return "", err
	}
	defer m.Close()
	g, err := graph.New(m.Proto(), m)
	if err != nil {
		return "", err
	}
	return Drawn(g), nil
}

// Drawn is why a model's answers cannot be compared: it draws random numbers, as where dropout was exported; "" where
// they can.
func Drawn(g *graph.Graph) string {
	if n := g.Draws(); n != nil {
		return fmt.Sprintf("%s %s draws random numbers without a seed, others in each session", n.Op(), n)
	}
	return ""
}

// CompareValues compares b with a; a tolerance of zero takes the data type's.
func CompareValues(name string, a, b *ort.Value, absolute, relative float64) OutputParity {
	out := OutputParity{Name: name, Type: a.Kind().String(), Absolute: absolute, Relative: relative}
	fail := func(format string, args ...any) OutputParity {
		out.OK, out.Problem = false, fmt.Sprintf(format, args...)
		return out
	}
	if a.Kind() != b.Kind() {
		return fail("a is a %s, b a %s", a.Kind(), b.Kind())
	}
	if a.Kind() == ort.KindSequence {
		return compareItems(out, a, b)
	}
	if a.Kind() == ort.KindOptional {
		out.OK = true // one that holds something is of the kind of that
		return out
	}
	if a.Kind() != ort.KindTensor {
		return fail("values of kind %s are not compared", a.Kind())
	}
	out.Type, out.Shape = a.Element().String(), a.Shape()
	if a.Element() != b.Element() || !slices.Equal(a.Shape(), b.Shape()) {
		return fail("a is %s%v, b %s%v", a.Element(), a.Shape(), b.Element(), b.Shape())
	}
	if a.Element() == ort.String {
		x, errA := a.Strings()
		y, errB := b.Strings()
		if err := errors.Join(errA, errB); err != nil {
			return fail("%v", err)
		}
		out.OK = slices.Equal(x, y)
		return out
	}
	x, err := a.Bytes()
	if err != nil {
		return fail("%v", err)
	}
	y, err := b.Bytes()
	if err != nil {
		return fail("%v", err)
	}
	read := reader(a.Element())
	if read == nil {
		return exact(out, x, y, a.Len())
	}
	standardAbsolute, standardRelative := Tolerance(a.Element())
	if absolute == 0 {
		out.Absolute = standardAbsolute
	}
	if relative == 0 {
		out.Relative = standardRelative
	}
	return numbers(out, x, y, read, a.Len())
}

// exact compares elements of whole bytes that must be equal. Types of less than
// a byte share bytes and are counted by those.
func exact(out OutputParity, x, y []byte, n int64) OutputParity {
	out.Absolute, out.Relative = 0, 0
	size := max(len(x)/int(max(n, 1)), 1)
	for i := 0; i < len(x); i += size {
		if !bytes.Equal(x[i:min(i+size, len(x))], y[i:min(i+size, len(y))]) {
			out.Disagree++
		}
	}
	out.OK = out.Disagree == 0
	return out
}

func compareItems(out OutputParity, a, b *ort.Value) OutputParity {
	x, errA := a.Items()
	y, errB := b.Items()
	if errA != nil || errB != nil || len(x) != len(y) {
		out.Problem = fmt.Sprintf("sequences of %d and %d items", len(x), len(y))
		return out
	}
	out.OK = true
	for i := range x {
		item := CompareValues(fmt.Sprintf("%s[%d]", out.Name, i), x[i], y[i], out.Absolute, out.Relative)
		out.OK = out.OK && item.OK
		out.MaxAbsolute, out.MaxRelative = max(out.MaxAbsolute, item.MaxAbsolute), max(out.MaxRelative, item.MaxRelative)
		out.OfTolerance = max(out.OfTolerance, item.OfTolerance)
		if !item.OK && out.Problem == "" {
			out.Problem = item.Name + " differs"
		}
		x[i].Close()
		y[i].Close()
	}
	return out
}

// numbers compares elements one by one.
func numbers(out OutputParity, x, y []byte, read func([]byte, int64) float64, n int64) OutputParity {
	differences := make([]float64, 0, n)
	apart := 0 // elements that are NaN or infinite on one side only
	for i := range n {
		p, q := read(x, i), read(y, i)
		switch {
		case p == q || math.IsNaN(p) && math.IsNaN(q):
			differences = append(differences, 0)
			continue
		case math.IsNaN(p) != math.IsNaN(q) || math.IsInf(p, 0) || math.IsInf(q, 0):
			out.Disagree++
			apart++
			out.MaxAbsolute, out.MaxRelative, out.OfTolerance = math.MaxFloat64, math.MaxFloat64, math.MaxFloat64
			continue
		}
		d := finite(math.Abs(p - q))
		differences = append(differences, d)
		out.MaxAbsolute = max(out.MaxAbsolute, d)
		if p != 0 {
			out.MaxRelative = max(out.MaxRelative, finite(d/math.Abs(p)))
		}
		allowed := out.Absolute + out.Relative*math.Abs(p)
		if d > 0 {
			out.OfTolerance = max(out.OfTolerance, finite(d/allowed))
		}
		if d > allowed {
			out.Disagree++
		}
	}
	out.OK = out.Disagree == 0
	if apart > 0 {
		out.Problem = fmt.Sprintf("%d of %d elements are NaN or infinite on one side and not on the other", apart, n)
	}
	if len(differences) > 0 {
		slices.Sort(differences)
		out.P50, out.P99 = differences[len(differences)/2], differences[int(float64(len(differences)-1)*0.99)]
	}
	if w := len(out.Shape); w >= 1 && out.Shape[w-1] > 1 && n > 0 {
		least := leastCosine(x, y, read, n, out.Shape[w-1])
		out.Cosine = &least
	}
	if w := len(out.Shape); w >= 2 && out.Shape[w-1] > 1 {
		share := topAgreement(x, y, read, n, out.Shape[w-1])
		out.Top1 = &share
	}
	return out
}

// finite limits a difference to what JSON can hold.
func finite(x float64) float64 { return min(x, math.MaxFloat64) }

// leastCosine is the cosine similarity of those rows of the last axis that are least alike. Two rows of zeros are
// alike, and so are infinities and NaN in the same places; rows that have them in others are not alike at all.
func leastCosine(x, y []byte, read func([]byte, int64) float64, n, width int64) float64 {
	least := 1.0
	for start := int64(0); start+width <= n; start += width {
		least = min(least, cosine(x, y, read, start, start+width))
	}
	return least
}

func cosine(x, y []byte, read func([]byte, int64) float64, from, to int64) float64 {
	var largestP, largestQ float64
	for i := from; i < to; i++ {
		p, q := read(x, i), read(y, i)
		if unbounded(p) || unbounded(q) {
			if p != q && !(math.IsNaN(p) && math.IsNaN(q)) {
				return 0
			}
			continue
		}
		largestP, largestQ = max(largestP, math.Abs(p)), max(largestQ, math.Abs(q))
	}
	if largestP == 0 || largestQ == 0 {
		if largestP == largestQ {
			return 1
		}
		return 0
	}
	var pp, qq, pq float64
	for i := from; i < to; i++ {
		p, q := read(x, i), read(y, i)
		if unbounded(p) {
			continue
		}
		p, q = p/largestP, q/largestQ // no square of an element is too large or too small
		pp, qq, pq = pp+p*p, qq+q*q, pq+p*q
	}
	return max(-1, min(1, pq/math.Sqrt(pp*qq)))
}

func unbounded(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }

// topAgreement is the share of rows of the last axis whose largest element
// stands at the same place.
func topAgreement(x, y []byte, read func([]byte, int64) float64, n, width int64) float64 {
	rows, same := int64(0), int64(0)
	for start := int64(0); start+width <= n; start += width {
		p, q := start, start
		for i := start; i < start+width; i++ {
			if read(x, i) > read(x, p) {
				p = i
			}
			if read(y, i) > read(y, q) {
				q = i
			}
		}
		rows++
		if p == q {
			same++
		}
	}
	if rows == 0 {
		return 1
	}
	return float64(same) / float64(rows)
}

// reader reads the i-th element of a type as a number; nil for types that are
// compared byte by byte.
func reader(e ort.ElementType) func(b []byte, i int64) float64 {
	le := binary.LittleEndian
	switch e {
	case ort.Float32:
		return func(b []byte, i int64) float64 { return float64(math.Float32frombits(le.Uint32(b[4*i:]))) }
	case ort.Float64:
		return func(b []byte, i int64) float64 { return math.Float64frombits(le.Uint64(b[8*i:])) }
	case ort.BFloat16:
		return func(b []byte, i int64) float64 { return half.BFloatToFloat(le.Uint16(b[2*i:])) }
	case ort.Float16:
		return func(b []byte, i int64) float64 { return half.ToFloat(le.Uint16(b[2*i:])) }
	}
	return nil
}
