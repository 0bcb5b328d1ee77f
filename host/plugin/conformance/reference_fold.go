package conformance

import (
	"fmt"
	"math"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// matrix is row-major.
type matrix struct {
	data          []float64
	rows, columns int64
}

func (m matrix) at(i, j int64) float64 { return m.data[i*m.columns+j] }

// referenceFold computes what the fold of an operator over the cache emits: weights in panels, for keys
// alone those by which values follow from keys, with a base those for rows that the base makes.
func referenceFold(strategy string, constants []tensor.Weight, attributes []manifest.Attribute) (map[string][]float64,
	error) {
	given := map[string]matrix{}
	for _, w := range constants {
		m := matrix{data: w.Floats, rows: 1, columns: int64(len(w.Floats))}
		if len(w.Shape) == 2 {
			m.rows, m.columns = w.Shape[0], w.Shape[1]
		}
		given[w.Name] = m
	}
	heads := attributeOr(attributes, "num_heads", int64(0))
	if n := attributeOr(attributes, "kv_num_heads", int64(0)); n != 0 {
		heads = n
	}
	key, value, base := given["key_weight"], given["value_weight"], given["base_key_weight"]
	if key.data == nil || value.data == nil || heads < 1 {
		return nil, fmt.Errorf("found %d heads and constants %d, needed heads, key_weight and value_weight", heads,
			len(given))
	}
	if strategy == "keys" {
		folded, err := solved(key, value)
		if err != nil {
			return nil, err
		}
		bias := make([]float64, folded.columns)
		copy(bias, given["value_bias"].data)
		for i, b := range given["key_bias"].data {
			for j := range bias {
				bias[j] -= b * folded.at(int64(i), int64(j))
			}
		}
		return map[string][]float64{"value_weight": columnPanels(folded, heads), "value_bias": bias}, nil
	}
	if base.data != nil {
		var err error
		if key, err = solved(base, key); err != nil {
			return nil, err
		}
		if value, err = solved(base, value); err != nil {
			return nil, err
		}
	}
	return map[string][]float64{"key_weight": rowPanels(key, heads), "value_weight": columnPanels(value, heads)}, nil
}

// columnPanels are [heads][panels][rows][16]: columns of a head side by side.
func columnPanels(w matrix, heads int64) []float64 {
	size := w.columns / heads
	out := make([]float64, heads*abi.Panels(size)*w.rows*abi.PanelColumns)
	for h := range heads {
		for c := range size {
			for f := range w.rows {
				out[h*abi.Panels(size)*w.rows*abi.PanelColumns+abi.PanelOffset(c, f, w.rows)] = w.at(f, h*size+c)
			}
		}
	}
	return out
}

// rowPanels are [heads][panels][columns of a head][16]: rows side by side.
func rowPanels(w matrix, heads int64) []float64 {
	size := w.columns / heads
	out := make([]float64, heads*abi.Panels(w.rows)*size*abi.PanelColumns)
	for h := range heads {
		for c := range size {
			for f := range w.rows {
				out[h*abi.Panels(w.rows)*size*abi.PanelColumns+abi.PanelOffset(f, c, size)] = w.at(f, h*size+c)
			}
		}
	}
	return out
}

// solved is the X of least norm with a X = b: a' (a a')^-1 b, by elimination with pivots.
func solved(a, b matrix) (matrix, error) {
	n := a.rows
	if b.rows != n || a.columns < n {
		return matrix{}, fmt.Errorf("found weights of %d x %d and %d rows, needed at least as many columns as rows", a.rows,
			a.columns, b.rows)
	}
	left, right := make([][]float64, n), make([][]float64, n)
	for i := range n {
		left[i] = make([]float64, n)
		right[i] = append([]float64(nil), b.data[i*b.columns:][:b.columns]...)
		for j := range n {
			for k := range a.columns {
				left[i][j] += a.at(i, k) * a.at(j, k)
			}
		}
	}
	for i := range n {
		pivot := i
		for j := i; j < n; j++ {
			if math.Abs(left[j][i]) > math.Abs(left[pivot][i]) {
				pivot = j
			}
		}
		left[i], left[pivot], right[i], right[pivot] = left[pivot], left[i], right[pivot], right[i]
		if left[i][i] == 0 {
			return matrix{}, fmt.Errorf("found singular weights, needed ones that have an inverse")
		}
		for j := range n {
			if j == i {
				continue
			}
			factor := left[j][i] / left[i][i]
			for k := range left[j] {
				left[j][k] -= factor * left[i][k]
			}
			for k := range right[j] {
				right[j][k] -= factor * right[i][k]
			}
		}
	}
	x := matrix{make([]float64, a.columns*b.columns), a.columns, b.columns}
	for i := range x.rows {
		for j := range x.columns {
			for k := range n {
				x.data[i*x.columns+j] += a.at(k, i) * right[k][j] / left[k][k]
			}
		}
	}
	return x, nil
}
