package batch

// What a batch costs beside its tokens, in tokens. Below it, padding is cheaper than a batch more. all-MiniLM-L6-v2
// has 10 on one core (2 ms and 0.23 ms a token), and more where many cores share an operator.
const (
	usualOverhead = 32 // before it is known
	leastOverhead = 16 // whatever was measured: times are noisy, and a little padding costs less than a batch of one text
	mostOverhead  = 1024
)

// cost is what runs took by their tokens, the latest counting most: a line through them has the time of a batch without
// tokens, and that of a token.
type cost struct{ n, x, y, xx, xy float64 }

// add counts a run.
func (c *cost) add(tokens int, seconds float64) {
	const held = 0.98 // of what was known
	x := float64(tokens)
	c.n, c.x, c.y, c.xx, c.xy = held*c.n+1, held*c.x+x, held*c.y+seconds, held*c.xx+x*x, held*c.xy+x*seconds
}

// overhead is that time in tokens.
func (c *cost) overhead() int {
	spread := c.xx - c.x*c.x/c.n
	if c.n < 8 || spread < c.n { // few runs, or all of one size
		return usualOverhead
	}
	token := (c.xy - c.x*c.y/c.n) / spread
	batch := (c.y - token*c.x) / c.n
	switch {
	case batch <= leastOverhead*token:
		return leastOverhead
	case batch >= mostOverhead*token:
		return mostOverhead
	}
	return int(batch / token)
}
