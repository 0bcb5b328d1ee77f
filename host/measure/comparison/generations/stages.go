package generations

import (
	"context"
	"fmt"
	"time"

	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
)

// stages are the parts of a comparison in their order, in this process or in a child.
type stages interface {
	// open opens a side: 0 is A.
	open(ctx context.Context, side int) error
	// first generates with a side: tokens of the sequences of each input.
	first(ctx context.Context, side int) ([][][]int32, error)
	// round generates as A B C C B A.
	round(ctx context.Context) (*round, error)
	// force does a part of the work on Options.Texts: a side generates, or all sides read a window.
	force(ctx context.Context) (*forcedPart, error)
	// end is what is known of the sides after all rounds.
	end(ctx context.Context) (*end, error)
}

// round is a round of A B C C B A.
type round struct {
	Seconds, TTFTSeconds [][]float64 // by side, of both runs
	Bandwidth            float64     // of memory, in bytes a second; 0 where nobody asks
}

// end is what is known after all rounds.
type end struct {
	Sides       []ended
	Environment comparison.Environment
}

// ended is what is then known of a side.
type ended struct {
	Side
	StepBytes    int64 // that a step reads at least; 0 where that is not known
	ReorderShare float64
}

// here are the stages in this process.
type here struct {
	library *ort.Library
	set     *loaded.Set
	folder  string
	options Options
	sides   []*way // in the order in which they are opened
	forcing *forcing
}

func (h *here) open(ctx context.Context, side int) error {
	names := h.options.names()
	if side != len(h.sides) || side >= len(names) {
		return fmt.Errorf("side %d after %d of %d", side, len(h.sides), len(names))
	}
	config, err := modeldir.ReadConfig(h.folder)
	if err != nil {
		return err
	}
	inputs, err := h.options.inputs(config)
	if err != nil {
		return err
	}
	w, err := openWay(ctx, h.library, h.set, h.folder, names[side], config, inputs, h.options)
	if err == nil {
		h.sides = append(h.sides, w)
	}
	return err
}

func (h *here) first(ctx context.Context, side int) ([][][]int32, error) {
	if side >= len(h.sides) {
		return nil, fmt.Errorf("side %d is not open", side)
	}
	found, _, err := h.sides[side].run(ctx)
	tokens := make([][][]int32, len(found))
	for i, list := range found {
		for _, one := range list {
			tokens[i] = append(tokens[i], one.Tokens)
		}
	}
	return tokens, err
}

func (h *here) round(ctx context.Context) (*round, error) {
	n := len(h.sides)
	r := &round{Seconds: make([][]float64, n), TTFTSeconds: make([][]float64, n)}
	for at := range 2 * n {
		i := min(at, 2*n-1-at)
		start := time.Now()
		_, prompt, err := h.sides[i].run(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.sides[i].Name, err)
		}
		r.Seconds[i] = append(r.Seconds[i], time.Since(start).Seconds())
		r.TTFTSeconds[i] = append(r.TTFTSeconds[i], prompt.Seconds())
	}
	for _, w := range h.sides[min(1, n):] {
		if w.stepBytes > 0 {
			r.Bandwidth = comparison.MemoryBandwidth()
			break
		}
	}
	return r, nil
}

func (h *here) end(context.Context) (*end, error) {
	e := &end{Environment: comparison.Measure(h.library)}
	for _, w := range h.sides {
		e.Sides = append(e.Sides, ended{w.Side, w.stepBytes, w.share()})
	}
	return e, nil
}

func (h *here) close() {
	for _, w := range h.sides {
		w.close()
	}
}
