package conformance

import (
	"fmt"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// referenceLinear is y = x weight + bias: x [..., K], weight [K, N], or [N, K] with the attribute
// transposed, bias [N] or [1] or absent.
func referenceLinear(inputs map[string]*tensor.Tensor, attributes []manifest.Attribute) (map[string][]float64, error) {
	x, weight, bias := inputs["x"], inputs["weight"], inputs["bias"]
	if x == nil || weight == nil || len(x.Shape) == 0 || len(weight.Shape) != 2 {
		return nil, fmt.Errorf("found no x of rank 1 or more with a weight of rank 2, needed both")
	}
	depth, columns := weight.Shape[0], weight.Shape[1]
	down, across := columns, int64(1) // elements of weight from one to the next
	if attributeOr(attributes, "transposed", int64(0)) != 0 {
		depth, columns = columns, depth
		across, down = depth, 1
	}
	if x.Shape[len(x.Shape)-1] != depth {
		return nil, fmt.Errorf("found x of shape %v, needed a last axis of %d", x.Shape, depth)
	}
	added := make([]float64, columns)
	if bias != nil {
		b := bias.Floats()
		if len(b) != 1 && int64(len(b)) != columns {
			return nil, fmt.Errorf("found a bias of %d elements, needed %d", len(b), columns)
		}
		for i := range added {
			added[i] = b[i%len(b)]
		}
	}
	a, w := x.Floats(), weight.Floats()
	var y []float64
	for from := int64(0); from < int64(len(a)); from += depth {
		for j := range columns {
			sum := added[j]
			for k := range depth {
				sum += a[from+k] * w[k*down+j*across]
			}
			y = append(y, sum)
		}
	}
	return map[string][]float64{"y": y}, nil
}
