package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opgraft/graft/host/decode"
	"github.com/opgraft/graft/host/decode/engine"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/rewrite"
)

// plannerCache bounds the caches of one engine: addresses, not memory.
const plannerCache = 32 << 30

// plannerSide is a way of keeping and what is really kept: where weights rule it out,
// layers fall back.
type plannerSide struct {
	Name   string         `json:"name"`
	Kept   map[string]int `json:"kept"` // layers by type and what they keep
	Reason string         `json:"reason,omitempty"`
	// SameAs is the side that keeps the same in every layer, which is timed in its place.
	SameAs string           `json:"same_as,omitempty"`
	Fill   map[int64]fillOf `json:"fill,omitempty"` // by length

	engine  *engine.Engine
	encoded []*engine.Encoded
	samples []*engine.Sample
	feeds   []engine.Feed
}

// fillOf is the seconds that one input's encoder's output takes to be kept.
type fillOf []float64

// openSide opens a model as an engine does that keeps what is named, with room for the
// decoder's weights alone: no encoder runs.
func (b *bench) openSide(a *asked, files *engine.Files, folder, name string) (*plannerSide, error) {
	attention, err := decode.ParseAttention(name)
	if err != nil {
		return nil, err
	}
	config, err := decode.ReadConfig(folder)
	if err != nil {
		return nil, err
	}
	panels, err := weightBytes(files.Decoder)
	if err != nil {
		return nil, err
	}
	for _, k := range a.kinds {
		if l := k.Layers; l.Type == "cross" {
			panels += 4 * l.Layers * l.Width * (l.KeyWidth() + l.ValueWidth())
		}
	}
	s := &plannerSide{Name: name, Kept: map[string]int{}, Fill: map[int64]fillOf{}}
	s.engine, err = engine.Open(files, engine.Options{
		Library: b.library, Plugins: b.set, CacheBytes: plannerCache, PanelBytes: panels,
		Config:    map[string]string{"session.force_spinning_stop": "1"},
		Positions: min(config.Positions, decode.DefaultPositions), EncoderPositions: config.EncoderPositions,
		Decide: func(kinds []plan.Layers) (engine.Keeps, error) {
			for _, l := range kinds {
				if !slices.ContainsFunc(a.kinds, func(k plan.Kind) bool { return k.Layers == l }) {
					return engine.Keeps{}, fmt.Errorf("the engine has %s, of which nothing was asked", l)
				}
			}
			return engine.Keeps{Self: attention.Self, Cross: attention.Cross}, nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if s.engine.StepBytes() == 0 {
		s.close()
		return nil, fmt.Errorf("%s: %d bytes are too few for the decoder's weights", name, panels)
	}
	for _, x := range s.engine.Served() {
		s.Kept[x.Type+"="+x.Keep.String()]++
		if s.Reason == "" {
			s.Reason = x.Reason
		}
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

// end lets go of the samples of a cell.
func (s *plannerSide) end() {
	for _, x := range s.samples {
		x.Release()
	}
	s.samples = nil
}

// keep keeps an encoder's output once more, and its time where that is one of a length.
func (s *plannerSide) keep(ctx context.Context, hidden *ort.Value, length int64) error {
	start := time.Now()
	x, err := s.engine.Keep(ctx, hidden, 1)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	s.Fill[length] = append(s.Fill[length], time.Since(start).Seconds())
	s.encoded = append(s.encoded, x)
	return nil
}

// begin makes the samples of a cell.
func (s *plannerSide) begin(c *plannerCell, encoder bool, vocab int) error {
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
		s.samples = append(s.samples, x)
		f := engine.Feed{Sample: x}
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

// How often a cell's sides are timed: all to find the choice's strongest rival, where
// one that takes farOff times as long as the fastest gets no second chance; then those
// that are left, in turns.
const (
	screened = 3
	contests = 4 // of two turns each
	farOff   = 1.5
)

// timeCells opens all sides of a model and times its cells.
func (b *bench) timeCells(ctx context.Context, a *asked, files *engine.Files, folder string, names []string, m plannerModel, r *plannerReport) error {
	config, err := decode.ReadConfig(folder)
	if err != nil {
		return err
	}
	var sides []*plannerSide
	defer func() {
		for _, s := range sides {
			s.close()
			r.Sides = append(r.Sides, *s)
		}
	}()
	if len(names) > 1 {
		for _, name := range names {
			s, err := b.openSide(a, files, folder, name)
			if err != nil {
				return err
			}
			sides = append(sides, s)
			for _, x := range sides[:len(sides)-1] {
				if x.SameAs == "" && slices.EqualFunc(x.engine.Served(), s.engine.Served(), func(a, b rewrite.Served) bool { return a.Keep == b.Keep }) {
					s.SameAs = x.Name
					s.close()
					break
				}
			}
		}
	}
	var open []*plannerSide
	for _, s := range sides {
		if s.SameAs == "" {
			open = append(open, s)
		}
	}
	length := int64(0)
	for i := range r.Cells {
		c := &r.Cells[i]
		c.Timed = c.Choice
		if i := slices.IndexFunc(sides, func(s *plannerSide) bool { return s.Name == c.Choice && s.SameAs != "" }); i >= 0 {
			c.Timed = sides[i].SameAs
		}
		if len(open) < 2 { // nothing else can serve
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

// fill keeps so many encoder's outputs of a length in every side. They are random: what
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
			if err := sides[i].keep(ctx, hidden, length); err != nil {
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
		if err := s.begin(c, encoder, vocab); err != nil {
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
		if rival == "" || slices.Min(times) < slices.Min(c.Screened[rival]) || slices.Min(times) == slices.Min(c.Screened[rival]) && name < rival {
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
