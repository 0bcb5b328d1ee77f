// Package trial compares a session with its model before a program gets it: both run synthetic inputs that fit their
// meaning, and what answers otherwise than the model is not put in its place.
package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/sessions"
)

// Config is the session config entry that asks for the comparison of one session: "1" for it, "0" against it.
const Config = "graft.verify"

// shapes are the lengths of the runs: several rows, of which some are padded, and one row with another past.
var shapes = []map[roles.Length]int64{
	{roles.Batch: 2, roles.New: 5, roles.Cached: 3, roles.Encoder: 4},
	{roles.Batch: 1, roles.New: 1, roles.Cached: 7, roles.Encoder: 6},
}

// Patcher patches sessions, and compares those for which that is asked.
type Patcher struct {
	Sessions *sessions.Patcher
	All      bool // compares every session but those that say otherwise
}

// Patch is the session.Patcher of these plugins. That a session cannot be compared is an error: it is not patched then.
func (t *Patcher) Patch(r session.Request) (*session.Patch, error) {
	asked, ok := r.Config(Config)
	if !ok && !t.All || ok && (asked == "" || asked == "0") {
		return t.Sessions.Patch(r)
	}
	return model.ReadAgainIfChanged(func() (*session.Patch, error) { return t.verified(r) })
}

// verified is a patch without the operators that change answers.
func (t *Patcher) verified(r session.Request) (*session.Patch, error) {
	ctx := context.Background()
	wrong, err := t.trial(r).compare(ctx)
	if err != nil {
		return nil, fmt.Errorf("its answers could not be verified: %w", err)
	}
	if len(wrong) > 0 && t.Sessions.Logger != nil {
		keys := wrong.Sorted()
		t.Sessions.Logger.Warn("blocks are left unchanged, because a session with them answered otherwise than the model",
			"model", cmp.Or(r.Path, "model bytes"), "blocks", nodes(keys), "reason", wrong[keys[0]])
	}
	p, err := t.Sessions.PlanWithout(ctx, r, wrong)
	if err != nil {
		return nil, err
	}
	return p.Patch()
}

func nodes(keys []plan.Key) string {
	var list []string
	for _, k := range keys {
		list = append(list, k.Node)
	}
	return strings.Join(list, ", ")
}

// trial is a model that is being compared.
type trial struct {
	sessions sessions.Patcher
	request  session.Request
	fed      []*inputs.Batch
	want     [][]*ort.Value
	placed   []plan.Key // what is replaced before anything is left out
}

// trial is that of a session.
func (t *Patcher) trial(r session.Request) *trial {
	c := &trial{sessions: *t.Sessions, request: r}
	c.request.WayBack = false
	c.sessions.Logger = nil
	return c
}

// compare finds the operators that change answers, with the reasons.
func (c *trial) compare(ctx context.Context) (plan.LeftOut, error) {
	planned, err := c.sessions.Plan(ctx, c.request)
	if planned == nil || err != nil {
		return nil, err
	}
	random := comparison.Drawn(planned.Analysis.Graph)
	for _, x := range planned.Analysis.Plan.Choices {
		if k := x.Key(); x.Operator != nil {
			c.placed = append(c.placed, k)
		}
	}
	p, err := planned.Patch()
	if p == nil || err != nil {
		return nil, err
	}
	defer c.close()
	if err := c.expect(ctx); err != nil {
		p.Release()
		return nil, err
	}
	why := c.difference(ctx, p)
	if why == "" {
		return nil, nil
	}
	if random != "" {
		return nil, &diagnostic.Error{Path: c.request.Path, Found: "its answers cannot be compared: " + random,
			Fix: "give the node a seed, or do not ask for them to be verified"}
	}
	wrong, err := c.blame(ctx, c.placed, why)
	if err != nil {
		return nil, err
	}
	if why, err = c.differenceWithout(ctx, wrong); err != nil {
		return nil, err
	}
	if why != "" {
		for _, k := range c.placed { // operators that change answers only together
			wrong[k] = cmp.Or(wrong[k], why)
		}
	}
	return wrong, nil
}

// expect makes the inputs and runs the model itself. Lengths for which ONNX Runtime gives no answer are passed over;
// that there is none at all is an error.
func (c *trial) expect(ctx context.Context) error {
	m, err := sessions.Open(c.request)
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := c.request.Session(nil)
	if err != nil {
		return err
	}
	defer s.Close()
	var failed []error
	for i, lengths := range shapes {
		fed, err := inputs.Of(c.request.Library, m, inputs.Options{Seed: uint64(i + 1), Lengths: lengths})
		if err != nil {
			failed = append(failed, err)
			continue
		}
		want, err := s.Run(ctx, fed.Values)
		if err != nil {
			fed.Close()
			failed = append(failed, err)
			continue
		}
		c.fed, c.want = append(c.fed, fed), append(c.want, want)
	}
	if len(c.fed) == 0 {
		return errors.Join(failed...)
	}
	return nil
}

func (c *trial) close() {
	for i, b := range c.fed {
		b.Close()
		closeAll(c.want[i])
	}
}

func closeAll(values []*ort.Value) {
	for _, v := range values {
		v.Close()
	}
}

// difference says how a patched session answers otherwise than the model; "" where it does not.
func (c *trial) difference(ctx context.Context, p *session.Patch) string {
	s, err := c.request.Session(p)
	if err != nil {
		return err.Error()
	}
	defer s.Close()
	for i, b := range c.fed {
		got, err := s.Run(ctx, b.Values)
		if err != nil {
			return err.Error()
		}
		defer closeAll(got)
		for k, o := range s.Outputs() {
			if err := p.Hidden.Clear(o.Name, c.want[i][k], b.Values[p.Hidden.MaskName()]); err != nil {
				return err.Error()
			}
			if difference := Difference(c.want[i][k], got[k]); difference != "" {
				return "output " + o.Name + ": " + difference
			}
		}
	}
	return ""
}

// differenceWithout is difference for a session with operators left out.
func (c *trial) differenceWithout(ctx context.Context, these plan.LeftOut) (string, error) {
	planned, err := c.sessions.PlanWithout(ctx, c.request, these)
	if err != nil {
		return "", err
	}
	p, err := planned.Patch()
	if p == nil || err != nil {
		return "", err
	}
	return c.difference(ctx, p), nil
}

// blame finds those of the suspects that change answers without the others; all of them where it takes several. why
// is what they do together.
func (c *trial) blame(ctx context.Context, suspects []plan.Key, why string) (plan.LeftOut, error) {
	if len(suspects) == 1 {
		return plan.LeftOut{suspects[0]: why}, nil
	}
	wrong := plan.LeftOut{}
	for _, half := range [][]plan.Key{suspects[:len(suspects)/2], suspects[len(suspects)/2:]} {
		others := plan.LeftOut{}
		for _, k := range c.placed {
			if !slices.Contains(half, k) {
				others[k] = "not tried"
			}
		}
		why, err := c.differenceWithout(ctx, others)
		if err != nil {
			return nil, err
		}
		if why == "" {
			continue
		}
		part, err := c.blame(ctx, half, why)
		if err != nil {
			return nil, err
		}
		maps.Copy(wrong, part)
	}
	if len(wrong) == 0 {
		for _, k := range suspects {
			wrong[k] = why
		}
	}
	return wrong, nil
}

// Difference says how a patched session's output differs from that of its model, "" where it is within the tolerance.
func Difference(plain, patched *ort.Value) string {
	switch x := comparison.CompareValues("", plain, patched, 0, 0); {
	case x.OK:
		return ""
	case x.Problem != "":
		return x.Problem
	default:
		return fmt.Sprintf("off by up to %.3g in %d elements", x.MaxAbsolute, x.Disagree)
	}
}
