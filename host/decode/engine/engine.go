package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/opgraft/graft/host/blocks"
	"github.com/opgraft/graft/host/decode/cache"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/patch"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/rewrite"
)

// plugin is the one that attends over the pools.
const attentionPlugin = "flash-decode"

// Options are what an engine is opened with.
type Options struct {
	Library *ort.Library
	Plugins *patch.Set
	Plan    plan.Options // which operators may stand in beside the cache's own
	Threads int          // 0: one a core
	// Profile is the prefix of a file that the decoder's times of nodes are written to
	// when the engine is closed, as ONNX Runtime writes them; empty: none.
	Profile string
	// Config holds ONNX Runtime's session config entries.
	Config map[string]string
	// CacheBytes is the most that keys and values may take, both pools together.
	CacheBytes int64
	// PanelBytes is the most that weights may take when they are laid out anew: the
	// decoder's, then those that make an encoder's keys and values, then the encoder's.
	// Those of a session for which that is too little are read as they lie in the
	// model's file.
	PanelBytes int64
	// Positions is the longest sequence of the decoder, EncoderPositions that of the
	// encoder.
	Positions, EncoderPositions int64
}

// Engine is an open model: sessions and the pools of its samples. It is not for
// concurrent use.
type Engine struct {
	face      *rewrite.Engine
	library   *ort.Library
	decoder   *Session
	encoder   *Session // nil for a decoder alone
	filler    *Session // fills the cross pool from an encoder's output
	self      *pool
	cross     *pool // nil for a decoder alone
	positions int64
	step      stepBuffers
}

// pool is a cache with the tensor over its memory.
type pool struct {
	*cache.Pool
	tensor *ort.Value
}

// Open opens the model of a folder.
func Open(files *Files, o Options) (_ *Engine, err error) {
	if err := o.Plugins.Require([]string{attentionPlugin}); err != nil {
		return nil, err
	}
	e := &Engine{library: o.Library, positions: o.Positions}
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	if err := e.openDecoder(files.Decoder, o); err != nil {
		return nil, fmt.Errorf("%s: %w", files.Decoder, err)
	}
	o.Profile = "" // of the decoder alone
	o.PanelBytes -= e.decoder.panels.size()
	share := o.CacheBytes
	if e.face.Cross != nil {
		if files.Encoder == "" {
			return nil, fmt.Errorf("%s: the decoder attends over an encoder, of which the folder has none", files.Decoder)
		}
		share /= 2
		if e.cross, err = newPool(o.Library, *e.face.Cross, share); err != nil {
			return nil, err
		}
		if err := e.openFiller(files.First, o); err != nil {
			return nil, fmt.Errorf("%s: %w", files.First, err)
		}
		o.PanelBytes -= e.filler.panels.size()
		if err := e.openEncoder(files.Encoder, o); err != nil {
			return nil, fmt.Errorf("%s: %w", files.Encoder, err)
		}
	}
	if e.self, err = newPool(o.Library, e.face.Self, share); err != nil {
		return nil, err
	}
	return e, nil
}

func newPool(l *ort.Library, g rewrite.Geometry, bytes int64) (*pool, error) {
	c, err := cache.NewPool(cache.Geometry(g), bytes)
	if err != nil {
		return nil, err
	}
	v, err := ort.NewTensor(l, c.Shape(), c.Floats())
	if err != nil {
		c.Close()
		return nil, err
	}
	return &pool{c, v}, nil
}

func (p *pool) close() {
	if p != nil {
		p.tensor.Close()
		p.Pool.Close()
	}
}

// openDecoder rewrites the decoder and makes its session.
func (e *Engine) openDecoder(path string, o Options) error {
	drawn, err := newEvaluator(o.Library, path)
	if err != nil {
		return err
	}
	defer drawn.close()
	m, err := model.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := takeBranch(m.Proto(), true); err != nil {
		return err
	}
	g, err := graph.New(m.Proto(), m)
	if err != nil {
		return err
	}
	shapes := graph.Infer(g)
	e.face, err = rewrite.Stateful(g, shapes, blocks.Find(g, shapes),
		rewrite.StatefulOptions{Evaluate: drawn.evaluate, Positions: o.Positions})
	if err != nil {
		return err
	}
	if g, err = graph.New(m.Proto(), m); err != nil {
		return err
	}
	if err := rewrite.SelectEarly(g, graph.Infer(g)); err != nil {
		return err
	}
	e.decoder, err = newSession(m, o, nil)
	return err
}

// Close frees the sessions and the pools.
func (e *Engine) Close() {
	for _, s := range []*Session{e.decoder, e.encoder, e.filler} {
		s.Close()
	}
	e.step.close()
	e.self.close()
	e.cross.close()
}

// Plugins are those whose operators the decoder runs.
func (e *Engine) Plugins() []string { return e.decoder.plugins }

// Positions is the longest sequence.
func (e *Engine) Positions() int64 { return e.positions }

// HasEncoder reports an encoder-decoder.
func (e *Engine) HasEncoder() bool { return e.encoder != nil }

// NewSample is an empty sample of the decoder.
func (e *Engine) NewSample() *cache.Sample { return cache.NewSample(e.self.Pool) }

// Memory is what the caches take: now, and at most since the engine was opened,
// in bytes; own and the encoder's side.
func (e *Engine) Memory() (self, selfPeak, cross, crossPeak int64) {
	self, selfPeak = e.self.Bytes(), e.self.Peak()
	if e.cross != nil {
		cross, crossPeak = e.cross.Bytes(), e.cross.Peak()
	}
	return self, selfPeak, cross, crossPeak
}

// StepBytes is what a step reads at least, whatever it is fed: the weights of the
// decoder's products, once; 0 where they lie in the model's file. PositionBytes is
// what it reads for each distinct position of the decoder's own.
func (e *Engine) StepBytes() int64 {
	return e.decoder.panels.size()
}

func (e *Engine) PositionBytes() int64 { return e.self.Geometry().BlockBytes() / cache.BlockSlots }

// Feed is what one sample brings to a step: a prompt, of which only the last
// token's scores are computed, or one token for each of its rows.
type Feed struct {
	Sample *cache.Sample
	Cross  *cache.Sample // the encoder's side, for decoders that have one
	Tokens []int64
	Prompt bool
}

// Scores are the scores of a step: for each feed in order one row for a prompt,
// or one a row of the sample. They are valid until the next step.
type Scores struct {
	Data  []float32
	Rows  int
	Vocab int
}

// Step feeds tokens and computes scores.
func (e *Engine) Step(ctx context.Context, feeds []Feed) (*Scores, error) {
	if len(feeds) == 0 {
		return nil, errors.New("a step of no samples")
	}
	if err := e.step.fill(e, feeds); err != nil {
		return nil, err
	}
	return e.step.run(ctx, e)
}

// Room is how many positions the pool of self attention could hold in all.
func (e *Engine) Room() int64 {
	return e.self.FreeSlots() + e.self.Bytes()/e.self.Geometry().BlockBytes()*cache.BlockSlots
}
