package generations

import (
	"context"
	"fmt"
	"time"

	"github.com/opgraft/graft/host/comparison"
	"github.com/opgraft/graft/host/decode/modeldir"
	"github.com/opgraft/graft/host/loaded"
	"github.com/opgraft/graft/host/ort"
)

// stages are the parts of a comparison in their order, in this process or in a child.
type stages interface {
	// open opens a side: 0 is A, 1 is B.
	open(ctx context.Context, side int) error
	// first generates with a side: tokens of the sequences of each input.
	first(ctx context.Context, side int) ([][][]int32, error)
	// round generates as A B B A.
	round(ctx context.Context) (*round, error)
	// end is what is known of the sides after all rounds.
	end(ctx context.Context) (*end, error)
}

// round is a round of A B B A.
type round struct {
	Seconds, TTFTSeconds [2][]float64 // of both runs of a side
	Bandwidth            float64      // of memory, in bytes a second; 0 where nobody asks
}

// end is what is known after all rounds.
type end struct {
	Sides        [2]Side
	StepBytes    int64 // that a step of B reads at least; 0 where that is not known
	ReorderShare float64
	Environment  comparison.Environment
}

// here are the stages in this process.
type here struct {
	library *ort.Library
	set     *loaded.Set
	folder  string
	options Options
	sides   [2]*way // nil until they are open
}

func (h *here) name(side int) string { return [...]string{h.options.A, h.options.B}[side] }

func (h *here) open(_ context.Context, side int) error {
	config, err := modeldir.ReadConfig(h.folder)
	if err != nil {
		return err
	}
	inputs, err := h.options.inputs(config)
	if err != nil {
		return err
	}
	h.sides[side], err = openWay(h.library, h.set, h.folder, h.name(side), config, inputs, h.options)
	return err
}

func (h *here) first(ctx context.Context, side int) ([][][]int32, error) {
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
	r := &round{}
	for _, i := range []int{0, 1, 1, 0} {
		start := time.Now()
		_, prompt, err := h.sides[i].run(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.name(i), err)
		}
		r.Seconds[i] = append(r.Seconds[i], time.Since(start).Seconds())
		r.TTFTSeconds[i] = append(r.TTFTSeconds[i], prompt.Seconds())
	}
	if h.sides[1].stepBytes > 0 {
		r.Bandwidth = comparison.MemoryBandwidth()
	}
	return r, nil
}

func (h *here) end(context.Context) (*end, error) {
	b := h.sides[1]
	return &end{[2]Side{h.sides[0].Side, b.Side}, b.stepBytes, b.share(), comparison.Measure(h.library)}, nil
}

func (h *here) close() {
	for _, w := range h.sides {
		if w != nil {
			w.close()
		}
	}
}
