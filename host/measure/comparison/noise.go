package comparison

import (
	"context"
	"slices"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
)

// Noise is how far answers are from those of another session of the same model and inputs. Of sides without operators
// it is rounding: both are right.
type Noise struct {
	MaxAbsolute float64  `json:"max_absolute"`
	Disagree    int64    `json:"disagree"`               // elements outside the tolerance that B is held to
	Cosine      *float64 `json:"least_cosine,omitempty"` // as in OutputParity
}

// noiseShare is how many times the runtime's own rounding B may be away.
const noiseShare = 2

// asNear says of how far B is from something that it is no more than rounding, where a is the runtime's own: nowhere
// further, or at most twice as far where that misses the tolerance too. One element that rounding moves far excuses no
// others: that holds of the median and of the 99th percentile as well, where they are above the tolerance.
func asNear(b, a OutputParity) bool {
	within := func(b, a float64, disagree int64) bool { return b <= a || disagree > 0 && b <= noiseShare*a }
	return within(b.MaxAbsolute, a.MaxAbsolute, a.Disagree) &&
		(b.P50 <= b.Absolute || within(b.P50, a.P50, a.Disagree)) &&
		(b.P99 <= b.Absolute || within(b.P99, a.P99, a.Disagree))
}

// arbitrate looks again at outputs that missed a default tolerance. One passes when B is no further from A than ONNX
// Runtime without its graph optimisations is from A, or when B is no further from the model in float64 than A is:
// twice as far where the latter misses the tolerance as well, else nowhere further. One whose B is within the
// tolerance of the model in float64 passes too: A is on its other side. What was measured stands in the result,
// whatever the verdict. Where that is asked for, every output of floats is also compared with ONNX Runtime's without
// optimisations. A reference that the runtime cannot make says nothing.
func (p *pair) arbitrate(ctx context.Context, l *ort.Library, path string, o Options) error {
	judged := o.A == "none" && o.Absolute == 0 && o.Relative == 0
	look := func(out *OutputParity) bool {
		// Integers, booleans and strings have no rounding, and no tolerance.
		return out.Problem == "" && out.Absolute > 0 && (!out.OK && judged || o.Unoptimized)
	}
	refs := p.references
	if refs == nil {
		refs = &references{}
		defer refs.close()
	}
	err := p.against(ctx, "without optimisations", &refs.unoptimized, openUnoptimized, l, path, o, look,
		func(out *OutputParity, a, b, reference *ort.Value) {
			if o.Unoptimized {
				out.Unoptimized = noise(CompareValues(out.Name, reference, b, o.Absolute, o.Relative))
			}
			if !out.OK && judged {
				own := CompareValues(out.Name, a, reference, 0, 0)
				out.Noise, out.OK = noise(own), asNear(*out, own)
			}
		})
	if err != nil {
		return err
	}
	missed := func(out *OutputParity) bool { return look(out) && !out.OK && judged }
	err = p.against(ctx, "in float64", &refs.wide, openWide, l, path, o, missed,
		func(out *OutputParity, a, b, reference *ort.Value) {
			ofA, ofB := CompareValues(out.Name, reference, a, 0, 0), CompareValues(out.Name, reference, b, 0, 0)
			out.WideA, out.WideB, out.OK = noise(ofA), noise(ofB), ofB.OK || asNear(ofB, ofA)
		})
	p.result.Parity.OK = !slices.ContainsFunc(p.result.Parity.Outputs, func(o OutputParity) bool { return !o.OK })
	return err
}

// against runs a reference, and hands over those outputs of it that are looked at.
func (p *pair) against(ctx context.Context, what string, r *reference,
	open func(context.Context, *ort.Library, string, Options) (*session.Session, error), l *ort.Library, path string,
	o Options, look func(*OutputParity) bool, judge func(out *OutputParity, a, b, reference *ort.Value)) error {
	var again []int
	var infos []ort.ValueInfo
	for i := range p.result.Parity.Outputs {
		if out := &p.result.Parity.Outputs[i]; look(out) {
			again, infos = append(again, i), append(infos, ort.ValueInfo{Name: out.Name})
		}
	}
	if len(again) == 0 || r.failed {
		return nil
	}
	o.step("comparing with the model " + what)
	var values []*ort.Value
	var err error
	if r.session == nil {
		r.session, err = open(ctx, l, path, o)
	}
	if err == nil {
		names := make([]string, len(infos))
		for i := range infos {
			names[i] = infos[i].Name
		}
		values, err = r.session.Run(ctx, p.fed.Values, names...)
	}
	if r.failed = err != nil; r.failed {
		return ctx.Err()
	}
	defer func() {
		for _, v := range values {
			v.Close()
		}
	}()
	if err := p.clear(infos, values); err != nil {
		return err
	}
	for i, at := range again {
		judge(&p.result.Parity.Outputs[at], p.a.results[at], p.b.results[at], values[i])
	}
	return nil
}

// references are sessions of the model that others are compared with. Each is opened when it is first asked.
type references struct{ unoptimized, wide reference }

type reference struct {
	session *session.Session
	failed  bool // the runtime does not run the model so
}

// openUnoptimized opens the model as ONNX Runtime runs it without its graph optimisations.
func openUnoptimized(ctx context.Context, l *ort.Library, path string, o Options) (*session.Session, error) {
	return session.OpenContext(ctx, l, path,
		session.Options{IntraOpThreads: o.Threads, Unpatched: true, Optimization: session.OptimizeNone})
}

func (r *references) close() {
	for _, s := range []*session.Session{r.unoptimized.session, r.wide.session} {
		if s != nil {
			s.Close()
		}
	}
	*r = references{}
}

func noise(p OutputParity) *Noise { return &Noise{p.MaxAbsolute, p.Disagree, p.Cosine} }

// SameMistake says of an output on which both sides agree that both are far from the model without optimisations:
// more than ten times as far as from each other, and outside the tolerance. Then an optimisation of ONNX Runtime
// changes the answer, and B changes it in the same way.
func (p *OutputParity) SameMistake() bool {
	return p.OK && p.Unoptimized != nil && p.Unoptimized.Disagree > 0 && p.Unoptimized.MaxAbsolute > 10*p.MaxAbsolute
}
