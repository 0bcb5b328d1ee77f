package decode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
)

// ErrStateDraft is the error of drafts for, or by, a model with recurrent states.
var ErrStateDraft = errors.New(
	"the model has recurrent states, which cannot forget drafted tokens that are not chosen; generate without drafts")

// takesDrafts reports drafts that a model's states could not forget.
func takesDrafts(e *engine.Engine, d search.Draft) error {
	if d != search.DraftNone && e.HasStates() {
		return ErrStateDraft
	}
	return nil
}

// checkedTokens are those of the prompt by which states are checked: more than a window of theirs.
const checkedTokens = 9

// checkStates compares what the graph for prompts says of one with what the engine does, whose states begin at zero and
// go from token to token. The exporter says nowhere what they begin with; where one graph reads prompts and steps, it
// is given zeros.
func (g *Generator) checkStates(ctx context.Context, f *modeldir.Files) error {
	if !g.engine.HasStates() {
		return nil
	}
	path := cmp.Or(f.First, f.Decoder)
	ends, err := prepare.ReadExported(ctx, f, g.config.Vocab)
	if err != nil {
		return err
	}
	s, err := session.OpenContext(ctx, g.options.Library, path,
		session.Options{Unpatched: true, IntraOpThreads: g.options.Threads})
	if err != nil {
		return modeldir.About(path, err)
	}
	defer s.Close()
	tokens := g.checkedPrompt(&ends.First)
	inputs := map[string]*ort.Value{}
	defer func() {
		for _, v := range inputs {
			v.Close()
		}
	}()
	for _, in := range s.Inputs() {
		held := ends.First.Inputs[in.Name]
		list := slices.Clone(tokens)
		for i := range list {
			switch held.Is {
			case roles.Positions:
				list[i] = int64(i)
			case roles.Mask:
				list[i] = 1
			}
		}
		read := slices.Contains([]roles.Input{roles.Tokens, roles.Positions, roles.Mask}, held.Is)
		if f.First == "" && !read && in.Element == ort.Float32 {
			if inputs[in.Name], err = g.before(in, held.Axis); err != nil {
				return err
			}
			continue
		}
		if !read || in.Element != ort.Int64 || len(in.Shape) != 2 {
			return &diagnostic.Error{Path: path, Found: "input " + in.Name,
				Needed: "tokens, positions and a mask alone, by which recurrent states are checked"}
		}
		if inputs[in.Name], err = ort.NewTensor(g.options.Library, []int64{1, int64(len(list))}, list); err != nil {
			return err
		}
	}
	results, err := s.Run(ctx, inputs, ends.First.Logits)
	if err != nil {
		return modeldir.About(path, err)
	}
	defer results[0].Close()
	want, err := ort.Data[float32](results[0])
	if err != nil {
		return err
	}
	own := g.engine.NewSequence()
	defer own.Release()
	scores, err := g.engine.Step(ctx, []engine.Feed{{Sequence: own, Tokens: tokens, Prompt: true}})
	if err != nil {
		return err
	}
	if len(want) < scores.Vocab {
		return f.NoDecoder()
	}
	want = want[len(want)-scores.Vocab:]
	share := 2e-4 // of the scores' spread: more than rounding of float32, less than another formula for prompts
	switch {
	case g.options.Weights.Quantizes():
		share = 0.25
	case g.engine.Weights().Quantized() || g.options.Attention.Storage.Whole() != plan.Float32:
		share = 0.01
	}
	limit, far := share*float64(slices.Max(want)-slices.Min(want)), 0.0
	for i, x := range want {
		far = max(far, float64(x-scores.Data[i]), float64(scores.Data[i]-x))
	}
	if far <= limit {
		return nil
	}
	return &diagnostic.Error{Path: path,
		Found:  fmt.Sprintf("its scores of a prompt are %.3g away from those of steps with states that begin at zero", far),
		Needed: "the same, as recurrent states that begin at zero give them",
		Fix: "export both graphs of one model; of one whose prompts are computed otherwise than steps, as Transformers has " +
			"Zamba 2, generate with --baseline"}
}

// checkedPrompt is a prompt by which states are checked, as long as a graph that is for one length needs it.
func (g *Generator) checkedPrompt(ends *prepare.Ends) []int64 {
	length := checkedTokens
	for _, held := range ends.Inputs {
		if held.Is == roles.Tokens {
			length = cmp.Or(held.Length, length)
		}
	}
	tokens := make([]int64, length)
	for i := range tokens {
		tokens[i] = int64((1 + i) * 7919 % g.config.Vocab)
	}
	return tokens
}

// before is what a graph is given as what came before a prompt: keys and values of no token, which lie along an axis,
// and states of zero.
func (g *Generator) before(in ort.ValueInfo, axis int) (*ort.Value, error) {
	shape, count := slices.Clone(in.Shape), int64(1)
	for i, d := range shape {
		switch {
		case i == 0:
			shape[i] = 1
		case i == axis:
			shape[i] = 0
		case d >= 0:
		case len(shape) == 4 && i == 3:
			shape[i] = g.config.HeadSize()
		default:
			shape[i] = 0
		}
		count *= shape[i]
	}
	return ort.NewTensor(g.options.Library, shape, make([]float32, count))
}
