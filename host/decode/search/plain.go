package search

import (
	"fmt"
	"math"
	"slices"
)

// Plain is the step tail in plain Go: the reference of the others, and what serves where they
// cannot. It works in float32 with sums in float64. The zero value is ready; one goroutine at a
// time.
type Plain struct {
	row     []float32 // one row of scores while it is worked on
	joined  []float32 // the rows of a group, when sampling
	weights []float64
	order   []int32
}

// Run implements Tail.
func (p *Plain) Run(req *Request) ([][]Candidate, error) {
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
	if req.Vocab < 1 || len(req.Scores) != len(req.Rows)*req.Vocab {
		return fmt.Errorf("a request has %d scores for %d rows of %d: %d are needed", len(req.Scores), len(req.Rows), req.Vocab, len(req.Rows)*req.Vocab)
	}
	for i, g := range req.Groups {
		switch {
		case g.Count < 1 || g.First < 0 || g.First+g.Count > len(req.Rows):
			return fmt.Errorf("group %d has rows %d to %d: the request has %d", i, g.First, g.First+g.Count-1, len(req.Rows))
		case g.K < 1:
			return fmt.Errorf("group %d asks for %d candidates: at least 1 is needed", i, g.K)
		case g.Mode > Sample:
			return fmt.Errorf("group %d has the mode %d: LogProbs, Raw and Sample are known", i, g.Mode)
		case g.Mode == Sample && len(g.Draws) != g.K:
			return fmt.Errorf("group %d asks for %d draws and gives %d numbers", i, g.K, len(g.Draws))
		case g.Mode == Sample && !g.LogSoftmax && g.Count != 1:
			return fmt.Errorf("group %d samples from %d rows: only beam sampling has more than one", i, g.Count)
		}
		for r := g.First; r < g.First+g.Count; r++ {
			for _, e := range req.Rows[r].Edits {
				if e.Token < 0 || int(e.Token) >= req.Vocab {
					return fmt.Errorf("row %d has an edit of token %d: there are %d tokens", r, e.Token, req.Vocab)
				}
			}
		}
	}
	return nil
}

// prepare makes p.row of one row of scores: everything up to the bias, which it adds too.
func (p *Plain) prepare(req *Request, g *Group, r int) error {
	p.row = append(p.row[:0], req.Scores[r*req.Vocab:(r+1)*req.Vocab]...)
	for t, x := range p.row {
		if x != x || math.IsInf(float64(x), 1) {
			return &RowError{r, fmt.Sprintf("the score of token %d is %g", t, x)}
		}
	}
	if g.Mode == LogProbs || g.LogSoftmax {
		logSoftmax(p.row)
	}
	edit(p.row, req.Rows[r].Edits)
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

func edit(row []float32, edits []Edit) {
	for _, e := range edits {
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

// logSumExp gives the greatest score and the logarithm of the sum of exp(score - greatest).
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
func (p *Plain) best(req *Request, g *Group) ([]Candidate, error) {
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
