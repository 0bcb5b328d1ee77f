package generations

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/measure/comparison/divergence"
)

// Texts are what the sides are fed as it is (teacher forcing), beside what they generate: how far their distributions
// of the next token are from A's.
type Texts struct {
	// Inputs are tokens of the texts, of any length: of a decoder alone the texts themselves or, where there are
	// references, what these follow; of an encoder-decoder what its encoder reads. Where it reads features, those of
	// Options are taken.
	Inputs [][]int32
	// References are tokens of what should follow each input; nil for none. Of an encoder-decoder without references,
	// what A generates takes their place.
	References [][]int32
	// Window is the maximum of tokens of a text that a decoder alone reads at once, Stride how far windows are apart: see
	// divergence.Windows. 0 is 1,024, or as many as the model has positions, and half of a window.
	Window, Stride int
	// Tokens is the maximum that is predicted, of all texts together; 0 is no maximum.
	Tokens int
}

// Forced says over which texts the sides' Likelihood and Divergence are.
type Forced struct {
	Over   string `json:"over"`   // OverInputs, OverReferences or OverOutputs
	Texts  int    `json:"texts"`  // of which a token was predicted
	Tokens int    `json:"tokens"` // that were predicted
	Left   int    `json:"left"`   // tokens that were not, since there are more than Texts.Tokens
	// Window and Stride are those of a decoder alone; 0 of an encoder-decoder, which reads an output whole.
	Window int    `json:"window"`
	Stride int    `json:"stride"`
	SHA256 string `json:"sha256"` // of all tokens of the texts, four bytes each, the lowest first
}

// What the tokens that are predicted come from.
const (
	OverInputs     = "inputs"
	OverReferences = "references"
	OverOutputs    = "outputs of a"
)

// defaultWindow is that of Texts; pieceBytes is the maximum of logits of a side that the engine makes at once.
const (
	defaultWindow = 1024
	pieceBytes    = 32 << 20
)

// windows are the sizes of windows for a model of so many positions.
func (t *Texts) windows(positions int64) (size, stride int, err error) {
	positions = min(positions, modeldir.DefaultPositions)
	if size = t.Window; size == 0 {
		size = int(min(positions, defaultWindow))
	}
	if int64(size) > positions {
		return 0, 0, fmt.Errorf("windows of %d tokens; the model has %d positions", size, positions)
	}
	if stride = t.Stride; stride == 0 {
		stride = max(size/2, 1)
	}
	_, err = divergence.Windows(0, 1, size, stride)
	return size, stride, err
}

// forcedPart is what a part of the work says: how far it is, and at the end what came of it.
type forcedPart struct {
	Done, Total int64
	Result      *forcedResult
}

// forcedResult is by side, A first.
type forcedResult struct {
	Forced
	Likelihoods []*divergence.Likelihood
	Divergences []*divergence.Divergence // nil for A
}

// forcing is the work on texts, a part at a time.
type forcing struct {
	*here
	config  *modeldir.Config
	texts   *Texts
	inputs  []*decode.Input
	outputs [][][]int32 // by side, of those that have generated
	sums    *divergence.Sides
	list    []sequence
	parts   []part
	result  forcedResult
	done    int
	total   int64 // tokens to be predicted
}

// sequence is a text with what is fed before it.
type sequence struct {
	encoder *decode.Input // of an encoder-decoder
	tokens  []int32
	first   int // that counts
}

// part is a window of a sequence.
type part struct {
	sequence int
	divergence.Window
}

// forcer is a device that can be fed texts.
type forcer interface {
	Force(ctx context.Context, in *decode.Input) (decode.Forced, error)
}

// newForcing begins the work.
func (h *here) newForcing() (*forcing, error) {
	config, err := modeldir.ReadConfig(h.folder)
	if err != nil {
		return nil, err
	}
	f := &forcing{here: h, config: config, texts: h.options.Texts, sums: divergence.New(len(h.sides), config.Vocab)}
	for _, tokens := range f.texts.Inputs {
		f.inputs = append(f.inputs, &decode.Input{Tokens: tokens})
	}
	if config.FeatureShape() != nil {
		f.inputs = nil
		for _, one := range h.options.Features {
			f.inputs = append(f.inputs, &decode.Input{Features: one})
		}
	}
	for i, in := range f.inputs {
		in.Index = uint64(i)
	}
	if r := f.texts.References; r != nil && len(r) != len(f.inputs) {
		return nil, fmt.Errorf("there are %d inputs and %d references: one of each input is needed", len(f.inputs), len(r))
	}
	return f, nil
}

// encoderDecoder says whether the texts are what a decoder makes of an encoder's input.
func (f *forcing) encoderDecoder() bool { return f.sides[0].search.IsEncoderDecoder }

// generating is how many sides, from A on, generate before texts are fed.
func (f *forcing) generating() int {
	if f.texts.References == nil && f.encoderDecoder() {
		return 1
	}
	return 0
}

// force does a part of the work: a side generates, or all sides read a window.
func (h *here) force(ctx context.Context) (_ *forcedPart, err error) {
	if h.forcing == nil {
		if h.forcing, err = h.newForcing(); err != nil {
			return nil, err
		}
	}
	f := h.forcing
	switch {
	case len(f.outputs) < f.generating():
		w := h.sides[len(f.outputs)]
		found, err := f.generate(ctx, w)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.Name, err)
		}
		f.outputs = append(f.outputs, found)
		return &forcedPart{}, nil
	case f.list == nil:
		if err := f.prepare(ctx); err != nil {
			return nil, err
		}
	}
	if f.done < len(f.parts) {
		if err := f.window(ctx, f.parts[f.done]); err != nil {
			return nil, err
		}
		f.done++
	}
	p := &forcedPart{Done: int64(f.sums.Tokens()), Total: f.total}
	if f.done == len(f.parts) {
		f.finish()
		p.Result = &f.result
	}
	return p, nil
}

// generate lets a side generate from all inputs.
func (f *forcing) generate(ctx context.Context, w *way) ([][]int32, error) {
	best := make([][]int32, len(f.inputs))
	i := -1
	err := w.device.Run(ctx, w.search, func() (*decode.Input, error) {
		if i++; i >= len(f.inputs) {
			return nil, nil
		}
		return f.inputs[i], nil
	}, func(out decode.Output) error {
		if len(out.Hypotheses) > 0 {
			best[out.Index] = out.Hypotheses[0].Tokens
		}
		return nil
	})
	return best, err
}

// prepare puts together what is fed.
func (f *forcing) prepare(ctx context.Context) error {
	r := &f.result.Forced
	r.Over = OverInputs
	follow := f.texts.References
	if follow != nil {
		r.Over = OverReferences
	} else if f.encoderDecoder() {
		r.Over, follow = OverOutputs, f.outputs[0]
	}
	f.list = []sequence{}
	for i, in := range f.inputs {
		s := sequence{tokens: slices.Clone(in.Tokens), first: 1}
		if f.encoderDecoder() {
			prompt, err := f.prompt(ctx, in)
			if err != nil {
				return fmt.Errorf("text %d: %w", i, err)
			}
			s = sequence{encoder: in, tokens: prompt}
		}
		if follow != nil {
			s.first = max(len(s.tokens), 1)
			s.tokens = append(s.tokens, follow[i]...)
		}
		if err := f.config.CheckTokens(s.tokens); err != nil {
			return fmt.Errorf("text %d: %w", i, err)
		}
		f.list = append(f.list, s)
	}
	var size, stride int
	if f.encoderDecoder() {
		if f.texts.Window+f.texts.Stride > 0 {
			return errors.New(
				"the model is an encoder-decoder, whose outputs are read whole: leave windows and their stride out")
		}
	} else {
		var err error
		if size, stride, err = f.texts.windows(f.config.Positions); err != nil {
			return err
		}
		r.Window, r.Stride = size, stride
	}
	h, word := sha256.New(), make([]byte, 4)
	for i, s := range f.list {
		for _, t := range s.tokens {
			binary.LittleEndian.PutUint32(word, uint32(t))
			h.Write(word)
		}
		tokens := len(s.tokens)
		if f.encoderDecoder() { // whole, as far as there are positions
			tokens = int(min(int64(tokens), min(f.config.Positions, modeldir.DefaultPositions)))
			size, stride = max(tokens, 2), 1
		}
		list, err := divergence.Windows(tokens, s.first, size, stride)
		if err != nil {
			return err
		}
		before := f.total
		if f.add(i, list); f.total > before {
			r.Texts++
		}
	}
	r.SHA256 = hex.EncodeToString(h.Sum(nil))
	return nil
}

// add adds windows of a sequence, as far as tokens may be predicted.
func (f *forcing) add(sequence int, list []divergence.Window) {
	most := int64(f.texts.Tokens)
	if most == 0 {
		most = math.MaxInt64
	}
	for _, w := range list {
		whole := w.End - w.From
		n := int(min(int64(whole), most-f.total))
		f.result.Left += whole - n
		if n == 0 {
			continue
		}
		w.End = w.From + n
		f.total += int64(n)
		f.parts = append(f.parts, part{sequence, w})
	}
}

// prompt is what the decoder begins with, the language being the one that A detects where it is open.
func (f *forcing) prompt(ctx context.Context, in *decode.Input) ([]int32, error) {
	a := f.sides[0]
	prompt, err := a.search.DecoderPrompt()
	if err != nil {
		return nil, err
	}
	prompt = slices.Clone(prompt)
	open := slices.Index(prompt, search.NoToken)
	if open < 0 {
		return prompt, nil
	}
	begun, err := f.begin(ctx, a, &decode.Input{Tokens: in.Tokens, Features: in.Features, Prompt: prompt[:open]})
	if err != nil {
		return nil, err
	}
	defer begun.Close()
	rows, err := begun.Next(ctx, open)
	if err == nil {
		prompt[open], err = a.search.Detected(rows[len(rows)-f.config.Vocab:])
	}
	return prompt, err
}

func (f *forcing) begin(ctx context.Context, w *way, in *decode.Input) (decode.Forced, error) {
	device, ok := w.device.(forcer)
	if !ok {
		return nil, fmt.Errorf("%s cannot be fed texts: this is a bug", w.Name)
	}
	return device.Force(ctx, in)
}

// window feeds a window to all sides, and compares their logits piece by piece.
func (f *forcing) window(ctx context.Context, p part) error {
	s := &f.list[p.sequence]
	in := &decode.Input{Tokens: s.tokens[p.Begin : p.End-1]} // the last is only predicted
	if s.encoder != nil {
		in = &decode.Input{Tokens: s.encoder.Tokens, Features: s.encoder.Features, Prompt: in.Tokens}
	}
	begun := make([]decode.Forced, 0, len(f.sides))
	defer func() {
		for _, b := range begun {
			b.Close()
		}
	}()
	for _, w := range f.sides {
		b, err := f.begin(ctx, w, in)
		if err == nil {
			begun = append(begun, b)
			err = b.Skip(ctx, p.From-1-p.Begin)
		}
		if err != nil {
			return fmt.Errorf("%s, text %d: %w", w.Name, p.sequence, err)
		}
	}
	rows := max(pieceBytes/4/f.config.Vocab, 1)
	logits := make([][]float32, len(begun))
	for from := p.From; from < p.End; from += rows {
		n := min(rows, p.End-from)
		for i, b := range begun {
			var err error
			if logits[i], err = b.Next(ctx, n); err != nil {
				return fmt.Errorf("%s, text %d: %w", f.sides[i].Name, p.sequence, err)
			}
		}
		if err := f.sums.Add(p.sequence, from, s.tokens[from:from+n], logits); err != nil {
			if wrong := (*divergence.ErrLogits)(nil); errors.As(err, &wrong) {
				return fmt.Errorf("%s, text %d: %w", f.sides[wrong.Side].Name, p.sequence, err)
			}
			return err
		}
	}
	return nil
}

// finish takes the sums.
func (f *forcing) finish() {
	r := &f.result
	r.Tokens = f.sums.Tokens()
	for i := range f.sides {
		r.Likelihoods = append(r.Likelihoods, f.sums.Likelihood(i))
		var d *divergence.Divergence
		if i > 0 {
			d = f.sums.Divergence(i)
		}
		r.Divergences = append(r.Divergences, d)
	}
	if f.texts.References != nil {
	}
}
