package main

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
)

// How often a cell's sides are timed: all to find the choice's strongest rival, where
// one that takes farOff times as long as the fastest gets no second chance; then those
// that are left, in turns.
const (
	screened = 3
	contests = 4 // of two turns each
	farOff   = 1.5
)

// openSides is the sides of a model that differ, the default first, and what the planner
// chooses in each cell: what weights rule out is known when a side is open.
type openSides struct {
	bench  *bench
	asked  *asked
	folder string
	all    []*plannerSide
}

// add opens a side, unless it is there.
func (o *openSides) add(ctx context.Context, name string) error {
	if o.named(name) != nil {
		return nil
	}
	s, err := o.bench.openSide(ctx, o.asked, o.folder, name)
	if err != nil {
		return err
	}
	o.all = append(o.all, s)
	for _, x := range o.all[:len(o.all)-1] {
		if x.SameAs == "" && slices.EqualFunc(x.engine.Strategies(), s.engine.Strategies(),
			func(a, b plan.LayerStrategy) bool { return a.Strategy == b.Strategy }) {
			s.SameAs = x.Name
			s.close()
			break
		}
	}
	return nil
}

// named is the side that is timed under a name, or nil.
func (o *openSides) named(name string) *plannerSide {
	for _, s := range o.all {
		if s.Name == name && s.SameAs != "" {
			return o.named(s.SameAs)
		}
		if s.Name == name {
			return s
		}
	}
	return nil
}

// differ are those that are timed.
func (o *openSides) differ() (list []*plannerSide) {
	for _, s := range o.all {
		if s.SameAs == "" {
			list = append(list, s)
		}
	}
	return list
}

// timeCells opens the sides of a model, lets the planner choose in each cell, and times
// them.
func (b *bench) timeCells(ctx context.Context, a *asked, folder string, m plannerModel, r *plannerReport) error {
	config, err := modeldir.ReadConfig(folder)
	if err != nil {
		return err
	}
	o := &openSides{b, a, folder, nil}
	defer func() {
		for _, s := range o.all {
			s.close()
			r.Sides = append(r.Sides, *s)
		}
	}()
	for _, name := range a.sides() {
		if err := o.add(ctx, name); err != nil {
			return err
		}
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		if err := a.choose(c); err != nil {
			return err
		}
		if err := o.add(ctx, c.Choice); err != nil {
			return err
		}
		c.Timed = o.named(c.Choice).Name
	}
	open := o.differ()
	length := int64(0)
	for i := range r.Cells {
		c := &r.Cells[i]
		if len(open) < 2 { // no other strategy can be used
			c.verdict = verdict{Alone: true, Right: true, Fastest: c.Choice, Loss: 1, P: 1}
			continue
		}
		if a.encoder && length != c.Length {
			length = c.Length
			if err := fill(ctx, b.library, open, length, a.width(), slices.Max(m.batches)); err != nil {
				return err
			}
		}
		if err := timeCell(ctx, open, c, a.encoder, config.Inputs); err != nil {
			return err
		}
	}
	return nil
}

// width is that of the encoder's output.
func (a *asked) width() int64 {
	for _, k := range a.kinds {
		if k.Layers.Type == "cross" {
			return k.Layers.Width
		}
	}
	return 0
}

// fill stores a number of encoder's outputs of a length in every side. They are random: what
// is timed does not depend on them.
func fill(ctx context.Context, l *ort.Library, sides []*plannerSide, length, width, count int64) error {
	for _, s := range sides {
		s.release()
	}
	r := rand.New(rand.NewPCG(uint64(length), uint64(width)))
	rows := make([]float32, length*width)
	for i := range rows {
		rows[i] = float32(r.NormFloat64())
	}
	hidden, err := ort.NewTensor(l, []int64{1, length, width}, rows)
	if err != nil {
		return err
	}
	defer hidden.Close()
	for n := range count + 1 {
		for i := range sides {
			if n%2 == 1 {
				i = len(sides) - 1 - i
			}
			if err := sides[i].store(ctx, hidden, length); err != nil {
				return err
			}
		}
		if n > 0 {
			continue
		}
		for _, s := range sides { // the first warms up
			s.release()
			s.Fill[length] = nil
		}
	}
	return nil
}

// timeCell finds the choice's strongest rival and lets the two and the default compete.
// The rival's times before do not count in the contest, so that one that was only lucky
// does not stay so.
func timeCell(ctx context.Context, sides []*plannerSide, c *plannerCell, encoder bool, vocab int) error {
	byName := map[string]*plannerSide{}
	for _, s := range sides {
		byName[s.Name] = s
		if err := s.start(c, encoder, vocab); err != nil {
			return err
		}
		if _, err := s.step(ctx, c, 0); err != nil { // the first warms up
			return err
		}
		defer s.end()
	}
	c.Screened, c.Contest = map[string][]float64{}, map[string][]float64{}
	least := math.Inf(1)
	for n := range screened {
		for _, s := range sides {
			if n > 0 && slices.Min(c.Screened[s.Name]) > farOff*least {
				continue
			}
			t, err := s.step(ctx, c, n)
			if err != nil {
				return err
			}
			c.Screened[s.Name] = append(c.Screened[s.Name], t)
			least = min(least, t)
		}
	}
	contest := contenders(c, sides[0].Name)
	if len(contest) == 1 { // nothing comes near
		c.Contest[c.Timed] = c.Screened[c.Timed]
	}
	for n := 0; n < contests && len(contest) > 1; n++ {
		for turn := range 2 * len(contest) {
			name := contest[min(turn, 2*len(contest)-1-turn)]
			t, err := byName[name].step(ctx, c, 2*n+turn/len(contest))
			if err != nil {
				return err
			}
			c.Contest[name] = append(c.Contest[name], t)
		}
	}
	c.verdict = judge(c.Timed, sides[0].Name, c.Contest)
	return nil
}

// contenders are the choice, its strongest rival, and the default.
func contenders(c *plannerCell, base string) []string {
	rival := ""
	for name, times := range c.Screened {
		if name == c.Timed || slices.Min(times) > farOff*slices.Min(c.Screened[c.Timed]) {
			continue
		}
		if rival == "" || slices.Min(times) < slices.Min(c.Screened[rival]) ||
			slices.Min(times) == slices.Min(c.Screened[rival]) && name < rival {
			rival = name
		}
	}
	list := []string{c.Timed}
	if rival != "" {
		list = append(list, rival)
	}
	if !slices.Contains(list, base) {
		list = append(list, base)
	}
	return list
}
