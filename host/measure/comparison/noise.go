package comparison

import (
	"context"
	"fmt"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
)

// Noise is how far answers are from those of ONNX Runtime without any of its graph optimisations, with the same model
// and inputs. Of a side without operators it is rounding: both are right.
type Noise struct {
	MaxAbsolute float64  `json:"max_absolute"`
	Disagree    int64    `json:"disagree"`               // elements outside the tolerance that B is held to
	Cosine      *float64 `json:"least_cosine,omitempty"` // as in OutputParity
}

// noiseShare is how many times the runtime's own rounding B may be away from A.
const noiseShare = 2

// arbitrate looks again at outputs that missed a default tolerance. One passes
// when ONNX Runtime misses the tolerance against itself as well and B is at most
// twice as far from A as ONNX Runtime is from itself, or when B is nowhere further from A than ONNX Runtime is from
// itself. Its noise stands in the result, whatever the verdict. Where that is asked for, every output of floats is
// also compared with ONNX Runtime's without optimisations.
func (p *pair) arbitrate(ctx context.Context, l *ort.Library, path string, o Options) error {
	judged := o.A == "none" && o.Absolute == 0 && o.Relative == 0
	var again []int
	for i, out := range p.result.Parity.Outputs {
		// Integers, booleans and strings have no rounding, and no tolerance.
		if out.Problem == "" && out.Absolute > 0 && (!out.OK && judged || o.Unoptimized) {
			again = append(again, i)
		}
	}
	if len(again) == 0 {
		return nil
	}
	o.step("comparing with the model without optimisations")
	plain := p.plain
	if plain == nil {
		plain = &unoptimized{}
		defer plain.close()
	}
	names := make([]string, len(again))
	for i, at := range again {
		names[i] = p.result.Parity.Outputs[at].Name
	}
	values, err := plain.run(ctx, l, path, o, p.fed.Values, names)
	if err != nil {
		return fmt.Errorf("the model without optimisations: %w", err)
	}
	defer func() {
		for _, v := range values {
			v.Close()
		}
	}()
	infos := make([]ort.ValueInfo, len(again))
	for i, name := range names {
		infos[i].Name = name
	}
	if err := p.clear(infos, values); err != nil {
		return err
	}
	for i, at := range again {
		out := &p.result.Parity.Outputs[at]
		if o.Unoptimized {
			out.Unoptimized = noise(CompareValues(out.Name, values[i], p.b.results[at], o.Absolute, o.Relative))
		}
		if !out.OK && judged {
			out.Noise = noise(CompareValues(out.Name, p.a.results[at], values[i], 0, 0))
			out.OK = out.MaxAbsolute <= out.Noise.MaxAbsolute ||
				out.Noise.Disagree > 0 && out.MaxAbsolute <= noiseShare*out.Noise.MaxAbsolute
		}
	}
	p.result.Parity.OK = true
	for _, out := range p.result.Parity.Outputs {
		p.result.Parity.OK = p.result.Parity.OK && out.OK
	}
	return nil
}

// unoptimized is the model as ONNX Runtime runs it without its graph optimisations. It is opened when it is first
// asked.
type unoptimized struct{ session *session.Session }

func (u *unoptimized) run(ctx context.Context, l *ort.Library, path string, o Options, fed map[string]*ort.Value,
	names []string) ([]*ort.Value, error) {
	if u.session == nil {
		var err error
		if u.session, err = session.OpenContext(ctx, l, path,
			session.Options{IntraOpThreads: o.Threads, Unpatched: true, Optimization: session.OptimizeNone}); err != nil {
			return nil, err
		}
	}
	return u.session.Run(ctx, fed, names...)
}

func (u *unoptimized) close() {
	if u.session != nil {
		u.session.Close()
		u.session = nil
	}
}

func noise(p OutputParity) *Noise { return &Noise{p.MaxAbsolute, p.Disagree, p.Cosine} }

// SameMistake says of an output on which both sides agree that both are far from the model without optimisations:
// more than ten times as far as from each other, and outside the tolerance. Then an optimisation of ONNX Runtime
// changes the answer, and B changes it in the same way.
func (p *OutputParity) SameMistake() bool {
	return p.OK && p.Unoptimized != nil && p.Unoptimized.Disagree > 0 && p.Unoptimized.MaxAbsolute > 10*p.MaxAbsolute
}
