package comparison

import (
	"context"
	"fmt"

	"github.com/opgraft/graft/host/ort"
)

// Noise is how far ONNX Runtime is from itself: the same model and inputs with
// all of its graph optimisations against none of them. Both are right; what lies
// between them is rounding.
type Noise struct {
	MaxAbsolute float64 `json:"max_absolute"`
	Disagree    int64   `json:"disagree"` // elements outside the tolerance that B is held to
}

// noiseShare is how many times the runtime's own rounding B may be away from A.
const noiseShare = 2

// arbitrate looks again at outputs that missed a default tolerance. One passes
// when ONNX Runtime misses the tolerance against itself as well and B is at most
// twice as far from A as ONNX Runtime is from itself. Its noise stands in the
// result, whatever the verdict.
func (p *pair) arbitrate(ctx context.Context, l *ort.Library, path string, o Options) error {
	var missed []int
	for i, out := range p.result.Parity.Outputs {
		// Integers, booleans and strings have no rounding, and no tolerance.
		if !out.OK && out.Problem == "" && out.Absolute > 0 {
			missed = append(missed, i)
		}
	}
	if len(missed) == 0 || o.A != "none" || o.Absolute != 0 || o.Relative != 0 {
		return nil
	}
	s, err := l.NewSession(path, ort.SessionOptions{IntraOpThreads: o.Threads, Unpatched: true, Optimization: ort.OptimizeNone})
	if err != nil {
		return fmt.Errorf("the model without optimisations: %w", err)
	}
	defer s.Close()
	names := make([]string, len(missed))
	for i, at := range missed {
		names[i] = p.result.Parity.Outputs[at].Name
	}
	again, err := s.Run(ctx, p.fed.Values, names...)
	if err != nil {
		return fmt.Errorf("the model without optimisations: %w", err)
	}
	for i, at := range missed {
		out := &p.result.Parity.Outputs[at]
		self := CompareValues(out.Name, p.a.results[at], again[i], 0, 0)
		again[i].Close()
		out.Noise = &Noise{self.MaxAbsolute, self.Disagree}
		out.OK = self.Disagree > 0 && out.MaxAbsolute <= noiseShare*self.MaxAbsolute
	}
	p.result.Parity.OK = true
	for _, out := range p.result.Parity.Outputs {
		p.result.Parity.OK = p.result.Parity.OK && out.OK
	}
	return nil
}
