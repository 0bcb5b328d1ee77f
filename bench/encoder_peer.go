package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opgraft/graft/host/measure/statistics"
)

// streamCase is a stream of texts that other engines encode too. Each engine gets a batch, answers it, and gets the
// next: none may wait for more texts than a batch has.
type streamCase struct {
	name, what string
	subject    string // with weights that peers make too
	lengths    lengths
	batch      int
	batches    int
}

// streamLeast is the speed-up over the fastest engine that is asked for.
const streamLeast = 1.3

// encodePeer is a way to use an engine, by its module of bench/peers, and the Python package that it needs.
type encodePeer struct{ module, kind, needs string }

var encodePeers = []encodePeer{
	{"encode_ort", "exported", "onnxruntime"},
	{"encode_ort", "optimized", "onnxruntime"},
	{"encode_openvino", "float32", "openvino"},
	{"encode_ct2", "float32", "ctranslate2"},
	{"encode_st", "onnx", "sentence_transformers"},
}

// optionalPeer is the package that an environment may lack: it needs PyTorch.
const optionalPeer = "sentence_transformers"

// divisions are those of bench/peers/encode.py.
var divisions = []string{"whole", "sorted-16", "sorted-8", "sorted-4", "sorted-1", "parallel-8", "parallel-4",
	"parallel-1"}

// absent says that an environment lacks the optional package.
func (p encodePeer) absent(venv string) bool {
	found, err := filepath.Glob(filepath.Join(venv, "lib", "python*", "site-packages", p.needs))
	return p.needs == optionalPeer && (err != nil || len(found) == 0)
}

// takes says that a peer can divide a batch so: sentence-transformers makes one run at a time.
func (p encodePeer) takes(division string) bool {
	return p.needs != optionalPeer || !strings.HasPrefix(division, "parallel")
}

func encoderPeerFigures(venv string) []figure {
	var list []figure
	for _, c := range []streamCase{
		{"encoder-peers-minilm-sentences", "MiniLM-L6's shape, float32, sentences, 32 at most at once", "minilm-l6",
			lengths{kind: sentences}, 32, 8},
		{"encoder-peers-minilm-articles", "the same, articles cut at 512 tokens", "minilm-l6", lengths{kind: articles}, 32,
			2},
		{"encoder-peers-minilm-passages", "the same, passages as long as MS MARCO's", "minilm-l6", lengths{kind: passages},
			32, 6},
		{"encoder-peers-bert-base-sentences", "BERT-base's shape, float32, sentences, 32 at most at once", "bert-base",
			lengths{kind: sentences}, 32, 3},
		{"encoder-peers-bert-base-passages", "the same, passages as long as MS MARCO's", "bert-base", lengths{kind: passages},
			8, 4},
	} {
		list = append(list, figure{c.name,
			c.what + ", against ONNX Runtime (as exported and optimised), OpenVINO and CTranslate2, each as it is fastest",
			fmt.Sprintf("the same vectors, at least %.1fx the fastest", streamLeast),
			func(ctx context.Context, b *bench) (*outcome, error) { return c.run(ctx, b, venv) }})
	}
	return list
}

// streamResult compares a patched session with other engines on one stream.
type streamResult struct {
	SchemaVersion int               `json:"schema_version"`
	Subject       string            `json:"subject"`
	Lengths       string            `json:"lengths"`
	Batch         int               `json:"batch"`
	Batches       int               `json:"batches"`
	Real          float64           `json:"real_share"`
	Config        map[string]string `json:"session_config,omitempty"`
	Sides         []*streamSide     `json:"sides"` // plain and patched in Go, then the peers
	Fastest       string            `json:"fastest_peer"`
	LeftOut       []string          `json:"left_out,omitempty"` // packages that the environment lacks
}

// streamSide is one engine.
type streamSide struct {
	Name       string             `json:"name"`
	Way        string             `json:"way"`
	Versions   map[string]string  `json:"versions,omitempty"`
	Settings   map[string]any     `json:"settings,omitempty"`
	Difference float64            `json:"largest_difference"` // of a value of a vector, to the plain session's
	Seconds    []float64          `json:"seconds"`            // of each batch, in order, round after round
	Processor  []float64          `json:"processor_seconds"`
	MedianMS   float64            `json:"batch_median"`
	UsedMS     float64            `json:"batch_median_processor"`
	Speedup    statistics.Speedup `json:"speedup_of_patched"` // over this side
	Tried      []streamTrial      `json:"ways,omitempty"`

	run func() (*streamAnswer, error)
}

// streamTrial is a way to use a peer, tried before the fastest is compared.
type streamTrial struct {
	Way     string  `json:"way"`
	Seconds float64 `json:"stream"` // the fastest of three
	Error   string  `json:"error,omitempty"`
}

// streamRequest and streamAnswer are what a peer reads and says.
type streamRequest struct {
	Batches [][][]int64 `json:"batches"`
}

type streamAnswer struct {
	Vectors   [][]float64 `json:"vectors"`
	Seconds   []float64   `json:"seconds"`
	Processor []float64   `json:"processor"`
	Error     string      `json:"error,omitempty"`
}

func (a *streamAnswer) total() float64 {
	sum := 0.
	for _, s := range a.Seconds {
		sum += s
	}
	return sum
}

func (c streamCase) run(ctx context.Context, b *bench, venv string) (*outcome, error) {
	e := encoderNamed(c.subject)
	path, err := e.path()
	if err != nil {
		return nil, err
	}
	if len(b.encoders.config) == 0 {
		b.encoders.config = ignored // what vectors are made of are visible rows
		defer func() { b.encoders.config = nil }()
	}
	s, err := b.openSides(ctx, e, 1)
	if err != nil {
		return nil, err
	}
	defer s.close()
	r := &streamResult{SchemaVersion: 1, Subject: e.name, Lengths: c.lengths.String(), Batch: c.batch, Batches: c.batches,
		Config: b.encoders.config}
	request, batches, err := c.stream(e, s, b.encoders.corpus)
	if err != nil {
		return nil, err
	}
	visible, computed := 0, 0
	for _, f := range batches {
		visible, computed = visible+f.visibleTokens, computed+f.computedTokens
	}
	r.Real = float64(visible) / float64(computed)
	for k, side := range []*encodeSide{s.a, s.b} {
		r.Sides = append(r.Sides,
			&streamSide{Name: []string{"plain", "patched"}[k], Way: "whole",
				run: func() (*streamAnswer, error) { return encodeStream(side, batches) }})
	}
	for _, peer := range encodePeers {
		if peer.absent(venv) {
			r.LeftOut = append(r.LeftOut, peer.needs)
			continue
		}
		side, close, err := peer.best(ctx, venv, e.name+"@"+path, request)
		if err != nil {
			return nil, err
		}
		defer close()
		r.Sides = append(r.Sides, side)
	}
	if err := r.same(); err != nil {
		return nil, err
	}
	for round := range max(2, b.rounds/4) {
		for i := range 2 * len(r.Sides) { // there and back
			k := i
			if i >= len(r.Sides) {
				k = 2*len(r.Sides) - 1 - i
			}
			if err := r.Sides[k].time(); err != nil {
				return nil, fmt.Errorf("round %d: %w", round, err)
			}
		}
	}
	return r.outcome(), nil
}

// stream is what is encoded, for peers and for sessions.
func (c streamCase) stream(e *encoder, s *sides, corpus *corpus) (streamRequest, []*batch, error) {
	var request streamRequest
	var batches []*batch
	r := rand.New(rand.NewPCG(1, uint64(c.batch)))
	for range c.batches {
		list, err := c.lengths.rows(r, e, c.batch, corpus)
		if err != nil {
			return request, nil, err
		}
		var ids [][]int64
		for _, row := range list {
			ids = append(ids, row.ids)
		}
		fed, err := e.batchOf(list, c.lengths.padTo, s.a.hello.Inputs)
		if err != nil {
			return request, nil, err
		}
		request.Batches, batches = append(request.Batches, ids), append(batches, fed)
	}
	return request, batches, nil
}

// encodeStream runs the batches in a session; a text's vector is the mean of its visible rows.
func encodeStream(side *encodeSide, batches []*batch) (*streamAnswer, error) {
	a := &streamAnswer{}
	for _, fed := range batches {
		reply, err := side.do(encodeRequest{Inputs: fed.inputs, Runs: 1, Answers: true})
		if err != nil {
			return nil, err
		}
		a.Seconds, a.Processor = append(a.Seconds, reply.WallMS[0]/1e3), append(a.Processor, reply.ProcessorMS[0]/1e3)
		hidden := reply.Answers[0]
		width := int(hidden.Shape[len(hidden.Shape)-1])
		for i, visible := range fed.visible {
			mean := make([]float64, width)
			for t := range visible {
				for j := range mean {
					mean[j] += float32At(hidden.Data[4*((i*fed.length+t)*width+j):]) / float64(visible)
				}
			}
			a.Vectors = append(a.Vectors, mean)
		}
	}
	return a, nil
}

// best tries every way to divide a batch and gives the peer that uses the fastest.
func (p encodePeer) best(ctx context.Context, venv, subject string, request streamRequest) (*streamSide, func(),
	error) {
	side := &streamSide{Name: strings.TrimPrefix(p.module, "encode_") + " " + p.kind}
	least := math.Inf(1)
	for _, division := range divisions {
		if !p.takes(division) {
			continue
		}
		trial := streamTrial{Way: division}
		var err error
		if trial.Seconds, err = p.try(ctx, venv, subject, division, request, 3*least); err != nil {
			trial.Error = err.Error()
		} else if trial.Seconds < least {
			side.Way, least = division, trial.Seconds
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		side.Tried = append(side.Tried, trial)
	}
	if side.Way == "" {
		return nil, nil, fmt.Errorf("no way to use %s works: %+v", side.Name, side.Tried)
	}
	process, err := startPeer(ctx, venv, p.module, subject, p.kind+"/"+side.Way)
	if err != nil {
		return nil, nil, err
	}
	side.Versions, side.Settings = process.hello.Versions, process.hello.Settings
	side.run = func() (*streamAnswer, error) {
		a := &streamAnswer{}
		return a, process.encode(request, a)
	}
	return side, process.close, nil
}

// try is the fastest of three streams, of one where that took longer than limit.
func (p encodePeer) try(ctx context.Context, venv, subject, division string, request streamRequest,
	limit float64) (float64, error) {
	process, err := startPeer(ctx, venv, p.module, subject, p.kind+"/"+division)
	if err != nil {
		return 0, err
	}
	defer process.close()
	fastest := math.Inf(1)
	for range 3 {
		var a streamAnswer
		if err := process.encode(request, &a); err != nil {
			return 0, err
		}
		if fastest = min(fastest, a.total()); fastest > limit {
			break
		}
	}
	return fastest, nil
}

// encode runs one stream. The process is asleep before and after.
func (p *peerProcess) encode(r streamRequest, a *streamAnswer) error {
	if err := p.ask(r, a); err != nil {
		return err
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	if len(a.Seconds) != len(r.Batches) || len(a.Processor) != len(r.Batches) {
		return fmt.Errorf("the peer answered %d batches of %d", len(a.Seconds), len(r.Batches))
	}
	return nil
}

// vectorDifference is how far float32 sums in another order may move a mean of hidden states of deviation 1.
const vectorDifference = 1e-4

// same compares the vectors of all sides with those of the plain session, and is their first run.
func (r *streamResult) same() error {
	var plain [][]float64
	for _, side := range r.Sides {
		a, err := side.run()
		if err != nil {
			return fmt.Errorf("%s: %w", side.Name, err)
		}
		if plain == nil {
			plain = a.Vectors
		}
		if side.Difference, err = farthest(plain, a.Vectors); err != nil {
			return fmt.Errorf("%s: %w", side.Name, err)
		}
		if !(side.Difference <= vectorDifference) {
			return fmt.Errorf("%s: a vector differs by %.2g from that of the plain session, needed %.2g: the two do not run "+
				"the same model", side.Name, side.Difference, vectorDifference)
		}
	}
	return nil
}

func farthest(a, b [][]float64) (largest float64, err error) {
	if len(a) != len(b) {
		return 0, fmt.Errorf("%d vectors for %d texts", len(b), len(a))
	}
	for i := range a {
		if len(a[i]) != len(b[i]) {
			return 0, fmt.Errorf("a vector of %d values, needed %d", len(b[i]), len(a[i]))
		}
		for j := range a[i] {
			largest = max(largest, math.Abs(a[i][j]-b[i][j]))
		}
	}
	return largest, nil
}

func (s *streamSide) time() error {
	time.Sleep(rest)
	a, err := s.run()
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	s.Seconds, s.Processor = append(s.Seconds, a.Seconds...), append(s.Processor, a.Processor...)
	return nil
}

func (r *streamResult) outcome() *outcome {
	patched := r.Sides[1]
	var lines []string
	fastest := math.Inf(1)
	least := 0.
	for _, side := range r.Sides {
		side.MedianMS, side.UsedMS = 1e3*statistics.Median(side.Seconds), 1e3*statistics.Median(side.Processor)
		side.Speedup = statistics.SpeedupOf(side.Seconds, patched.Seconds)
		lines = append(lines, fmt.Sprintf("%s (%s) %.1f ms, processor %.1f ms", side.Name, side.Way, side.MedianMS,
			side.UsedMS))
	}
	for _, side := range slices.Concat(r.Sides[:1], r.Sides[2:]) {
		if side.MedianMS < fastest {
			fastest, least, r.Fastest = side.MedianMS, side.Speedup.Median, side.Name
		}
	}
	return &outcome{Detail: r, Met: least >= streamLeast, Answers: "vectors equal",
		Got: fmt.Sprintf("%.2fx the fastest, %s; %.0f%% of tokens real; a batch: %s", least, r.Fastest, 100*r.Real,
			strings.Join(lines, "; "))}
}
