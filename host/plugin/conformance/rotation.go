package conformance

import (
	"fmt"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// rotation turns pairs of features of a key by its position. The zero value turns nothing.
type rotation struct {
	cosine, sine []float64 // [positions, pairs]
	pairs        int64
	interleaved  bool // features 2j and 2j+1 are a pair, not j and j+pairs
	rotated      bool // rows are stored turned
}

// rotationOf reads the rotary attributes and tables of a case.
func rotationOf(inputs map[string]*tensor.Tensor, attributes []manifest.Attribute) (rotation, error) {
	kind := attributeOr(attributes, "rotary", "none")
	cosine, sine := inputs["cos"], inputs["sin"]
	if kind == "none" {
		return rotation{}, nil
	}
	if kind != "half" && kind != "interleaved" {
		return rotation{}, fmt.Errorf("found rotary %s, needed none, half or interleaved", kind)
	}
	if cosine == nil || sine == nil || len(cosine.Shape) != 2 || len(sine.Shape) != 2 {
		return rotation{}, fmt.Errorf("found rotary %s, needed cos and sin of rank 2", kind)
	}
	return rotation{
		cosine: cosine.Floats(), sine: sine.Floats(), pairs: cosine.Shape[1],
		interleaved: kind == "interleaved", rotated: attributeOr(attributes, "rotated", int64(0)) != 0,
	}, nil
}

// by turns all heads of a row by the angles of a position, or with a direction of -1 back by them.
func (r rotation) by(row []float64, headSize, position int64, direction float64) []float64 {
	if r.pairs == 0 {
		return row
	}
	turned := append([]float64(nil), row...)
	for head := int64(0); head < int64(len(row)); head += headSize {
		for j := range r.pairs {
			first, second := head+j, head+j+r.pairs
			if r.interleaved {
				first, second = head+2*j, head+2*j+1
			}
			cosine, sine := r.cosine[position*r.pairs+j], direction*r.sine[position*r.pairs+j]
			turned[first] = row[first]*cosine - row[second]*sine
			turned[second] = row[second]*cosine + row[first]*sine
		}
	}
	return turned
}
