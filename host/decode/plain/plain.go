// Package plain generates as a program would without graft: the model as
// exported, its past and present as tensors. It is what the engine is compared
// with, and written as well as that way allows: a prompt runs once a sample and
// is then repeated for the beams, an encoder's keys and values are repeated once
// and never moved again, the decoder's own are moved at most once a step, into
// memory that is used again, and everything is bound (OrtIoBinding), so that
// nothing is allocated while it runs.
package plain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opgraft/graft/host/decode/engine"
	"github.com/opgraft/graft/host/decode/modeldir"
	"github.com/opgraft/graft/host/decode/search"
	"github.com/opgraft/graft/host/ort"
)

// Model is an exported model, open.
type Model struct {
	library *ort.Library
	encoder *ort.Session // nil for a decoder alone
	first   *ort.Session // the decoder without a past; nil when one session does both
	decoder *ort.Session
	// Self and Cross are what the decoder's and the encoder's keys and values took in
	// the last Generate, in bytes, all copies counted.
	Self, Cross int64
	// FirstToken is when the last Generate had the first token of every sample.
	FirstToken time.Time
}

// ErrNoPast reports a decoder that keeps nothing of the tokens before.
var ErrNoPast = errors.New("the decoder was exported without a past: the plain way would compute every token again at each step")

// Open opens the graphs of a folder, unpatched. Merged decoders are taken as they
// are and told which branch to take.
func Open(l *ort.Library, f *modeldir.Files, threads int) (_ *Model, err error) {
	m := &Model{library: l}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	o := ort.SessionOptions{Plain: true, IntraOpThreads: threads}
	if f.Encoder != "" {
		if m.encoder, err = l.NewSession(f.Encoder, o); err != nil {
			return nil, err
		}
		if f.First != f.Decoder {
			if m.first, err = l.NewSession(f.First, o); err != nil {
				return nil, err
			}
		}
	}
	if m.decoder, err = l.NewSession(f.Decoder, o); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(m.decoder.Inputs(), func(in ort.ValueInfo) bool { return len(in.Shape) == 4 }) {
		return nil, fmt.Errorf("%s: %w", f.Decoder, ErrNoPast)
	}
	return m, nil
}

// Close frees the sessions.
func (m *Model) Close() {
	for _, s := range []*ort.Session{m.encoder, m.first, m.decoder} {
		if s != nil {
			s.Close()
		}
	}
}

// Input is one sample's tokens: of the encoder's input and the decoder's prompt,
// or of the prompt alone.
type Input struct {
	Index    uint64 // the place in the whole input, from which random numbers are made
	Encoder  []int32
	Features *engine.Features
	Prompt   []int32
}

// Result is what became of an input.
type Result struct {
	Hypotheses []search.Hypothesis
	Steps      int // steps the sample took
	Reorders   int // steps after which its rows were not those before
}

// Generate runs a batch of inputs of one length to its end. The rows of a sample
// that ended run on, as in a loop over a fixed batch.
func (m *Model) Generate(ctx context.Context, tail search.Tail, o search.Options, inputs []Input, vocab int) ([]Result, error) {
	b := &batch{Model: m, beams: max(o.NumBeams, o.NumReturnSequences), size: len(inputs)}
	defer b.close()
	begun := time.Now()
	m.Self, m.Cross = 0, 0
	results := make([]Result, len(inputs))
	samples := make([]*search.State, len(inputs))
	for i, in := range inputs {
		if len(in.Prompt) != len(inputs[0].Prompt) || len(in.Encoder) != len(inputs[0].Encoder) {
			return nil, fmt.Errorf("input %d has another length than the first: a batch of the plain model needs one length", i)
		}
	}
	if b.encoder != nil {
		if err := b.encode(ctx, inputs); err != nil {
			return nil, err
		}
	}
	inputs, err := b.detect(ctx, o, inputs, vocab)
	if err != nil {
		return nil, err
	}
	for i, in := range inputs {
		samples[i], err = search.New(o, search.Input{Prompt: in.Prompt, Encoder: in.Encoder, Vocab: vocab, Index: in.Index})
		if err != nil {
			return nil, err
		}
	}
	b.limit = samples[0].Limit()
	scores, err := b.prompt(ctx, inputs)
	for rows := 1; err == nil; rows = b.beams {
		before := rowsOf(samples)
		if err = b.choose(tail, samples, scores, rows, vocab); err != nil {
			break
		}
		for i, s := range samples {
			if before[i] > 0 {
				results[i].count(s, before[i])
			}
		}
		if m.FirstToken.Before(begun) {
			m.FirstToken = time.Now()
		}
		if !slices.ContainsFunc(samples, func(s *search.State) bool { return !s.Done() }) {
			break
		}
		if err = b.follow(samples, rows); err == nil {
			scores, err = b.step(ctx, samples)
		}
	}
	if err != nil {
		return nil, err
	}
	for i, s := range samples {
		results[i].Hypotheses = s.Results()
	}
	return results, nil
}

// count notes a step of a sample that had so many rows.
func (r *Result) count(s *search.State, rows int) {
	if r.Steps++; r.Steps == 1 || s.Done() {
		return
	}
	moves := s.Moves()
	same := len(moves) == rows
	for i, m := range moves {
		same = same && m.Parent == i
	}
	if !same {
		r.Reorders++
	}
}

func rowsOf(samples []*search.State) []int {
	rows := make([]int, len(samples))
	for i, s := range samples {
		rows[i] = s.Rows()
	}
	return rows
}

// batch is one run of a batch.
type batch struct {
	*Model
	size, beams int // samples, and rows of a sample
	limit       int // positions at most
	length      int // positions in past
	hidden      *ort.Value
	cross       map[string]*ort.Value // repeated for the beams, by name of input
	own         []*layer
	owned       []*ort.Value // to be closed in the end
	scores      *ort.Value
	tokens      []int64
	stepper     search.Stepper
}

// layer is one tensor of the decoder's own past, with two buffers that take turns.
type layer struct {
	input, output string
	heads, size   int64
	past, present []float32
}

func (b *batch) close() {
	for _, v := range b.owned {
		v.Close()
	}
	if b.scores != nil {
		b.scores.Close()
	}
}

// choose asks the search about the rows of samples that have not ended.
func (b *batch) choose(tail search.Tail, samples []*search.State, scores []float32, rows, vocab int) error {
	var open []*search.State
	gathered := scores
	all := true
	for _, s := range samples {
		all = all && !s.Done() && s.Rows() == rows
	}
	if !all {
		gathered = nil
		for i, s := range samples {
			if !s.Done() {
				gathered = append(gathered, scores[i*rows*vocab:(i*rows+s.Rows())*vocab]...)
			}
		}
	}
	for _, s := range samples {
		if !s.Done() {
			open = append(open, s)
		}
	}
	return b.stepper.Step(tail, gathered, vocab, open)
}

// begin feeds the decoder the first n tokens of every prompt.
func (b *batch) begin(f *feeds, s *ort.Session, inputs []Input, n int) error {
	var tokens []int64
	for _, in := range inputs {
		for _, t := range in.Prompt[:n] {
			tokens = append(tokens, int64(t))
		}
	}
	b.length = 0
	return b.common(f, s, tokens, int64(b.size), int64(n), int64(len(inputs[0].Encoder)), false)
}

// detect puts the language that the model hears into prompts that leave it open.
func (b *batch) detect(ctx context.Context, o search.Options, inputs []Input, vocab int) ([]Input, error) {
	open := slices.Index(inputs[0].Prompt, search.NoToken)
	if open < 0 {
		return inputs, nil
	}
	feed := b.feeds()
	defer feed.close()
	s := b.decoder
	if b.first != nil {
		s = b.first
	}
	if err := b.begin(feed, s, inputs, open); err != nil {
		return nil, err
	}
	results, err := s.Run(ctx, feed.values, "logits")
	if err != nil {
		return nil, err
	}
	defer results[0].Close()
	scores, err := lastRows(results[0])
	if err != nil {
		return nil, err
	}
	inputs = slices.Clone(inputs)
	for i := range inputs {
		inputs[i].Prompt = slices.Clone(inputs[i].Prompt)
		if inputs[i].Prompt[open], err = o.Heard(scores[i*vocab : (i+1)*vocab]); err != nil {
			return nil, fmt.Errorf("input %d: %w", inputs[i].Index, err)
		}
	}
	return inputs, nil
}

// prompt runs the prompts, and repeats their keys and values for
// the beams.
func (b *batch) prompt(ctx context.Context, inputs []Input) ([]float32, error) {
	feed := b.feeds()
	defer feed.close()
	s := b.decoder
	if b.first != nil {
		s = b.first
	}
	if err := b.begin(feed, s, inputs, len(inputs[0].Prompt)); err != nil {
		return nil, err
	}
	results, err := s.Run(ctx, feed.values)
	if err != nil {
		return nil, err
	}
	b.length = len(inputs[0].Prompt)
	var scores []float32
	for i, out := range s.Outputs() {
		v := results[i]
		if out.Name == "logits" {
			scores, err = lastRows(v)
			b.scores = v
		} else {
			err = b.take(out.Name, v)
			v.Close()
		}
		if err != nil {
			return nil, err
		}
	}
	return scores, nil
}

// lastRows are the scores of each sample's last token.
func lastRows(v *ort.Value) ([]float32, error) {
	data, err := ort.Data[float32](v)
	if err != nil {
		return nil, err
	}
	shape := v.Shape()
	n, vocab := shape[1], shape[2]
	if n == 1 {
		return data, nil
	}
	var rows []float32
	for i := range shape[0] {
		rows = append(rows, data[((i+1)*n-1)*vocab:(i+1)*n*vocab]...)
	}
	return rows, nil
}

// take keeps a present of the prompt, repeated for the beams.
func (b *batch) take(output string, v *ort.Value) error {
	input := "past_key_values" + strings.TrimPrefix(output, "present")
	shape := v.Shape()
	if len(shape) != 4 {
		return fmt.Errorf("output %s has rank %d, needed is a cache of rank 4", output, len(shape))
	}
	data, err := ort.Data[float32](v)
	if err != nil {
		return err
	}
	rows := int64(b.size * b.beams)
	heads, length, size := shape[1], shape[2], shape[3]
	sample := heads * length * size
	if strings.Contains(output, ".encoder.") {
		if b.cross[input] != nil || length == 0 {
			return nil
		}
		repeated := make([]float32, rows*sample)
		for r := range rows {
			copy(repeated[r*sample:(r+1)*sample], data[r/int64(b.beams)*sample:])
		}
		t, err := ort.NewTensor(b.library, []int64{rows, heads, length, size}, repeated)
		if err != nil {
			return err
		}
		b.Cross += 4 * int64(len(repeated))
		b.owned = append(b.owned, t)
		if b.cross == nil {
			b.cross = map[string]*ort.Value{}
		}
		b.cross[input] = t
		return nil
	}
	most := rows * heads * int64(b.limit) * size
	l := &layer{input: input, output: output, heads: heads, size: size, past: make([]float32, most), present: make([]float32, most)}
	b.Self += 2 * 4 * most
	// As if it were a present of one row a sample, from which the first step's rows are taken.
	copy(l.present, data)
	b.own = append(b.own, l)
	return nil
}

// follow makes the next step's past of the present: by swapping buffers when
// every row goes on, else by moving rows. rows is the number of rows of a sample
// in the present.
func (b *batch) follow(samples []*search.State, rows int) error {
	parents := make([]int, b.size*b.beams)
	b.tokens = make([]int64, b.size*b.beams)
	same := rows == b.beams
	for i, s := range samples {
		for j := range b.beams {
			at := i*b.beams + j
			parents[at] = i*rows + min(j, rows-1)
			if moves := s.Moves(); !s.Done() && len(moves) > 0 {
				m := moves[min(j, len(moves)-1)]
				parents[at], b.tokens[at] = i*rows+m.Parent, int64(m.Token)
			}
			same = same && parents[at] == at
		}
	}
	if same {
		for _, l := range b.own {
			l.past, l.present = l.present, l.past
		}
		return nil
	}
	return move(b.own, parents, b.length)
}

// step runs one token for every row.
func (b *batch) step(ctx context.Context, samples []*search.State) ([]float32, error) {
	feed := b.feeds()
	defer feed.close()
	rows := int64(b.size * b.beams)
	encoder := int64(0)
	for _, v := range b.cross {
		encoder = v.Shape()[2]
	}
	if err := b.common(feed, b.decoder, b.tokens, rows, 1, encoder, true); err != nil {
		return nil, err
	}
	binding, err := b.decoder.NewBinding()
	if err != nil {
		return nil, err
	}
	defer binding.Close()
	for name, v := range feed.values {
		if err := binding.Input(name, v); err != nil {
			return nil, err
		}
	}
	cpu, err := b.library.Memory("Cpu", 0)
	if err != nil {
		return nil, err
	}
	bound := map[string]bool{}
	for _, l := range b.own {
		n := rows * l.heads * int64(b.length+1) * l.size
		v, err := ort.NewTensor(b.library, []int64{rows, l.heads, int64(b.length + 1), l.size}, l.present[:n])
		if err != nil {
			return nil, err
		}
		feed.made = append(feed.made, v)
		bound[l.output] = true
		if err := binding.Output(l.output, v); err != nil {
			return nil, err
		}
	}
	for _, out := range b.decoder.Outputs() {
		if bound[out.Name] {
			continue
		}
		if err := binding.OutputTo(out.Name, cpu); err != nil {
			return nil, err
		}
	}
	if err := binding.Run(ctx); err != nil {
		return nil, err
	}
	b.length++
	results, err := binding.Outputs()
	if err != nil {
		return nil, err
	}
	if b.scores != nil {
		b.scores.Close()
	}
	for name, v := range results {
		if name == "logits" {
			b.scores = v
			continue
		}
		v.Close()
	}
	if b.scores == nil {
		return nil, errors.New("the model has no output logits")
	}
	return ort.Data[float32](b.scores)
}
