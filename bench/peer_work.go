package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/models"
)

// peerWork is the engine's side of a case.
type peerWork struct {
	generator *decode.Generator
	inputs    []*decode.Input
	features  *peerFeatures
	start     []int32 // of a speech model's decoder
	banned    []int32 // tokens that no output has, the end token first
	noRepeat  int     // no_repeat_ngram_size
	// Of all requests so far.
	steps, reorders int
}

// generated is a generation of the engine: the best sequence of each input, and the seconds of all, and until each
// had its first token.
type generated struct {
	tokens         [][]int32
	seconds, first float64
}

// folder is that of the model.
func (c peerCase) folder() (string, error) {
	if c.trained() {
		return trainedFolder(c.subject.model)
	}
	return models.Cached(c.subject.model, say)
}

// trained says that the model is one of make trained-models, and that its inputs are texts.
func (c peerCase) trained() bool { return c.fewer != nil && c.fewer.trained }

// start starts the peer. Of a trained model the peer is told where it lies.
func (c peerCase) start(ctx context.Context, venv, way string) (*peerProcess, error) {
	subject := c.subject.model
	if c.trained() {
		folder, err := c.folder()
		if err != nil {
			return nil, err
		}
		subject += "@" + folder
	}
	return startPeer(ctx, venv, c.peer, subject, way)
}

// weights are those of the engine; "" for float32.
func (c peerCase) weights() string {
	if c.fewer == nil {
		return ""
	}
	return c.fewer.weights
}

// open opens the engine's side with weights as prepare.ParseWeights reads them; "" for float32.
func (c peerCase) open(ctx context.Context, b *bench, weights string) (*peerWork, error) {
	folder, err := c.folder()
	if err != nil {
		return nil, err
	}
	types, err := prepare.ParseWeights(cmp.Or(weights, string(prepare.Float32Weights)))
	if err != nil {
		return nil, err
	}
	g, err := decode.Open(ctx, folder,
		decode.Options{Library: b.library, Plugins: b.set, CacheBytes: 8 << 30, Batch: c.subject.batch, Weights: types})
	if err != nil {
		return nil, err
	}
	var w *peerWork
	if c.trained() {
		w, err = newTextWork(ctx, g, folder, c.subject)
	} else {
		w, err = newPeerWork(g, c.subject)
	}
	if err != nil {
		g.Close()
	}
	return w, err
}

func (w *peerWork) close() { w.generator.Close() }

// The names that make CTranslate2 transcribe English without timestamps.
var transcribe = []int32{50258, 50259, 50359, 50363}

// endOfText is the end token that CTranslate2 knows of a Whisper vocabulary.
const endOfText = 50257

func newPeerWork(g *decode.Generator, c peerSubject) (*peerWork, error) {
	o := g.Search()
	if len(o.EOSTokenID) != 1 {
		return nil, fmt.Errorf("%s: its configuration names %d end tokens: the comparison bans one", c.model,
			len(o.EOSTokenID))
	}
	w := &peerWork{generator: g, banned: o.EOSTokenID, noRepeat: 1}
	if shape := g.Config().FeatureShape(); shape != nil {
		w.features = &peerFeatures{Name: "features", Shape: append([]int64{int64(c.batch)}, shape[1:]...)}
		w.start, w.banned = transcribe, append([]int32{endOfText}, transcribe...)
		each := int(shape[1] * shape[2])
		values := models.Normal(c.seed, w.features.Name, c.batch*each)
		for i := range c.batch {
			w.inputs = append(w.inputs, &decode.Input{Index: uint64(i), Prompt: w.start[1:],
				Features: &engine.Features{Values: values[i*each : (i+1)*each], Shape: shape}})
		}
		return w, nil
	}
	r := rand.New(rand.NewPCG(c.seed, uint64(c.input)))
	tokens := make([]int32, c.input)
	for i := range tokens {
		tokens[i] = int32(r.IntN(g.Config().Vocab))
	}
	for i := range c.batch {
		r.Shuffle(len(tokens), func(i, j int) { tokens[i], tokens[j] = tokens[j], tokens[i] })
		w.inputs = append(w.inputs, &decode.Input{Index: uint64(i), Tokens: slices.Clone(tokens)})
	}
	// What the decoder begins with is no output either, where every engine has its
	// own view of whether that counts as a repetition.
	if g.Engine().HasEncoder() {
		start, err := o.DecoderPrompt()
		if err != nil {
			return nil, err
		}
		tokens = start
	}
	w.banned = append(slices.Clone(w.banned), tokens...)
	return w, nil
}

// request asks the peer for what run does. With random weights no token comes twice in an output, and none
// of the decoder's prompt: they would repeat themselves, and this is a rule
// that all engines have in common.
func (w *peerWork) request(beams, tokens int) peerRequest {
	r := peerRequest{Features: w.features, Prompt: w.start, Banned: w.banned, Beams: beams, NewTokens: tokens,
		NoRepeatNgramSize: w.noRepeat}
	if w.features == nil {
		for _, in := range w.inputs {
			r.Inputs = append(r.Inputs, in.Tokens)
		}
	}
	return r
}

// run generates the best sequence of every input.
func (w *peerWork) run(ctx context.Context, beams, tokens int) (*generated, error) {
	options := map[string]any{
		"num_beams": beams, "max_new_tokens": tokens, "no_repeat_ngram_size": w.noRepeat, "early_stopping": false,
		// No end, and scores as softmax gives them after what is banned, as peers do it.
		"eos_token_id": []int{}, "suppress_tokens": w.banned, "renormalize_logits": true,
		"forced_bos_token_id": nil, "forced_eos_token_id": nil,
	}
	if w.start != nil {
		options["decoder_start_token_id"] = w.start[0]
	}
	object, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	o, err := w.generator.SearchWith(object)
	if err != nil {
		return nil, err
	}
	r := &generated{tokens: make([][]int32, len(w.inputs))}
	i := -1
	start := time.Now()
	err = w.generator.Run(ctx, o, func() (*decode.Input, error) {
		if i++; i >= len(w.inputs) {
			return nil, nil
		}
		return w.inputs[i], nil
	}, func(out decode.Output) error {
		r.tokens[out.Index] = best(out.Hypotheses)
		r.first = max(r.first, out.FirstToken.Sub(start).Seconds())
		if beams > 1 {
			w.steps, w.reorders = w.steps+out.Steps, w.reorders+out.Reorders
		}
		return nil
	})
	r.seconds = time.Since(start).Seconds()
	return r, err
}

func best(list []search.Hypothesis) []int32 {
	if len(list) == 0 {
		return nil
	}
	return list[0].Tokens
}

func (w *peerWork) reorderShare() float64 { return float64(w.reorders) / float64(max(w.steps, 1)) }
