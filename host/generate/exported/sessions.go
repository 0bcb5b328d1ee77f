package exported

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
)

// sessions are the graphs of an exported model, open.
type sessions struct {
	*prepare.Exported // what they take and make
	library           *ort.Library
	encoder           *session.Session // nil for a decoder alone
	first             *session.Session // the decoder without a past; nil when one session does both
	decoder           *session.Session
	// fixed is the one length of prompts that the graph of a decoder with states, which reads them, is for; 0 for any.
	fixed int
	// headSize is that of pasts whose graph leaves it open, as onnxruntime-genai's builder does; 0 where it is not known.
	headSize int64
	// window is that of layers with a sliding one; 0 where it is not known.
	window int64
	// self and cross are what the decoder's and the encoder's keys and values took in
	// the last generation, in bytes, all copies counted.
	self, cross int64
	// firstToken is when the last generation had the first token of every request.
	firstToken time.Time
}

// ErrNoPast reports a decoder without keys and values of earlier tokens.
var ErrNoPast = errors.New("the decoder was exported without a past: it would compute every token again at each step")

// openSessions opens the graphs of a folder, unpatched. Merged decoders are taken as
// they are and told which branch to take.
func openSessions(ctx context.Context, l *ort.Library, f *modeldir.Files, vocab, threads int,
	level session.OptimizationLevel) (_ *sessions, err error) {
	ends, err := prepare.ReadExported(ctx, f, vocab)
	if err != nil {
		return nil, err
	}
	m := &sessions{Exported: ends, library: l}
	if err := m.check(f); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	o := session.Options{Unpatched: true, IntraOpThreads: threads, Optimization: level}
	if f.Encoder != "" {
		if m.encoder, err = openSession(ctx, l, f.Encoder, o); err != nil {
			return nil, err
		}
	}
	if f.First != "" && f.First != f.Decoder {
		if m.first, err = openSession(ctx, l, f.First, o); err != nil {
			return nil, err
		}
	}
	if m.decoder, err = openSession(ctx, l, f.Decoder, o); err != nil {
		return nil, err
	}
	for _, in := range m.decoder.Inputs() {
		held := m.Decoder.Inputs[in.Name]
		if held.Is == roles.Past && held.Axis < len(in.Shape) && in.Shape[held.Axis] > 0 {
			return nil, &diagnostic.Error{Path: f.Decoder, Found: fmt.Sprintf("input %s is %d long in every step", in.Name,
				in.Shape[held.Axis]), Needed: "a past of any length", Fix: "export the decoder with a few tokens in the sample"}
		}
	}
	if m.first != nil && m.encoder == nil {
		for _, in := range m.first.Inputs() {
			if m.First.Inputs[in.Name].Is == roles.Tokens {
				m.fixed = m.First.Inputs[in.Name].Length
			}
		}
	}
	return m, nil
}

// check refuses graphs that no loop can run.
func (m *sessions) check(f *modeldir.Files) error {
	switch {
	case m.Decoder.Logits == "":
		return f.NoDecoder()
	case !m.Decoder.Takes() && len(m.First.Next) == 0:
		return fmt.Errorf("%s: %w", f.Decoder, ErrNoPast)
	case m.First.Logits == "":
		return &diagnostic.Error{Path: f.First, Found: "no output logits of a vocabulary",
			Needed: "those after the prompt", Fix: "export the model again"}
	}
	for _, input := range slices.Sorted(maps.Keys(m.Decoder.Inputs)) {
		own := m.Decoder.Inputs[input].Is
		if !slices.Contains([]roles.Input{roles.Past, roles.State, roles.EncoderPast}, own) {
			continue
		}
		if m.First.Present(input) == "" || own != roles.EncoderPast && m.Decoder.Present(input) == "" {
			return &diagnostic.Error{Path: f.Decoder, Found: "input " + input + ", of which neither the graphs nor names tell " +
				"what it comes from", Needed: "an output that is made of it, or called like it",
				Fix: "generate without --baseline, or export the model again"}
		}
	}
	return nil
}

// openSession is a session of one graph. What is wrong with the files is said as the rest
// of the program says it.
func openSession(ctx context.Context, l *ort.Library, path string, o session.Options) (*session.Session, error) {
	s, err := session.OpenContext(ctx, l, path, o)
	if err == nil || ctx.Err() != nil {
		return s, err
	}
	if m, wrong := model.Open(path); wrong != nil {
		err = wrong
	} else {
		_ = m.Close() // it was only looked at
	}
	return nil, modeldir.About(path, err)
}

func (m *sessions) close() {
	for _, s := range []*session.Session{m.encoder, m.first, m.decoder} {
		if s != nil {
			s.Close()
		}
	}
}

// request is one input: tokens of the encoder's input and the decoder's prompt, or of
// the prompt alone.
type request struct {
	index    uint64 // the place in the whole input, from which random numbers are made
	encoder  []int32
	features *engine.Features
	prompt   []int32
	stopped  func(tokens []int32) bool // of search.Input
}

// read is what the encoder's mask is over: tokens, or samples of sound.
func (r *request) read() int64 {
	if r.features != nil {
		return r.features.Shape[len(r.features.Shape)-1]
	}
	return int64(len(r.encoder))
}

// result is what became of a request.
type result struct {
	hypotheses []search.Hypothesis
	steps      int // steps the request took
	reorders   int // steps after which its rows were not those before
}

// generate runs a batch of inputs of one length to its end. The rows of a request
// that ended run on, as in a loop over a fixed batch.
func (m *sessions) generate(ctx context.Context, selector search.Selector, o search.Options, inputs []request,
	vocab int) ([]result, error) {
	b := &batch{sessions: m, beams: max(o.NumBeams, o.NumReturnSequences), size: len(inputs)}
	defer b.close()
	started := time.Now()
	m.self, m.cross = 0, 0
	results := make([]result, len(inputs))
	requests := make([]*search.State, len(inputs))
	for i, in := range inputs {
		if len(in.prompt) != len(inputs[0].prompt) || len(in.encoder) != len(inputs[0].encoder) {
			return nil, fmt.Errorf("input %d has another length than the first: a batch of the model as exported needs one "+
				"length", i)
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
		requests[i], err = search.New(o, search.Input{Prompt: in.prompt, Encoder: in.encoder, Vocab: vocab, Index: in.index,
			Stopped: in.stopped})
		if err != nil {
			return nil, err
		}
	}
	b.limit = requests[0].Limit()
	logits, err := b.prompt(ctx, inputs)
	for rows := 1; err == nil; rows = b.beams {
		before := rowsOf(requests)
		if err = b.choose(selector, requests, logits, rows, vocab); err != nil {
			break
		}
		for i, s := range requests {
			if before[i] > 0 {
				results[i].count(s, before[i])
			}
		}
		if m.firstToken.Before(started) {
			m.firstToken = time.Now()
		}
		if !slices.ContainsFunc(requests, func(s *search.State) bool { return !s.Done() }) {
			break
		}
		b.follow(requests, rows)
		logits, err = b.step(ctx, int64(b.size*b.beams))
	}
	if err != nil {
		return nil, err
	}
	for i, s := range requests {
		results[i].hypotheses = s.Results()
	}
	return results, nil
}

// count notes a step of a request that had n rows.
func (r *result) count(s *search.State, rows int) {
	if r.steps++; r.steps == 1 || s.Done() {
		return
	}
	moves := s.Moves()
	same := len(moves) == rows
	for i, m := range moves {
		same = same && m.Parent == i
	}
	if !same {
		r.reorders++
	}
}

func rowsOf(requests []*search.State) []int {
	rows := make([]int, len(requests))
	for i, s := range requests {
		rows[i] = s.Rows()
	}
	return rows
}
