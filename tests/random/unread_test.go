package random

import (
	"math"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/must"
)

// TestHiddenKeysAreNotRead: of a key that a mask hides from all queries by -inf, the operator does not see what it
// holds. ONNX Runtime adds -inf to NaN and multiplies NaN by a probability of zero: docs/same-answers.md names the
// difference.
func TestHiddenKeysAreNotRead(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		name       string
		add        bool    // the mask is added, else it chooses between scores and -inf
		key, value float64 // what the hidden key and its value hold
		lost       bool    // ONNX Runtime's answer is NaN
	}{
		{"added to numbers", true, 0.5, 0.5, false},
		{"added to NaN", true, math.NaN(), 0.5, true},
		{"added to infinities", true, math.Inf(1), 0.5, true},
		{"added, over a value that is NaN", true, 0.5, math.NaN(), true},
		{"chosen over numbers", false, 0.5, 0.5, false},
		{"chosen over NaN", false, math.NaN(), 0.5, false},
		{"chosen over infinities", false, math.Inf(1), 0.5, false},
		{"chosen, over a value that is infinite", false, 0.5, math.Inf(1), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, clean := hiddenKey(c.add, c.key, c.value), hiddenKey(c.add, 0, 0)
			bytes := must.Value(proto.Marshal(g.Model))(t)
			replaced := 0
			p := &sessions.Patcher{Plugins: b.set.Plugins, Options: b.set.Plan(plan.Options{Force: true})}
			with := session.Options{IntraOpThreads: 1, LogSeverity: session.LogFatal,
				Patcher: func(r session.Request) (*session.Patch, error) {
					made, err := p.Patch(r)
					if made != nil {
						replaced++
					}
					return made, err
				}}
			r := &run{bench: b, names: []string{g.Model.Graph.Output[0].GetName()}}
			defer r.close()
			answer := func(o session.Options, feed Feed) *ort.Value {
				s := must.Value(session.FromBytes(b.library, bytes, o))(t)
				defer s.Close()
				list := must.Value(r.answers(t.Context(), s, feed))(t)
				return list[0]
			}
			plain := session.Options{Unpatched: true, IntraOpThreads: 1, LogSeverity: session.LogFatal}
			want := answer(plain, clean.Runs[0])
			if got := comparison.CompareValues("plain", want, answer(plain, g.Runs[0]), 1e-5, 1e-5); got.OK == c.lost {
				t.Errorf("ONNX Runtime's answer is that over zeros: %t, needed is %t", got.OK, !c.lost)
			}
			if got := comparison.CompareValues("patched", want, answer(with, g.Runs[0]), 1e-5, 1e-5); !got.OK || replaced == 0 {
				t.Errorf("%d replaced; %d elements are others than over zeros %s", replaced, got.Disagree, got.Problem)
			}
		})
	}
}

// hiddenKey is an attention over twenty keys, of which the fourth is hidden from all and holds these numbers.
func hiddenKey(add bool, key, content float64) *Graph {
	const heads, keys, size, at = 2, 20, 8, 3
	w := &writer{Rand: rand.New(rand.NewPCG(3, 3)), left: map[string]bool{}, opset: 18, float: f32,
		main: &onnx.Graph{Name: proto.String("hidden")}}
	w.g = w.main
	w.batch, w.tokens = number(2), number(keys)
	holding := func(x float64) fill {
		return func(r *randSource, shape []int64) func(int64) float64 {
			other := normal(r, shape)
			return func(i int64) float64 {
				if y := other(i); i/size%keys != at {
					return y
				}
				return x
			}
		}
	}
	var sides []value
	for _, f := range []fill{normal, holding(key), holding(content)} {
		sides = append(sides, w.input("side", f32, f, w.batch, number(heads), w.tokens, number(size)))
	}
	s := w.node("MatMul", []value{sides[0], w.transpose(sides[1], 0, 1, 3, 2)},
		value{kind: f32, dims: []dim{w.batch, number(heads), w.tokens, w.tokens}})
	mask := func(shown, hidden float64) fill {
		return func(*randSource, []int64) func(int64) float64 {
			return func(i int64) float64 {
				if i == at {
					return hidden
				}
				return shown
			}
		}
	}
	one := number(1)
	if add {
		s = w.node("Add", []value{s, w.input("mask", f32, mask(0, math.Inf(-1)), one, one, one, w.tokens)}, s.like(s.dims...))
	} else {
		seen := w.input("mask", boolean, mask(1, 0), one, one, one, w.tokens)
		s = w.node("Where", []value{seen, s, w.full(f32, func(int64) float64 { return math.Inf(-1) })}, s.like(s.dims...))
	}
	p := w.unary("Softmax", s, "axis", -1)
	w.leave(w.node("MatMul", []value{p, sides[2]}, p.like(w.batch, number(heads), w.tokens, number(size))))
	return w.graph()
}
