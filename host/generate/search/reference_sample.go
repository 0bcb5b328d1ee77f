package search

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// warp applies a group's warpers to p.row, in Hugging Face's order.
func (p *Reference) warp(g *Group) {
	minimum := max(g.MinKeep, 1)
	if g.Temperature != 0 && g.Temperature != 1 {
		for t := range p.row {
			p.row[t] /= g.Temperature
		}
	}
	if g.TopK > 0 {
		p.topK(max(g.TopK, minimum))
	}
	if g.TopP > 0 && g.TopP < 1 {
		p.topP(g.TopP, minimum)
	}
	if g.MinP > 0 {
		p.minP(g.MinP, minimum)
	}
	if g.TypicalP > 0 && g.TypicalP < 1 {
		p.typicalP(g.TypicalP, minimum)
	}
}

// topK bans the logits below the k-th best.
func (p *Reference) topK(k int) {
	var top topK
	for t, x := range p.row {
		if x > negInf {
			top.offer(k, keyed{Candidate{Token: int32(t)}, x})
		}
	}
	if len(top.heap) < k {
		return
	}
	least := top.heap[0].key // the root is the worst
	for t, x := range p.row {
		if x < least {
			p.row[t] = negInf
		}
	}
}

// possible fills p.order with the tokens that are not banned, best first and of equals as ties says, and p.weights with
// their exp(logit - best) in that order, whose sum it gives.
func (p *Reference) possible(ties func(a, b int32) int) float64 {
	p.order = p.order[:0]
	for t, x := range p.row {
		if x > negInf {
			p.order = append(p.order, int32(t))
		}
	}
	slices.SortFunc(p.order, func(a, b int32) int {
		if p.row[a] != p.row[b] {
			return cmp.Compare(p.row[b], p.row[a])
		}
		return ties(a, b)
	})
	p.weights = p.weights[:0]
	sum := 0.0
	for _, t := range p.order {
		w := math.Exp(float64(p.row[t] - p.row[p.order[0]]))
		p.weights = append(p.weights, w)
		sum += w
	}
	return sum
}

func lowerFirst(a, b int32) int  { return cmp.Compare(a, b) }
func higherFirst(a, b int32) int { return cmp.Compare(b, a) }

// share is a probability as PyTorch's softmax of float32 has it, which decides at a boundary.
func share(weight, sum float64) float32 { return float32(weight) * (1 / float32(sum)) }

// topP bans the worst tokens, of equals the lower ones first, while the probability that goes with them is at most
// 1-mass. Probabilities and their running sum are float32, the difference is one of Python's, which is then float32.
func (p *Reference) topP(mass float32, minimum int) {
	sum := p.possible(higherFirst)
	gone, most := 0.0, float32(1-decimal(mass))
	for i := len(p.order) - 1; i >= minimum; i-- {
		if gone += float64(share(p.weights[i], sum)); float32(gone) > most {
			return
		}
		p.row[p.order[i]] = negInf
	}
}

// decimal is the number that is written as x is: 0.6 for the float32 that is nearest to it.
func decimal(x float32) float64 {
	d, _ := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', -1, 32), 64) // a number's own text is one
	return d
}

// minP bans the tokens whose probability is below least times the best.
func (p *Reference) minP(least float32, minimum int) {
	sum := p.possible(lowerFirst)
	for i := minimum; i < len(p.order); i++ {
		if share(p.weights[i], sum) < least*share(1, sum) {
			p.row[p.order[i]] = negInf
		}
	}
}

// typicalP leaves the tokens whose information lies nearest the row's entropy, up to a probability
// (locally typical sampling, Meister et al. 2022).
func (p *Reference) typicalP(mass float32, minimum int) {
	sum := p.possible(lowerFirst)
	if len(p.order) == 0 {
		return
	}
	entropy := 0.0
	distance := make([]float64, len(p.row))
	for _, w := range p.weights {
		if w > 0 {
			entropy -= w / sum * math.Log(w/sum)
		}
	}
	weight := make([]float64, len(p.row))
	for i, t := range p.order {
		weight[t] = p.weights[i]
		distance[t] = math.Abs(-math.Log(p.weights[i]/sum) - entropy)
	}
	slices.SortStableFunc(p.order, func(a, b int32) int {
		if distance[a] != distance[b] {
			return cmp.Compare(distance[a], distance[b])
		}
		return cmp.Compare(a, b)
	})
	last, total := 0, 0.0
	for last < len(p.order)-1 {
		if total += float64(share(weight[p.order[last]], sum)); float32(total) >= mass {
			break
		}
		last++
	}
	for _, t := range p.order[min(minimum, len(p.order)):] {
		if distance[t] > distance[p.order[last]] {
			p.row[t] = negInf
		}
	}
}

// sample samples the candidates of a group.
func (p *Reference) sample(req *Request, g *Group) ([]Candidate, error) {
	p.joined = p.joined[:0]
	for r := g.First; r < g.First+g.Count; r++ {
		if err := p.prepare(req, g, r); err != nil {
			return nil, err
		}
		p.joined = append(p.joined, p.row...)
	}
	greatest, log := logSumExp(p.joined)
	if greatest == negInf {
		return nil, nil
	}
	p.weights = p.weights[:0]
	for _, x := range p.joined {
		p.weights = append(p.weights, math.Exp(float64(x-greatest)))
	}
	var list []Candidate
	for _, u := range g.Uniform {
		i := pick(p.weights, u)
		if i < 0 {
			break // nothing possible is left
		}
		c := Candidate{Row: int32(g.First + i/req.Vocab), Token: int32(i % req.Vocab), Score: p.joined[i]}
		if g.LogSoftmax {
			p.weights[i] = 0
		} else {
			c.Score = c.Score - greatest - log
		}
		list = append(list, c)
	}
	return list, nil
}

// pick gives the first index at which the running sum of the weights exceeds u times their sum, -1
// when all are 0.
func pick(weights []float64, u float32) int {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	target, running, last := float64(u)*sum, 0.0, -1
	for i, w := range weights {
		if w == 0 {
			continue
		}
		last = i
		if running += w; running > target {
			break
		}
	}
	return last
}
