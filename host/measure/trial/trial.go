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
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/patch"
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

// Patch is the ort.Patcher of these plugins. That a session cannot be compared is an error: it is not patched then.
func (t *Patcher) Patch(r ort.Request) (*ort.Patch, error) {
	asked, ok := r.Config(Config)
	if !ok && !t.All || ok && (asked == "" || asked == "0") {
		return t.Sessions.Patch(r)
	}
	c := t.trial(r)
	leave, err := c.compare()
	if err != nil {
		return nil, fmt.Errorf("its answers could not be verified: %w", err)
	}
	if len(leave) > 0 && t.Sessions.Logger != nil {
		t.Sessions.Logger.Warn("blocks are left unchanged, because a session with them answered otherwise than the model",
			"model", cmp.Or(r.Path, "model bytes"),
			"blocks", c.listed(leave), "reason", leave[slices.Min(slices.Collect(maps.Keys(leave)))])
	}
	return t.Sessions.Without(r, leave)
}

// trial is a model that is being compared.
type trial struct {
	sessions sessions.Patcher
	request  ort.Request
	fed      []*inputs.Batch
	want     [][]*ort.Value
	placed   []int    // numbers of the choices that replace something, before any is left out
	made     []int    // and those of the last patch
	random   string   // why answers that differ say nothing, "" for a model that draws no numbers
	names    []string // of their nodes, by number
}

// trial is that of a session.
func (t *Patcher) trial(r ort.Request) *trial {
	c := &trial{sessions: *t.Sessions, request: r}
	c.request.WayBack = false
	c.sessions.Logger = nil
	c.sessions.Done = func(a *patch.Analysis) {
		c.made, c.names, c.random = nil, nil, comparison.Drawn(a.Graph)
		for i, x := range a.Plan.Choices {
			c.names = append(c.names, x.Node)
			if x.Operator != nil {
				c.made = append(c.made, i)
			}
		}
	}
	return c
}

// compare finds the choices that change answers, with the reasons.
func (c *trial) compare() (leave map[int]string, err error) {
	p, err := c.sessions.Patch(c.request)
	if p == nil || err != nil {
		return nil, err
	}
	c.placed = c.made
	defer c.close()
	if err := c.expect(); err != nil {
		p.Release()
		return nil, err
	}
	why := c.differs(p)
	if why == "" {
		return nil, nil
	}
	if c.random != "" {
		return nil, &diagnostic.Error{Path: c.request.Path, Found: "its answers cannot be compared: " + c.random,
			Fix: "give the node a seed, or do not ask for them to be verified"}
	}
	if leave, err = c.blame(c.placed, why); err != nil {
		return nil, err
	}
	if why, err = c.without(leave); err != nil {
		return nil, err
	}
	if why != "" {
		for _, i := range c.placed { // blocks that change answers only together
			leave[i] = cmp.Or(leave[i], why)
		}
	}
	return leave, nil
}

func (c *trial) listed(leave map[int]string) string {
	var list []string
	for _, i := range slices.Sorted(maps.Keys(leave)) {
		list = append(list, c.names[i])
	}
	return strings.Join(list, ", ")
}

// expect makes the inputs and runs the model itself. Lengths for which ONNX Runtime gives no answer are passed over;
// that there is none at all is an error.
func (c *trial) expect() error {
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
		want, err := s.Run(context.Background(), fed.Values)
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

// differs says how a patched session answers otherwise than the model; "" where it does not.
func (c *trial) differs(p *ort.Patch) string {
	s, err := c.request.Session(p)
	if err != nil {
		return err.Error()
	}
	defer s.Close()
	for i, b := range c.fed {
		got, err := s.Run(context.Background(), b.Values)
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

// without is differs of a session that leaves choices out.
func (c *trial) without(leave map[int]string) (why string, err error) {
	p, err := c.sessions.Without(c.request, leave)
	if p == nil || err != nil {
		return "", err
	}
	return c.differs(p), nil
}

// blame finds those of the choices that change answers without the others; all of them where it takes several. why
// is what they do together.
func (c *trial) blame(of []int, why string) (map[int]string, error) {
	if len(of) == 1 {
		return map[int]string{of[0]: why}, nil
	}
	found := map[int]string{}
	for _, half := range [][]int{of[:len(of)/2], of[len(of)/2:]} {
		others := map[int]string{}
		for i := range c.names {
			if !slices.Contains(half, i) {
				others[i] = "not tried"
			}
		}
		why, err := c.without(others)
		if err != nil {
			return nil, err
		}
		if why == "" {
			continue
		}
		part, err := c.blame(half, why)
		if err != nil {
			return nil, err
		}
		maps.Copy(found, part)
	}
	if len(found) == 0 {
		for _, i := range of {
			found[i] = why
		}
	}
	return found, nil
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
