package comparison

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
)

// here are the stages in this process.
type here struct {
	library *ort.Library
	set     *loaded.Set
	path    string
	options Options
	cells   []map[string]int64
	opened  []*side       // A first; nil until they are open
	fed     *inputs.Batch // of the last cell
	refs    references
}

// pair is A and another side, with the inputs they are fed and their first answers.
type pair struct {
	a, b       *side
	fed        *inputs.Batch
	result     *Result
	references *references
}

// ErrSame is the kind of the error that all sides run the same operators: what their times said would be noise.
var ErrSame = errors.New("both sides run the same operators")

func (h *here) open(ctx context.Context) ([]Opened, error) {
	opened, err := h.sides(ctx)
	if err != nil {
		return nil, err
	}
	return opened, h.differ()
}

// sides opens all sides.
func (h *here) sides(ctx context.Context) (opened []Opened, err error) {
	o := &h.options
	if h.cells, err = cells(o.Axes); err != nil {
		return nil, err
	}
	// A name or a length that is wrong should be said before a large model is loaded.
	for _, name := range o.names() {
		if _, err := PlanOptions(h.set, name, *o); err != nil {
			return nil, err
		}
	}
	for at := len(h.cells) - 1; at >= 0; at-- { // the first is then fed
		if err := h.feed(at); err != nil {
			return nil, within(o.Axes, h.cells[at], err)
		}
	}
	for i, name := range o.names() {
		o.step("loading " + o.label(i) + ": " + name)
		path := h.path
		if i == 1 && o.ModelB != "" {
			path = o.ModelB
		}
		s, err := open(ctx, h.library, h.set, path, name, *o)
		if err != nil {
			return nil, fmt.Errorf("%s (%s): %w", o.label(i), name, err)
		}
		h.opened = append(h.opened, s)
		opened = append(opened, s.Opened)
	}
	return opened, ctx.Err()
}

// differ refuses sides of other names than A's of which none replaces anything.
func (h *here) differ() error {
	a := h.opened[0]
	var names []string
	most := a.Blocks
	for _, b := range h.opened[1:] {
		if h.options.ModelB != "" || a.Name == b.Name || a.Changed || b.Changed {
			return nil
		}
		names, most = append(names, b.Name), max(most, b.Blocks)
	}
	found := fmt.Sprintf("nothing is replaced on either side (a is %s, b is %s; %d blocks): both run the same operators",
		a.Name, names[0], most)
	if len(names) > 1 {
		found = fmt.Sprintf("nothing is replaced on any side (a is %s, b are %s; %d blocks): all run the same operators",
			a.Name, strings.Join(names, ", "), most)
	}
	return &diagnostic.Error{Kind: ErrSame, Path: h.path, Needed: "a side that replaces something", Found: found,
		Fix: "graft inspect shows why; --force uses operators whatever they are expected to gain"}
}

// feed makes the inputs of a cell.
func (h *here) feed(at int) (err error) {
	h.fed.Close()
	h.fed = nil
	h.options.step("making inputs" + in(h.options.Axes, h.cells[at]))
	h.fed, err = inputs.Make(h.library, h.path, h.options.In(h.cells[at]).Inputs)
	return err
}

func (h *here) cell(ctx context.Context, at int) (*Cell, error) {
	o := &h.options
	if at > 0 { // the first is fed already
		if err := h.feed(at); err != nil {
			return nil, err
		}
	}
	for i, s := range h.opened {
		if err := s.first(ctx, h.fed.Values); err != nil {
			return nil, fmt.Errorf("%s (%s): %w", o.label(i), s.Name, err)
		}
	}
	o.step("comparing answers" + in(o.Axes, h.cells[at]))
	c := &Cell{Lengths: h.cells[at], Inputs: h.fed.Infos, Workload: h.fed.Workload}
	for _, b := range h.opened[1:] {
		p := &pair{a: h.opened[0], b: b, fed: h.fed, references: &h.refs, result: &Result{Model: h.path}}
		if err := p.compare(ctx, h.library, *o); err != nil {
			return nil, err
		}
		c.Sides = append(c.Sides, Against{Name: b.Name, Parity: p.result.Parity})
	}
	return c, nil
}

// compare compares what both sides say.
func (p *pair) compare(ctx context.Context, l *ort.Library, o Options) (err error) {
	if p.b.hidden != nil {
		// A's results lose rows that only this side has not.
		again := *p.a
		if again.results, err = p.a.session.Run(ctx, p.fed.Values); err != nil {
			return err
		}
		defer again.forget()
		p.a = &again
		if err = p.clear(p.a.session.Outputs(), p.a.results); err != nil {
			return err
		}
	}
	p.result.Parity = compare(p.a, p.b, o)
	if !p.result.Parity.OK {
		// No rounding excuses other numbers.
		if p.result.Parity.Random, err = draws(p.result.Model); err != nil || p.result.Parity.Random != "" {
			return err
		}
	}
	return p.arbitrate(ctx, l, p.result.Model, o)
}

// clear makes the model's own outputs what B has, where those are zeros in rows of hidden tokens.
func (p *pair) clear(outputs []ort.ValueInfo, results []*ort.Value) error {
	if p.b.hidden == nil {
		return nil
	}
	for i, o := range outputs {
		if err := p.b.hidden.Clear(o.Name, results[i], p.fed.Values[p.b.hidden.MaskName()]); err != nil {
			return err
		}
	}
	return nil
}

func (h *here) rounds(ctx context.Context, warmup, atMost int) ([][]float64, error) {
	var runs []func() (float64, error)
	for _, s := range h.opened {
		runs = append(runs, s.timed(ctx, h.fed.Values))
	}
	times := make([][]float64, len(runs))
	for start := time.Now(); len(times[0]) < 2*atMost && (len(times[0]) == 0 || time.Since(start) < batch); warmup = 0 {
		more, err := interleave(runs, warmup, 1)
		if err != nil {
			return nil, err
		}
		for i := range times {
			times[i] = append(times[i], more[i]...)
		}
	}
	return times, nil
}

func (h *here) environment(context.Context) (Environment, error) { return Measure(h.library), nil }

func (h *here) close() {
	for _, s := range h.opened {
		s.close()
	}
	h.refs.close()
	h.fed.Close()
}
