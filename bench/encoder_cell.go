package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/host/ort"
)

// encoderCell is one comparison: a subject, a batch, lengths.
type encoderCell struct {
	subject *encoder
	batch   int
	lengths lengths
	seed    uint64
}

// cellResult is what came of it. A is plain, B patched; each is a process of its own.
type cellResult struct {
	Subject     string             `json:"subject"`
	Batch       int                `json:"batch"`
	Lengths     string             `json:"lengths,omitempty"`
	Length      int                `json:"length,omitempty"` // of a padded row
	Visible     []int              `json:"visible_tokens,omitempty"`
	Real        float64            `json:"real_share,omitempty"` // of all tokens
	Blocks      int                `json:"blocks"`
	Replaced    int                `json:"replaced"`
	Parity      cellParity         `json:"parity"`
	A           cellSide           `json:"a"`
	B           cellSide           `json:"b"`
	Speedup     statistics.Speedup `json:"speedup"`           // wall time
	Processor   float64            `json:"processor_speedup"` // of the medians of processor time
	PeakRatio   float64            `json:"peak_rss_ratio"`    // B over A
	GrowthRatio float64            `json:"rss_growth_ratio"`  // B over A
	// inspect's, of the whole model at these lengths; it knows nothing of padding
	Expected       float64 `json:"expected,omitempty"`
	ExpectedToReal float64 `json:"expected_of_real,omitempty"` // expected over measured
}

// cellSide is one of the two.
type cellSide struct {
	MedianMS    float64   `json:"median_wall"`
	ProcessorMS float64   `json:"median_processor"`
	PeakMB      float64   `json:"peak_rss_mb"`
	MadeMB      float64   `json:"rss_made_mb"`   // when the session was made
	GrowthMB    float64   `json:"rss_growth_mb"` // from then to the peak
	TimesMS     []float64 `json:"wall_ms"`       // every timed run, in order; none is left out
	UsedMS      []float64 `json:"processor_ms"`
}

// cellParity compares the outputs, of rows that the mask shows.
type cellParity struct {
	OK       bool    `json:"ok"`
	Largest  float64 `json:"largest_difference"`
	Tightest float64 `json:"largest_share_of_tolerance"` // above 1, answers differ
	Compared int     `json:"values"`
	// Rounding is, where answers miss the tolerance, how far plain sessions with and without optimisations are apart.
	Rounding float64 `json:"reference_rounding,omitempty"`
}

// Answers agree within absolute + relative times the plain one.
const (
	cellAbsolute = 1e-5
	cellRelative = 1e-4
)

// roundingShare is how many times the runtime's own rounding answers may be apart where that misses the tolerance
// too, as docs/same-answers.md says.
const roundingShare = 2

// Runs of one side in its turn take turnMS at least: what the other left in the caches matters less then.
const turnMS = 60

// sides are the two processes of a model.
type sides struct {
	subject *encoder
	a, b    *encodeSide
}

// openSides opens the plain and the patched side of a subject.
func (b *bench) openSides(ctx context.Context, e *encoder, sessions int) (*sides, error) {
	path, err := e.path()
	if err != nil {
		return nil, err
	}
	s := &sides{subject: e}
	job := encodeJob{Model: path, Threads: b.encoders.threads, Sessions: sessions, Config: b.encoders.config}
	if s.a, err = startSide(ctx, job); err != nil {
		return nil, err
	}
	job.Patched = true
	if s.b, err = startSide(ctx, job); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *sides) close() {
	s.a.close()
	s.b.close()
}

// batch is what both are fed in a cell.
func (s *sides) batch(c encoderCell, corpus *corpus) (*batch, error) {
	inputs := s.a.hello.Inputs
	if c.subject.longest == 0 {
		return c.subject.signals(c.batch, inputs)
	}
	r := rand.New(rand.NewPCG(c.seed, uint64(c.batch)))
	list, err := c.lengths.rows(r, c.subject, c.batch, corpus)
	if err != nil {
		return nil, err
	}
	return c.subject.batchOf(list, c.lengths.padTo, inputs)
}

// cell compares the answers of both sides, then their times, A B B A.
func (b *bench) cell(ctx context.Context, s *sides, c encoderCell) (*cellResult, error) {
	fed, err := s.batch(c, b.encoders.corpus)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.subject.name, err)
	}
	r := &cellResult{Subject: c.subject.name, Batch: fed.rows, Length: fed.length, Visible: fed.visible,
		Blocks: s.b.hello.Blocks, Replaced: s.b.hello.Replaced}
	share := 1.
	if fed.length > 0 {
		share = float64(fed.visibleTokens) / float64(fed.computedTokens)
		r.Lengths, r.Real = c.lengths.String(), share
	}
	first := encodeRequest{Inputs: fed.inputs, Runs: 1, Answers: true, Expect: true, Visible: share}
	plain, err := s.a.do(first)
	if err != nil {
		return nil, fmt.Errorf("%s, plain: %w", c.subject.name, err)
	}
	patched, err := s.b.do(first)
	if err != nil {
		return nil, fmt.Errorf("%s, patched: %w", c.subject.name, err)
	}
	if r.Parity, err = compareAnswers(plain.Answers, patched.Answers, fed); err != nil {
		return nil, fmt.Errorf("%s: %w", c.subject.name, err)
	}
	if !r.Parity.OK {
		if err := b.arbitrate(ctx, &r.Parity, plain.Answers, fed, c.subject); err != nil {
			return nil, fmt.Errorf("%s without optimisations: %w", c.subject.name, err)
		}
	}
	r.Expected = patched.Expected
	block := encodeRequest{Inputs: fed.inputs, Warmup: 1, Runs: min(50, max(1, int(turnMS/plain.WallMS[0])))}
	for round, end := 0, time.Now().Add(b.encoders.each); round < min(3, b.rounds) ||
		round < b.rounds && time.Now().Before(end); round++ {
		for _, isA := range []bool{true, false, false, true} {
			side, to := s.a, &r.A
			if !isA {
				side, to = s.b, &r.B
			}
			reply, err := side.do(block)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.subject.name, err)
			}
			to.TimesMS, to.UsedMS = append(to.TimesMS, reply.WallMS...), append(to.UsedMS, reply.ProcessorMS...)
			to.PeakMB = max(to.PeakMB, reply.PeakMB)
		}
	}
	for _, side := range []*cellSide{&r.A, &r.B} {
		side.MedianMS, side.ProcessorMS = statistics.Median(side.TimesMS), statistics.Median(side.UsedMS)
	}
	r.Speedup = statistics.SpeedupOf(r.A.TimesMS, r.B.TimesMS)
	r.Processor, r.PeakRatio = r.A.ProcessorMS/r.B.ProcessorMS, r.B.PeakMB/r.A.PeakMB
	r.A.MadeMB, r.B.MadeMB = s.a.hello.Held.RSSMB, s.b.hello.Held.RSSMB
	r.A.GrowthMB, r.B.GrowthMB = r.A.PeakMB-r.A.MadeMB, r.B.PeakMB-r.B.MadeMB
	r.GrowthRatio = r.B.GrowthMB / r.A.GrowthMB
	r.ExpectedToReal = r.Expected / r.Speedup.Median
	fmt.Fprintln(os.Stderr, r)
	return r, nil
}

// arbitrate looks again at answers that missed the tolerance: they pass when plain sessions miss it among themselves,
// with and without optimisations, and the patched one is at most twice as far away.
func (b *bench) arbitrate(ctx context.Context, p *cellParity, plain []array, fed *batch, e *encoder) error {
	path, err := e.path()
	if err != nil {
		return err
	}
	s, err := startSide(ctx, encodeJob{Model: path, Threads: b.encoders.threads, Sessions: 1, Unoptimized: true})
	if err != nil {
		return err
	}
	defer s.close()
	reply, err := s.do(encodeRequest{Inputs: fed.inputs, Runs: 1, Answers: true})
	if err != nil {
		return err
	}
	rounding, err := compareAnswers(plain, reply.Answers, fed)
	if err != nil {
		return err
	}
	p.Rounding = rounding.Largest
	p.OK = p.passes(rounding)
	return nil
}

// passes says whether answers that missed the tolerance are within the runtime's own rounding.
func (p *cellParity) passes(rounding cellParity) bool {
	return !rounding.OK && p.Largest <= roundingShare*rounding.Largest
}

// String is the cell in one line.
func (r *cellResult) String() string {
	s := fmt.Sprintf("%-22s batch %2d", r.Subject, r.Batch)
	if r.Length > 0 {
		s += fmt.Sprintf(" x %4d, %3.0f%% real (%s)", r.Length, 100*r.Real, r.Lengths)
	}
	s += fmt.Sprintf(": %.2f -> %.2f ms, %.2fx [%.2f, %.2f]; processor %.1f -> %.1f ms, %.2fx; peak RSS %.0f -> %.0f "+
		"MB (grown by %.0f -> %.0f)", r.A.MedianMS, r.B.MedianMS,
		r.Speedup.Median, r.Speedup.CI95[0], r.Speedup.CI95[1], r.A.ProcessorMS, r.B.ProcessorMS, r.Processor, r.A.PeakMB,
		r.B.PeakMB, r.A.GrowthMB, r.B.GrowthMB)
	if r.Expected > 0 {
		s += fmt.Sprintf(", expected %.2fx", r.Expected)
	}
	return s + fmt.Sprintf(", %d of %d replaced, %s", r.Replaced, r.Blocks, r.Parity)
}

func (p cellParity) String() string {
	if p.Rounding > 0 && p.OK {
		return fmt.Sprintf("equal within ONNX Runtime's rounding (%.2g, its own %.2g)", p.Largest, p.Rounding)
	}
	if p.OK {
		return fmt.Sprintf("equal (%.2g)", p.Largest)
	}
	return fmt.Sprintf("answers DIFFER by %.2g, %.1f of the tolerance", p.Largest, p.Tightest)
}

// join adds what another comparison found.
func (p *cellParity) join(q cellParity) {
	p.OK, p.Compared = p.OK && q.OK, p.Compared+q.Compared
	p.Largest, p.Tightest = max(p.Largest, q.Largest), max(p.Tightest, q.Tightest)
}

// compareAnswers compares outputs. Of one with a row for each token, tokens that the mask hides do not count.
func compareAnswers(plain, patched []array, fed *batch) (p cellParity, err error) {
	if len(plain) == 0 || len(plain) != len(patched) {
		return p, fmt.Errorf("%d outputs against %d", len(plain), len(patched))
	}
	for i, a := range plain {
		b := patched[i]
		if a.Name != b.Name || a.Element != b.Element || !slices.Equal(a.Shape, b.Shape) {
			return p, fmt.Errorf("output %s of shape %v against %s of shape %v", a.Name, a.Shape, b.Name, b.Shape)
		}
		if a.Element != ort.Float32 {
			return p, fmt.Errorf("output %s is %s, needed float32", a.Name, a.Element)
		}
		perToken := fed.length > 0 && len(a.Shape) == 3 && a.Shape[0] == int64(fed.rows) && a.Shape[1] == int64(fed.length)
		for at := 0; at < len(a.Data); at += 4 {
			if perToken {
				token := at / 4 / int(a.Shape[2])
				if token%fed.length >= fed.visible[token/fed.length] {
					continue
				}
			}
			p.add(float32At(a.Data[at:]), float32At(b.Data[at:]))
		}
	}
	p.OK = p.Tightest <= 1
	return p, nil
}

func float32At(b []byte) float64 {
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
}

func (p *cellParity) add(want, got float64) {
	p.Compared++
	difference := math.Abs(want - got)
	if want == got || math.IsNaN(want) && math.IsNaN(got) {
		difference = 0
	} else if math.IsNaN(difference) {
		difference = math.Inf(1)
	}
	p.Largest = max(p.Largest, difference)
	p.Tightest = max(p.Tightest, difference/(cellAbsolute+cellRelative*math.Abs(want)))
}
