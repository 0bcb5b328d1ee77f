// Package divergence says how far a model's distributions of the next token are from another's over given texts: the
// perplexity of both, the Kullback-Leibler divergence and the share of equal greedy tokens. Everything is computed in
// float64 from float32 logits, as the model gives them, without the bans, penalties and warpers of a search.
package divergence

import (
	"fmt"
	"math"

	"github.com/opgraft/graft/host/measure/statistics"
)

// Likelihood is how well a model predicts the tokens of texts.
type Likelihood struct {
	// Perplexity is exp(NLL) (Jelinek et al. 1977); math.MaxFloat64 where it is no number that JSON has.
	Perplexity float64 `json:"perplexity"`
	// NLL is the mean negative log-likelihood of a token, in nats.
	NLL float64 `json:"nll"`
}

// Divergence is how far a model is from another one, A.
type Divergence struct {
	Tokens int `json:"tokens"` // that were predicted
	// Kullback-Leibler divergence D(A || B) = sum of p_A (ln p_A - ln p_B) over the vocabulary (Kullback and Leibler
	// 1951), of a token, in nats: 0 where B is A. math.MaxFloat64 stands for infinity.
	KLMean float64 `json:"kl_mean"`
	KLP99  float64 `json:"kl_p99"`
	KLMax  float64 `json:"kl_max"`
	// EqualGreedy tokens are those at which both think the same token most likely.
	EqualGreedy int `json:"equal_greedy"`
	// PerplexityRatio is B's perplexity over A's, with its 95 % interval: of the mean of the differences of a token's
	// negative log-likelihood, taken as normal, and tokens as independent.
	PerplexityRatio float64    `json:"perplexity_ratio"`
	RatioCI95       [2]float64 `json:"perplexity_ratio_ci95"`
	// First is the first token at which the two differ; nil where they do nowhere.
	First *Difference `json:"first_difference,omitempty"`
}

// EqualShare is the share of equal greedy tokens.
func (d *Divergence) EqualShare() float64 { return float64(d.EqualGreedy) / float64(d.Tokens) }

// Difference is a token at which the most likely one of A is not that of B.
type Difference struct {
	Text  int    `json:"text"`  // number of the text, from 0
	Token int    `json:"token"` // number of the token in it, from 0
	A     Choice `json:"a"`
	B     Choice `json:"b"`
}

// Choice is a token that a side thinks most likely.
type Choice struct {
	Token int32  `json:"token"`
	Text  string `json:"text,omitempty"`
	// Probability that the side gives it, and Other that it gives the other side's.
	Probability float64 `json:"probability"`
	Other       float64 `json:"other_probability"`
}

// tally adds up what is known of one side over any number of tokens.
type tally struct {
	nll  float64
	seen int
}

// likelihood is that of all tokens; nil of none.
func (s *tally) likelihood() *Likelihood {
	if s.seen == 0 {
		return nil
	}
	mean := s.nll / float64(s.seen)
	return &Likelihood{Perplexity: finite(math.Exp(mean)), NLL: finite(mean)}
}

// pair adds up how far B is from A over any number of tokens.
type pair struct {
	kl    []float64
	equal int
	// Mean and sum of squares of the differences of negative log-likelihood (Welford 1962).
	mean, squares float64
	first         *Difference
}

// divergence is that of all tokens; nil of none.
func (p *pair) divergence() *Divergence {
	n := float64(len(p.kl))
	if n == 0 {
		return nil
	}
	d := &Divergence{Tokens: len(p.kl), EqualGreedy: p.equal, First: p.first}
	for _, x := range p.kl {
		d.KLMean += x / n
		d.KLMax = max(d.KLMax, x)
	}
	d.KLMean, d.KLMax, d.KLP99 = finite(d.KLMean), finite(d.KLMax), finite(statistics.Quantile(p.kl, 0.99))
	d.PerplexityRatio = finite(math.Exp(p.mean))
	const deviations = 1.959963984540054 // of the normal distribution, 95 % two-sided
	half := 0.0
	if n > 1 {
		half = deviations * math.Sqrt(p.squares/(n-1)/n)
	}
	d.RatioCI95 = [2]float64{finite(math.Exp(p.mean - half)), finite(math.Exp(p.mean + half))}
	return d
}

// finite is what JSON can say of a number that is at least 0.
func finite(x float64) float64 {
	if math.IsInf(x, 1) || math.IsNaN(x) {
		return math.MaxFloat64
	}
	return x
}

// row is a distribution of the next token.
type row struct {
	logits []float32
	log    float64 // of the sum of exp(logits)
	best   int     // the first of the greatest
}

// rowOf reads logits. One that is NaN or +Inf, and a row of -Inf alone, are no distribution.
func rowOf(logits []float32) (row, error) {
	r := row{logits: logits}
	for i, x := range logits {
		if x > logits[r.best] {
			r.best = i
		}
		if x != x || math.IsInf(float64(x), 1) {
			return r, fmt.Errorf("the logit of token %d is %g", i, x)
		}
	}
	top := float64(logits[r.best])
	if math.IsInf(top, -1) {
		return r, fmt.Errorf("all logits are %g", top)
	}
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - top)
	}
	r.log = top + math.Log(sum)
	return r, nil
}

// logProbability is that of a token, in nats.
func (r *row) logProbability(token int) float64 { return float64(r.logits[token]) - r.log }

func (r *row) probability(token int) float64 { return math.Exp(r.logProbability(token)) }

// kl is D(a || b). Rounding makes less than nothing of equal rows.
func kl(a, b *row) float64 {
	sum := 0.0
	for i := range a.logits {
		la := a.logProbability(i)
		if p := math.Exp(la); p > 0 {
			sum += p * (la - b.logProbability(i))
		}
	}
	return max(sum, 0)
}
