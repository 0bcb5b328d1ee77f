package random

import (
	"math/rand/v2"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// input is an input of the graph, and what it is fed.
type input struct {
	value
	fill fill
}

// fill gives the elements of an array of a shape.
type fill func(r *rand.Rand, shape []int64) func(i int64) float64

// input declares an input of the graph.
func (w *writer) input(as string, kind onnx.Tensor_DataType, f fill, dims ...dim) value {
	v := value{name: w.name(as), kind: kind, dims: dims}
	declared := make([]any, len(dims))
	for i, d := range dims {
		switch {
		case d.constant():
			declared[i] = int(d.number)
		case !w.named && w.one(6):
			declared[i] = nil // left open
		default:
			declared[i] = d.text
		}
	}
	w.main.Input = append(w.main.Input,
		&onnx.ValueInfo{Name: proto.String(v.name), Type: graph.TensorType(kind, declared...)})
	w.inputs = append(w.inputs, input{v, f})
	w.seen = append(w.seen, v)
	return v
}

// normal are numbers around 0.
func normal(r *rand.Rand, _ []int64) func(int64) float64 {
	return func(int64) float64 { return r.NormFloat64() }
}

// below are integers from 0 to a limit, which is left out.
func below(limit int64) fill {
	return func(r *rand.Rand, _ []int64) func(int64) float64 {
		return func(int64) float64 { return float64(r.Int64N(limit)) }
	}
}

// visible says of each element of a mask whether it is seen. Of the rows some are all visible, some are padded at the
// end or at the beginning, some have holes, and some show nothing.
func visible(r *rand.Rand, shape []int64) func(i int64) bool {
	last := int64(1)
	if len(shape) > 0 {
		last = max(shape[len(shape)-1], 1)
	}
	type row struct {
		mode int
		at   int64
	}
	rows := map[int64]row{}
	return func(i int64) bool {
		x, ok := rows[i/last]
		if !ok {
			x = row{r.IntN(6), r.Int64N(last) + 1}
			if x.mode == 5 && r.IntN(2) == 0 {
				x.mode = 0
			}
			rows[i/last] = x
		}
		switch x.mode {
		case 0:
			return true
		case 1, 2:
			return i%last < x.at
		case 3:
			return i%last >= x.at-1
		case 4:
			return r.IntN(3) > 0
		}
		return false
	}
}

// shown is 1 where a mask shows, 0 where it hides.
func shown(r *rand.Rand, shape []int64) func(int64) float64 {
	sees := visible(r, shape)
	return func(i int64) float64 {
		if sees(i) {
			return 1
		}
		return 0
	}
}

// added is 0 where a mask shows and this where it hides.
func added(hidden float64) fill {
	return func(r *rand.Rand, shape []int64) func(int64) float64 {
		sees := visible(r, shape)
		return func(i int64) float64 {
			if sees(i) {
				return 0
			}
			return hidden
		}
	}
}
