package search

import (
	"fmt"
	"math"
	"slices"
)

// Reference is top-k selection in Go: what the others are compared with, and what runs where they
// cannot. It works in float32 with sums in float64. The zero value is ready; one goroutine at a
// time.
type Reference struct {
	row     []float32 // one row of logits while it is worked on
	joined  []float32 // the rows of a group, when sampling
	weights []float64
	order   []int32
}

// Run implements Selector.
func (p *Reference) Run(req *Request) ([][]Candidate, error) {
	if err := checkRequest(req); err != nil {
		return nil, err
	}
	lists := make([][]Candidate, len(req.Groups))
	for i := range req.Groups {
		g := &req.Groups[i]
		var err error
		if g.Mode == Sample {
			lists[i], err = p.sample(req, g)
		} else {
			lists[i], err = p.best(req, g)
		}
		if err != nil {
			return nil, err
		}
		if len(lists[i]) == 0 {
			return nil, &RowError{g.First, "every token is banned or impossible"}
		}
	}
	return lists, nil
}

func checkRequest(req *Request) error {
	if req.Vocab < 1 || len(req.Logits) != len(req.Rows)*req.Vocab {
		return fmt.Errorf("a request has %d logits for %d rows of %d: %d are needed", len(req.Logits), len(req.Rows),
			req.Vocab, len(req.Rows)*req.Vocab)
	}
	for i, g := range req.Groups {
		switch {
		case g.Count < 1 || g.First < 0 || g.First+g.Count > len(req.Rows):
			return fmt.Errorf("group %d has rows %d to %d: the request has %d", i, g.First, g.First+g.Count-1, len(req.Rows))
		case g.K < 1:
			return fmt.Errorf("group %d asks for %d candidates: at least 1 is needed", i, g.K)
		case g.Mode > Sample:
			return fmt.Errorf("group %d has the mode %d: LogProbs, Raw and Sample are known", i, g.Mode)
		case g.Mode == Sample && len(g.Uniform) != g.K:
			return fmt.Errorf("group %d asks for %d samples and gives %d random numbers", i, g.K, len(g.Uniform))
		case g.Mode == Sample && !g.LogSoftmax && g.Count != 1:
			return fmt.Errorf("group %d samples from %d rows: only beam sampling has more than one", i, g.Count)
		}
		for r := g.First; r < g.First+g.Count; r++ {
			for _, e := range req.Rows[r].Processors {
				if e.Token < 0 || int(e.Token) >= req.Vocab {
					return fmt.Errorf("row %d has a processor of token %d: there are %d tokens", r, e.Token, req.Vocab)
				}
			}
		}
	}
	return nil
}

// prepare makes p.row of one row of logits: everything up to the bias, which it adds too.
func (p *Reference) prepare(req *Request, g *Group, r int) error {
	p.row = append(p.row[:0], req.Logits[r*req.Vocab:(r+1)*req.Vocab]...)
	for t, x := range p.row {
		if x != x || math.IsInf(float64(x), 1) {
			return &RowError{r, fmt.Sprintf("the logit of token %d is %g", t, x)}
		}
	}
	if g.Mode == LogProbs || g.LogSoftmax {
		logSoftmax(p.row)
	}
	apply(p.row, req.Rows[r].Processors)
	if g.Mode == Sample {
		p.warp(g)
	}
	if g.Normalize && g.Mode != Raw {
		logSoftmax(p.row)
	}
	if bias := req.Rows[r].Bias; bias != 0 {
		for t := range p.row {
			p.row[t] += bias
		}
	}
	return nil
}

func apply(row []float32, processors []Processor) {
	for _, e := range processors {
		x := &row[e.Token]
		switch e.Op {
		case Add:
			*x += e.Value
		case Penalise:
			if *x < 0 {
				*x *= e.Value
			} else {
				*x /= e.Value
			}
		case Ban:
			*x = negInf
		case Only:
			for t := range row {
				row[t] = negInf
			}
			*x = e.Value
		}
	}
}

var negInf = float32(math.Inf(-1))

// logSumExp gives the greatest logit and the logarithm of the sum of exp(logit - greatest).
func logSumExp(row []float32) (greatest, log float32) {
	greatest = slices.Max(row)
	if greatest == negInf {
		return greatest, 0
	}
	sum := 0.0
	for _, x := range row {
		sum += math.Exp(float64(x - greatest))
	}
	return greatest, float32(math.Log(sum))
}

// logSoftmax works in place. A row that is all -Inf stays.
func logSoftmax(row []float32) {
	greatest, log := logSumExp(row)
	if greatest == negInf {
		return
	}
	for t := range row {
		row[t] = row[t] - greatest - log
	}
}

// best gives the K best pairs of a group.
func (p *Reference) best(req *Request, g *Group) ([]Candidate, error) {
	var top topK
	for r := g.First; r < g.First+g.Count; r++ {
		if err := p.prepare(req, g, r); err != nil {
			return nil, err
		}
		shift := float32(0)
		if g.Mode == Raw && g.Normalize {
			greatest, log := logSumExp(p.row)
			shift = greatest + log - req.Rows[r].Bias // the bias is in both and stays in the score
		}
		for t, x := range p.row {
			if x > negInf {
				top.offer(g.K, keyed{Candidate{int32(r), int32(t), x - shift}, x})
			}
		}
	}
	return top.sorted(), nil
}
