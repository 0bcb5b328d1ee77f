package batch

import "time"

// Metrics is what a batcher did since it was made. Counters only grow.
type Metrics struct {
	Items     int64 // that were taken in: Computed, Failed, Cancelled, refused by Close, waiting or running
	Computed  int64 // have a result
	Failed    int64 // have the error of a run
	Cancelled int64 // whose callers' contexts ended first
	Refused   int64 // because the queue was full, or by Close

	Batches int64 // runs, those of halves of failed ones among them
	Reruns  int64 // runs that failed and were done again by halves
	Rows    int64 // of all runs
	Tokens  int64 // of the items of all runs
	// Padded is the tokens that were computed: those of the items and of padding.
	Padded        int64
	LargestRows   int64 // of a run
	LargestTokens int64 // of a run, with padding

	Wait    time.Duration // in the queue, of all items that ran, added up
	MaxWait time.Duration // of one item
	Run     time.Duration // of all runs, added up
	MaxRun  time.Duration // of one run

	Waiting int // items in the queue now
	Running int // runs now
}

// Padding is the share of padding among the tokens that were computed.
func (m Metrics) Padding() float64 {
	if m.Padded == 0 {
		return 0
	}
	return 1 - float64(m.Tokens)/float64(m.Padded)
}

func (m *Metrics) waited(d time.Duration) {
	m.Wait += d
	m.MaxWait = max(m.MaxWait, d)
}

func (m *Metrics) ran(rows, tokens, padded int, d time.Duration) {
	m.Batches++
	m.Rows += int64(rows)
	m.Tokens += int64(tokens)
	m.Padded += int64(padded)
	m.LargestRows = max(m.LargestRows, int64(rows))
	m.LargestTokens = max(m.LargestTokens, int64(padded))
	m.Run += d
	m.MaxRun = max(m.MaxRun, d)
}

// Metrics is a snapshot.
func (b *Batcher[T, R]) Metrics() Metrics {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.metrics
	m.Waiting, m.Running = len(b.waiting), b.running
	return m
}
