package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/opgraft/graft/host/measure/statistics"
)

// randomResult is a long stream of batches, no two alike.
type randomResult struct {
	SchemaVersion int                `json:"schema_version"`
	Subject       string             `json:"subject"`
	Runs          int                `json:"runs"`
	Settled       int                `json:"settled_after"` // runs
	Parity        cellParity         `json:"parity"`        // of one run in a hundred
	A             randomSide         `json:"a"`
	B             randomSide         `json:"b"`
	Speedup       statistics.Speedup `json:"speedup"` // of the sums of a hundred runs
}

type randomSide struct {
	MadeMB    float64   `json:"rss_made_mb"`
	SettledMB float64   `json:"rss_settled_mb"`
	EndMB     float64   `json:"rss_end_mb"`
	Growth    float64   `json:"rss_growth"` // end over settled
	Seconds   float64   `json:"total"`
	EachMB    []float64 `json:"rss_mb"` // after each 500 runs
	HundredMS []float64 `json:"hundred_runs_ms"`
}

// Bounds of memory: a process that settled does not grow beyond chance.
const (
	randomGrowth    = 1.05
	cycleGrowthMB   = 8
	manySessions    = 1.25 // times the RSS of one
	growthOfRunning = 0.5  // times a plain session's
)

// encoderRandom runs batches of random size and length, and watches memory and speed.
func encoderRandom() figure {
	const settled, most, longest = 500, 8, 128
	return figure{"encoder-random",
		"MiniLM, runs of random batch (1 to 8) and length (4 to 128), half of them padded: memory against its level after " +
			"500 runs, speed",
		fmt.Sprintf("answers equal, RSS at most %.2fx, at least %.2fx as fast", randomGrowth, worst),
		func(ctx context.Context, b *bench) (*outcome, error) {
			e := encoderNamed("minilm")
			s, err := b.openSides(ctx, e, 1)
			if err != nil {
				return nil, err
			}
			defer s.close()
			r := &randomResult{SchemaVersion: 1, Subject: e.name, Runs: b.encoders.runs, Settled: settled}
			r.Parity.OK = true
			r.A.MadeMB, r.B.MadeMB = s.a.hello.Held.RSSMB, s.b.hello.Held.RSSMB
			sides := [2]struct {
				*encodeSide
				*randomSide
			}{{s.a, &r.A}, {s.b, &r.B}}
			random := rand.New(rand.NewPCG(1, 10000))
			var sums [2]float64
			for i := range r.Runs {
				l := lengths{kind: unpadded, least: 4, most: 4 + random.IntN(longest-3)}
				if i%2 == 1 {
					l.kind = uniform
				}
				fed, err := s.batch(encoderCell{subject: e, batch: 1 + random.IntN(most), lengths: l, seed: uint64(i)}, nil)
				if err != nil {
					return nil, err
				}
				check := i%100 == 99
				var answers [2][]array
				for turn := range 2 {
					k := (turn + i/2) % 2 // A B B A
					reply, err := sides[k].do(encodeRequest{Inputs: fed.inputs, Runs: 1, Answers: check})
					if err != nil {
						return nil, err
					}
					sums[k] += reply.WallMS[0]
					sides[k].Seconds += reply.WallMS[0] / 1e3
					answers[k] = reply.Answers
					if (i+1)%settled == 0 {
						sides[k].EachMB = append(sides[k].EachMB, reply.Held.RSSMB)
					}
					switch i + 1 {
					case settled:
						sides[k].SettledMB = reply.Held.RSSMB
					case r.Runs:
						sides[k].EndMB = reply.Held.RSSMB
					}
				}
				if !check {
					continue
				}
				for k := range sides {
					sides[k].HundredMS = append(sides[k].HundredMS, sums[k])
				}
				sums = [2]float64{}
				p, err := compareAnswers(answers[0], answers[1], fed)
				if err != nil {
					return nil, err
				}
				r.Parity.join(p)
			}
			r.Speedup = statistics.SpeedupOf(r.A.HundredMS, r.B.HundredMS)
			for _, side := range sides {
				side.Growth = side.EndMB / side.SettledMB
			}
			return &outcome{Detail: r, Met: r.Parity.OK && r.B.Growth <= randomGrowth && r.A.Seconds/r.B.Seconds >= worst,
				Answers: r.Parity.String(),
				Got: fmt.Sprintf("%d runs: RSS %.0f -> %.0f MB, %.3fx (plain %.0f -> %.0f MB, %.3fx); speed %.2fx [%.2f, %.2f]",
					r.Runs, r.B.SettledMB, r.B.EndMB, r.B.Growth,
					r.A.SettledMB, r.A.EndMB, r.A.Growth, r.A.Seconds/r.B.Seconds, r.Speedup.CI95[0], r.Speedup.CI95[1])}, nil
		}}
}

// manyResult is what several sessions of a model hold.
type manyResult struct {
	SchemaVersion int          `json:"schema_version"`
	Subject       string       `json:"subject"`
	Sessions      int          `json:"sessions"`
	One           [2]heldAfter `json:"one"` // plain and patched
	Many          [2]heldAfter `json:"many"`
	Ratio         [2]float64   `json:"rss_ratio"`
}

// heldAfter is what a process holds after its sessions ran.
type heldAfter struct {
	held
	OpenSeconds float64 `json:"open_s"`
	PeakMB      float64 `json:"peak_rss_mb"`
	MadeMB      float64 `json:"rss_made_mb"`
}

// encoderSessions opens eight sessions of one model.
func encoderSessions() figure {
	const many = 8
	return figure{"encoder-sessions", "eight sessions of MiniLM in a process: RSS over that of one",
		fmt.Sprintf("at most %.2fx", manySessions),
		func(ctx context.Context, b *bench) (*outcome, error) {
			e := encoderNamed("minilm")
			r := &manyResult{SchemaVersion: 1, Subject: e.name, Sessions: many}
			measure := func(n int, to *[2]heldAfter) error {
				s, err := b.openSides(ctx, e, n)
				if err != nil {
					return err
				}
				defer s.close()
				fed, err := s.batch(cellOf(e.name, 8, lengths{kind: unpadded, most: 64}), nil)
				if err != nil {
					return err
				}
				for k, side := range []*encodeSide{s.a, s.b} {
					if _, err := side.do(encodeRequest{Inputs: fed.inputs, Runs: 3}); err != nil {
						return err
					}
					reply, err := side.do(encodeRequest{})
					if err != nil {
						return err
					}
					to[k] = heldAfter{reply.Held, side.hello.OpenSeconds, reply.PeakMB, side.hello.Held.RSSMB}
				}
				return nil
			}
			if err := measure(1, &r.One); err != nil {
				return nil, err
			}
			if err := measure(many, &r.Many); err != nil {
				return nil, err
			}
			for k := range r.Ratio {
				r.Ratio[k] = r.Many[k].RSSMB / r.One[k].RSSMB
			}
			return &outcome{Detail: r, Met: r.Ratio[1] <= manySessions,
				Got: fmt.Sprintf("RSS of %d sessions %.0f MB, %.2fx that of one (plain %.0f MB, %.2fx); opened in %.2f s (plain "+
					"%.2f s)", many,
					r.Many[1].RSSMB, r.Ratio[1], r.Many[0].RSSMB, r.Ratio[0], r.Many[1].OpenSeconds, r.Many[0].OpenSeconds)}, nil
		}}
}

// cyclesResult is a process that makes and releases sessions.
type cyclesResult struct {
	SchemaVersion int           `json:"schema_version"`
	Subject       string        `json:"subject"`
	Cycles        int           `json:"cycles"`
	Every         int           `json:"every"` // cycles between two looks
	Sides         [2]cyclesSide `json:"sides"` // plain and patched
}

// cyclesSide is what a process held, look by look. What the allocator holds for later comes and goes by tens of MB,
// so that floors are compared: the least of the looks of the first fifth once the process has settled, and of the
// last.
type cyclesSide struct {
	Looks       []held  `json:"looks"`
	FirstMB     float64 `json:"rss_floor_first_mb"`
	LastMB      float64 `json:"rss_floor_last_mb"`
	Descriptors int     `json:"descriptors_more"`
	Threads     int     `json:"threads_more"`
}

func (c *cyclesSide) compare() {
	settled := c.Looks[min(len(c.Looks)-1, len(c.Looks)/10+2):] // until then the process still grows to its size
	fifth := max(1, len(settled)/5)
	floor := func(list []held, of func(held) float64) float64 {
		least := of(list[0])
		for _, h := range list {
			least = min(least, of(h))
		}
		return least
	}
	first, last := settled[:fifth], settled[len(settled)-fifth:]
	c.FirstMB, c.LastMB = floor(first, func(h held) float64 { return h.RSSMB }),
		floor(last, func(h held) float64 { return h.RSSMB })
	more := func(of func(held) float64) int { return int(floor(last, of) - floor(first, of)) }
	c.Descriptors = more(func(h held) float64 { return float64(h.Descriptors) })
	c.Threads = more(func(h held) float64 { return float64(h.Threads) })
}

// encoderCycles creates, runs and releases a session again and again.
func encoderCycles() figure {
	const every = 20
	return figure{"encoder-cycles", "MiniLM opened, run and released again and again: what stays",
		fmt.Sprintf("RSS at most %d MB more, or no more than plain sessions; no descriptor, no thread", cycleGrowthMB),
		func(ctx context.Context, b *bench) (*outcome, error) {
			e := encoderNamed("minilm")
			r := &cyclesResult{SchemaVersion: 1, Subject: e.name, Cycles: b.encoders.cycles / every * every, Every: every}
			s, err := b.openSides(ctx, e, 1)
			if err != nil {
				return nil, err
			}
			defer s.close()
			fed, err := s.batch(cellOf(e.name, 2, lengths{kind: unpadded, most: 16}), nil)
			if err != nil {
				return nil, err
			}
			for k, side := range []*encodeSide{s.a, s.b} {
				for range r.Cycles / every {
					reply, err := side.do(encodeRequest{Inputs: fed.inputs, Cycles: every})
					if err != nil {
						return nil, err
					}
					r.Sides[k].Looks = append(r.Sides[k].Looks, reply.Held)
				}
				r.Sides[k].compare()
			}
			grown := func(k int) float64 { return r.Sides[k].LastMB - r.Sides[k].FirstMB }
			patched := r.Sides[1]
			return &outcome{Detail: r,
				Met: grown(1) <= max(grown(0), cycleGrowthMB) && patched.Descriptors <= 0 && patched.Threads <= 0,
				Got: fmt.Sprintf("%d cycles: floor of RSS %.0f -> %.0f MB, %+.1f MB (plain %+.1f MB), descriptors %+d, threads %+d",
					r.Cycles, patched.FirstMB, patched.LastMB,
					grown(1), grown(0), patched.Descriptors, patched.Threads)}, nil
		}}
}

// growthResult is what a session comes to hold of real batches, beyond what it held when it was made.
type growthResult struct {
	SchemaVersion int               `json:"schema_version"`
	Config        map[string]string `json:"session_config,omitempty"` // of the patched side
	Subject       string            `json:"subject"`
	Batch         int               `json:"batch"`
	Real          float64           `json:"real_share"` // of all tokens
	Parity        cellParity        `json:"parity"`
	A             growthSide        `json:"a"`
	B             growthSide        `json:"b"`
	Ratio         float64           `json:"rss_growth_ratio"` // B over A
}

type growthSide struct {
	MadeMB   float64   `json:"rss_made_mb"`
	PeakMB   float64   `json:"peak_rss_mb"`
	GrowthMB float64   `json:"rss_growth_mb"` // from made to peak
	AfterMB  []float64 `json:"rss_mb"`        // after each batch
}

// encoderGrowth runs batches of real texts, no two alike, and watches by how much a process grows.
func encoderGrowth() figure {
	const batches, rows, runs = 40, 32, 2
	return figure{"encoder-growth",
		fmt.Sprintf("BGE-small, %d batches of %d sentences padded to the longest, padding ignored: growth of peak RSS "+
			"over the RSS when the session was made", batches, rows),
		fmt.Sprintf("answers equal, at most %.2fx", growthOfRunning),
		func(ctx context.Context, b *bench) (*outcome, error) {
			if len(b.encoders.config) == 0 {
				b.encoders.config = ignored
				defer func() { b.encoders.config = nil }()
			}
			e := encoderNamed("bge-small")
			r := &growthResult{SchemaVersion: 1, Config: b.encoders.config, Subject: e.name, Batch: rows}
			r.Parity.OK = true
			s, err := b.openSides(ctx, e, 1)
			if err != nil {
				return nil, err
			}
			defer s.close()
			r.A.MadeMB, r.B.MadeMB = s.a.hello.Held.RSSMB, s.b.hello.Held.RSSMB
			visible, computed := 0, 0
			for i := range batches {
				c := cellOf(e.name, rows, lengths{kind: sentences})
				c.seed = uint64(i + 1)
				fed, err := s.batch(c, b.encoders.corpus)
				if err != nil {
					return nil, err
				}
				visible, computed = visible+fed.visibleTokens, computed+fed.computedTokens
				var answers [2][]array
				for k, side := range []*encodeSide{s.a, s.b} {
					to := []*growthSide{&r.A, &r.B}[k]
					reply, err := side.do(encodeRequest{Inputs: fed.inputs, Runs: runs})
					if err != nil {
						return nil, err
					}
					to.PeakMB, to.AfterMB = max(to.PeakMB, reply.PeakMB), append(to.AfterMB, reply.Held.RSSMB)
					if reply, err = side.do(encodeRequest{Inputs: fed.inputs, Runs: 1, Answers: true}); err != nil {
						return nil, err
					}
					answers[k] = reply.Answers
				}
				p, err := compareAnswers(answers[0], answers[1], fed)
				if err != nil {
					return nil, err
				}
				r.Parity.join(p)
			}
			r.A.GrowthMB, r.B.GrowthMB = r.A.PeakMB-r.A.MadeMB, r.B.PeakMB-r.B.MadeMB
			r.Real, r.Ratio = float64(visible)/float64(computed), r.B.GrowthMB/r.A.GrowthMB
			return &outcome{Detail: r, Met: r.Parity.OK && r.Ratio <= growthOfRunning, Answers: r.Parity.String(),
				Got: fmt.Sprintf("%.2fx the growth of plain sessions, %.0f%% of tokens real: RSS %.0f MB when made, %.0f at the "+
					"peak, +%.0f MB (plain %.0f, %.0f, +%.0f MB)", r.Ratio, 100*r.Real,
					r.B.MadeMB, r.B.PeakMB, r.B.GrowthMB, r.A.MadeMB, r.A.PeakMB, r.A.GrowthMB)}, nil
		}}
}
