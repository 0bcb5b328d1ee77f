package roles

import "github.com/opgraft/graft/host/onnx/graph"

// reached is a value with how much further it is followed.
type reached struct {
	value *graph.Value
	depth int
}

// walk remembers what was found of the values that it passed, so that one that is reached in
// many ways is not followed in each.
type walk[T any] map[reached]T

func (w walk[T]) once(v *graph.Value, depth int, find func() T) T {
	at := reached{v, depth}
	if found, before := w[at]; before {
		return found
	}
	v.Graph.Spend(1 + len(v.Uses))
	v.Graph.Hold(reachedBytes)
	found := find()
	w[at] = found
	return found
}

// reachedBytes are held in memory for each value that is passed.
const reachedBytes = 64
