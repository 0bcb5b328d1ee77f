package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
)

// plannerCache bounds the caches of one engine: addresses, not memory.
const plannerCache = 32 << 30

// plannerSide is strategies by kind of attention and those really used: where weights rule it out,
// layers fall back.
type plannerSide struct {
	Name       string         `json:"name"`
	Strategies map[string]int `json:"strategies"` // layers by type and strategy
	Reason     string         `json:"reason,omitempty"`
	// SameAs is the side with equal strategies in every layer, which is timed in its place.
	SameAs string           `json:"same_as,omitempty"`
	Fill   map[int64]fillOf `json:"fill,omitempty"` // by length

	engine   *engine.Engine
	encoded  []*engine.Encoded
	requests []*engine.Sequence
	feeds    []engine.Feed
}

// fillOf is the seconds that one input's encoder's output takes to be stored.
type fillOf []float64

// openSide opens a model as an engine does with the named strategies, with room for the
// decoder's weights alone: no encoder runs.
func (b *bench) openSide(ctx context.Context, a *asked, folder, name string) (*plannerSide, error) {
	attention, err := prepare.ParseAttention(name, nil)
	if err != nil {
		return nil, err
	}
	opened, err := prepare.Open(context.Background(), folder)
	if err != nil {
		return nil, err
	}
	generation, err := opened.Make(context.Background(),
		prepare.Options{Library: b.library, Plugins: b.set, Attention: attention, CacheBytes: plannerCache,
			MaxPositions: modeldir.DefaultPositions, Batch: 1})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, c := range generation.Choices {
		if l := c.Kind.Layers; !slices.ContainsFunc(a.kinds, func(k plan.Kind) bool { return k.Layers == l }) {
			generation.Close()
			return nil, fmt.Errorf("the engine has %s, of which nothing was asked", l)
		}
	}
	panels, err := weightBytes(opened.Files.Decoder)
	if err != nil {
		generation.Close()
		return nil, err
	}
	for _, k := range a.kinds {
		if l := k.Layers; l.Type == "cross" {
			panels += 4 * l.Layers * l.Width * (l.KeyWidth() + l.ValueWidth())
		}
	}
	s := &plannerSide{Name: name, Strategies: map[string]int{}, Fill: map[int64]fillOf{}}
	s.engine, err = engine.Open(ctx, generation,
		engine.Options{Library: b.library, Plugins: b.set, CacheBytes: plannerCache, PanelBytes: panels,
			Config: map[string]string{"session.force_spinning_stop": "1"}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if s.engine.StepBytes() == 0 {
		s.close()
		return nil, fmt.Errorf("%s: %d bytes are too few for the decoder's weights", name, panels)
	}
	for _, x := range s.engine.Strategies() {
		s.Strategies[x.Type+"="+string(x.Strategy)]++
		if x.Reason == "" {
			continue
		}
		if s.Reason == "" {
			s.Reason = x.Reason
		}
		asked := attention.Self
		if x.Type == "cross" {
			asked = attention.Cross
		}
		a.refuse(x.Type, plan.Candidate{Strategy: asked}, x.Node+": "+x.Reason)
	}
	return s, nil
}

// weightBytes is more than the weights of a model file take, be they in it or beside it.
func weightBytes(path string) (sum int64, err error) {
	list, err := filepath.Glob(path + "*")
	if err != nil {
		return 0, err
	}
	for _, p := range list {
		info, err := os.Stat(p)
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return sum + sum/8, nil // columns are rounded up
}

func (s *plannerSide) close() {
	if s.engine != nil {
		s.release()
		s.engine.Close()
		s.engine = nil
	}
}

func (s *plannerSide) release() {
	s.end()
	for _, x := range s.encoded {
		x.Release()
	}
	s.encoded = nil
}

// end releases the requests of a cell.
func (s *plannerSide) end() {
	for _, x := range s.requests {
		x.Release()
	}
	s.requests = nil
}

// store stores an encoder's output once more, and its time where that is one of a length.
func (s *plannerSide) store(ctx context.Context, hidden *ort.Value, length int64) error {
	start := time.Now()
	x, err := s.engine.Store(ctx, hidden, 1)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	s.Fill[length] = append(s.Fill[length], time.Since(start).Seconds())
	s.encoded = append(s.encoded, x)
	return nil
}

// start makes the requests of a cell.
func (s *plannerSide) start(c *plannerCell, encoder bool, vocab int) error {
	s.end()
	s.feeds = s.feeds[:0]
	r := rand.New(rand.NewPCG(uint64(c.Length), uint64(c.Beams)))
	prompt := int(c.Length)
	if encoder {
		prompt = 1
	}
	for i := range int(c.Batch) {
		x, err := s.engine.Imagine(prompt, int(c.Beams), plannerOwn)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		s.requests = append(s.requests, x)
		f := engine.Feed{Sequence: x}
		if encoder {
			f.Cross = s.encoded[i]
		}
		for range c.Beams {
			f.Tokens = append(f.Tokens, int64(r.IntN(vocab)))
		}
		s.feeds = append(s.feeds, f)
	}
	return nil
}

// step is the seconds of one step, with the part of the n-th of them in what filled the
// caches.
func (s *plannerSide) step(ctx context.Context, c *plannerCell, n int) (float64, error) {
	start := time.Now()
	if _, err := s.engine.Step(ctx, s.feeds); err != nil {
		return 0, fmt.Errorf("%s: %w", s.Name, err)
	}
	took := time.Since(start).Seconds()
	if fill := s.Fill[c.Length]; len(fill) > 0 {
		for i := range int(c.Batch) {
			took += fill[(n+i)%len(fill)] / plannerSteps
		}
	}
	return took, nil
}
