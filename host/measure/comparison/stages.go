package comparison

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opgraft/graft/host/measure/statistics"
)

// stages are the parts of a comparison in their order, in this process or in a child.
type stages interface {
	// open opens the sides, A first.
	open(ctx context.Context) ([]Opened, error)
	// cell makes the inputs of one size and compares answers.
	cell(ctx context.Context, at int) (*Cell, error)
	// rounds times rounds of A B C C B A with the inputs of the last cell, in milliseconds by side, A first: for about
	// as long as batch says, and at most so many.
	rounds(ctx context.Context, warmup, atMost int) ([][]float64, error)
	// environment measures the machine.
	environment(ctx context.Context) (Environment, error)
}

// batch is how long rounds are timed before anybody hears of it. Runs after a pause are slower; so long, hardly any
// is one.
const batch = time.Second

// run leads a comparison through its stages.
func run(ctx context.Context, s stages, path string, o Options) (*Swept, error) {
	if o.Rounds <= 0 {
		o.Rounds = 15
	}
	if o.Warmup <= 0 {
		o.Warmup = 3
	}
	sizes, err := cells(o.Axes)
	if err != nil {
		return nil, err
	}
	opened, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	r := newSwept(path, o, opened, nil)
	for at, lengths := range sizes {
		c, err := s.cell(ctx, at)
		if err != nil {
			return nil, within(o.Axes, lengths, err)
		}
		o.step("timing" + in(o.Axes, lengths))
		times := make([][]float64, len(opened))
		for done, warmup := 0, o.Warmup; done < o.Rounds; warmup = 0 {
			more, err := s.rounds(ctx, warmup, o.Rounds-done)
			if err != nil {
				return nil, within(o.Axes, lengths, err)
			}
			for i := range times {
				times[i] = append(times[i], more[i]...)
			}
			done += len(more[0]) / 2
			if o.Progress != nil {
				o.Progress(int64(at*o.Rounds+done), int64(len(sizes)*o.Rounds))
			}
		}
		c.time(times)
		r.Cells = append(r.Cells, *c)
	}
	o.step("measuring the machine")
	r.Environment, err = s.environment(ctx)
	return r, err
}

// newSwept is a result without times.
func newSwept(path string, o Options, opened []Opened, cells []Cell) *Swept {
	s := &Swept{SchemaVersion: sweepVersion, Model: path, ModelB: o.ModelB, Seed: o.Inputs.Seed, Warmup: o.Warmup,
		Rounds: o.Rounds,
		A:      opened[0], Sides: opened[1:], Axes: o.Axes, Cells: cells}
	if s.Axes == nil {
		s.Axes = []Axis{}
	}
	return s
}

// time sets the times of a cell, of A first.
func (c *Cell) time(times [][]float64) {
	c.A = Timed{statistics.Median(times[0]), times[0]}
	for i := range c.Sides {
		b := &c.Sides[i]
		b.Timed = Timed{statistics.Median(times[i+1]), times[i+1]}
		b.Speedup = statistics.SpeedupOf(times[0], times[i+1])
	}
}

// Label is In with the axes' names cut to their first words, where these tell them apart: charts have little room.
func Label(axes []Axis, lengths map[string]int64) string {
	short := slices.Clone(axes)
	first := map[string]int{}
	for _, a := range axes {
		word, _, _ := strings.Cut(a.Name, "_")
		first[word]++
	}
	var words []string
	for i, a := range axes {
		if word, _, _ := strings.Cut(a.Name, "_"); first[word] == 1 {
			short[i].Name = word
		}
		words = append(words, fmt.Sprintf("%s=%d", short[i].Name, lengths[a.Name]))
	}
	return strings.Join(words, " ")
}

// In is a cell in words, "sequence=16 batch=1", in the order of the axes; "" without them.
func In(axes []Axis, lengths map[string]int64) string {
	var words []string
	for _, a := range axes {
		words = append(words, fmt.Sprintf("%s=%d", a.Name, lengths[a.Name]))
	}
	return strings.Join(words, " ")
}

func in(axes []Axis, lengths map[string]int64) string {
	if len(axes) == 0 {
		return ""
	}
	return " " + In(axes, lengths)
}

// within says in which cell something failed.
func within(axes []Axis, lengths map[string]int64, err error) error {
	if len(axes) == 0 {
		return err
	}
	return fmt.Errorf("with %s: %w", In(axes, lengths), err)
}
