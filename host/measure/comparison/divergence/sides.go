package divergence

import (
	"fmt"
	"runtime"
	"sync"
)

// Sides adds up several sides over the same tokens, the first of which is A.
type Sides struct {
	sums  []tally
	pairs []pair // of all but A
	vocab int
}

// New is for so many sides of a vocabulary.
func New(sides, vocab int) *Sides {
	return &Sides{sums: make([]tally, sides), pairs: make([]pair, sides-1), vocab: vocab}
}

// Likelihood is that of a side, 0 being A; nil where no token was added.
func (s *Sides) Likelihood(side int) *Likelihood { return s.sums[side].likelihood() }

// Divergence is that of a side, 1 being the first after A, from A; nil where no token was added.
func (s *Sides) Divergence(side int) *Divergence { return s.pairs[side-1].divergence() }

// Tokens is how many were added.
func (s *Sides) Tokens() int { return s.sums[0].seen }

// ErrLogits is the error of logits that are no distribution.
type ErrLogits struct {
	Side  int
	Token int // number of the token in the text that they predict
	Err   error
}

func (e *ErrLogits) Error() string {
	return fmt.Sprintf("the logits that predict token %d are no distribution: %v", e.Token, e.Err)
}

func (e *ErrLogits) Unwrap() error { return e.Err }

// one is what a token's rows say.
type one struct {
	nll, kl []float64 // by side
	differ  []*Difference
	err     *ErrLogits
}

// Add adds neighbouring tokens of a text: targets are the tokens, the first of which has the number from in the text,
// and logits those of each side, a row of the vocabulary a token. The logits are read on all cores, and sums are in
// the tokens' order.
func (s *Sides) Add(text, from int, targets []int32, logits [][]float32) error {
	for i, t := range targets {
		if t < 0 || int(t) >= s.vocab {
			return fmt.Errorf("token %d is %d, the vocabulary has %d", from+i, t, s.vocab)
		}
	}
	list := make([]one, len(targets))
	var wait sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), len(targets))
	for w := range workers {
		wait.Go(func() {
			for i := w; i < len(targets); i += workers {
				list[i] = s.look(text, from+i, int(targets[i]), logits, i)
			}
		})
	}
	wait.Wait()
	for i := range list {
		if list[i].err != nil {
			return list[i].err
		}
	}
	for i := range list {
		x := &list[i]
		for side := range s.sums {
			s.sums[side].nll += x.nll[side]
			s.sums[side].seen++
			if side > 0 {
				s.pairs[side-1].add(x.nll[side]-x.nll[0], x.kl[side], x.differ[side])
			}
		}
	}
	return nil
}

// look compares the rows of a token.
func (s *Sides) look(text, number, target int, logits [][]float32, at int) one {
	x := one{nll: make([]float64, len(logits)), kl: make([]float64, len(logits)), differ: make([]*Difference, len(logits))}
	var a row
	for side, all := range logits {
		r, err := rowOf(all[at*s.vocab : (at+1)*s.vocab])
		if err != nil {
			x.err = &ErrLogits{side, number, err}
			return x
		}
		x.nll[side] = -r.logProbability(target)
		if side == 0 {
			a = r
			continue
		}
		x.kl[side] = kl(&a, &r)
		if a.best != r.best {
			x.differ[side] = &Difference{Text: text, Token: number,
				A: Choice{Token: int32(a.best), Probability: a.probability(a.best), Other: a.probability(r.best)},
				B: Choice{Token: int32(r.best), Probability: r.probability(r.best), Other: r.probability(a.best)}}
		}
	}
	return x
}

func (p *pair) add(difference, kl float64, differ *Difference) {
	p.kl = append(p.kl, kl)
	step := difference - p.mean
	p.mean += step / float64(len(p.kl))
	p.squares += step * (difference - p.mean)
	switch {
	case differ == nil:
		p.equal++
	case p.first == nil:
		p.first = differ
	}
}
