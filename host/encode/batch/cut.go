package batch

import (
	"cmp"
	"math"
	"slices"
)

// horizon is the number of items, the oldest, among which those of a similar length are looked for.
const horizon = 256

// take removes the next batch from what waits. The mutex is held.
func (b *Batcher[T, R]) take() []*Call[T, R] {
	oldest := b.waiting[:min(len(b.waiting), horizon)]
	var batch []*Call[T, R]
	if b.options.Unpadded {
		batch = slices.Clone(inOrder(b.waiting, b.options.MaxTokens))
	} else {
		batch = similar(oldest, b.options.MaxTokens, b.cost.overhead())
	}
	taken := make(map[*Call[T, R]]bool, len(batch))
	for _, c := range batch {
		taken[c] = true
		b.tokens -= c.length
		<-b.room
	}
	b.waiting = slices.DeleteFunc(b.waiting, func(c *Call[T, R]) bool { return taken[c] })
	return batch
}

// inOrder is the oldest items whose lengths add up to at most most, at least one.
func inOrder[T, R any](waiting []*Call[T, R], most int) []*Call[T, R] {
	n, tokens := 0, 0
	for n < len(waiting) && (n == 0 || tokens+waiting[n].length <= most) {
		tokens += waiting[n].length
		n++
	}
	return waiting[:n]
}

// similar is the batch of the oldest item, when all are cut into batches of similar length so that the padded tokens
// and the overhead of each batch are least.
func similar[T, R any](waiting []*Call[T, R], most, overhead int) []*Call[T, R] {
	sorted := slices.Clone(waiting)
	slices.SortStableFunc(sorted, func(x, y *Call[T, R]) int { return cmp.Compare(x.length, y.length) })
	// cost[i] is that of the first i items; the last batch of them begins at from[i].
	cost, from := make([]int, len(sorted)+1), make([]int, len(sorted)+1)
	for i := 1; i <= len(sorted); i++ {
		cost[i] = math.MaxInt
		for j := i - 1; j >= 0; j-- {
			padded := (i - j) * sorted[i-1].length
			if padded > most && j < i-1 {
				break
			}
			if c := cost[j] + overhead + padded; c < cost[i] {
				cost[i], from[i] = c, j
			}
		}
	}
	for end := len(sorted); ; end = from[end] {
		if group := sorted[from[end]:end]; slices.Contains(group, waiting[0]) {
			return group
		}
	}
}
