package draft

// rowTime is what a row more adds to the time of a step, over the time of a step of no rows, which reads all weights:
// what the float32 steps of GPT-2's shape take (RATIONALE.md). It is assumed until steps were timed.
const rowTime = 0.06

const (
	// spread is how far the slopes of models lie from rowTime, as shares of the height: times that are noisy say less
	// than that.
	spread = 0.1
	// forget is the share of what is known that a new step takes the place of: a text grows, and a machine has other work.
	forget = 1.0 / 64
	// cold is the number of steps that are not counted: they touch weights for the first time.
	cold = 2
	// strange is how many times as long as expected a step counts at most, once some are known.
	strange = 4
)

// Price is the time of a model's steps by their rows, first + row R for R rows: a line through the steps that were
// timed, the latest counting most, with a slope that is rowTime of its height as far as these say nothing about it.
// Not for concurrent use.
type Price struct {
	first, row float64
	steps      int
	fixed      bool
	// Sums over the steps, in which each counts less by the steps after it: of 1, rows, squared rows, seconds, rows
	// times seconds.
	n, r, rr, t, rt float64
	noise           float64 // mean of squared differences from what was expected, in squared seconds
}

// NewPrice is the price of a model that was never timed: of a step of no rows in the time given, in whatever unit.
func NewPrice(first float64) *Price { return &Price{first: first, row: rowTime * first} }

// Fixed is a price that nothing changes.
func Fixed(first, row float64) *Price {
	return &Price{first: first, row: row, steps: cold + 1, fixed: true}
}

// Known says that steps were timed, so that the price is in seconds.
func (p *Price) Known() bool { return p.steps > cold }

// Step is the time of a step of that many rows.
func (p *Price) Step(rows int) float64 { return p.first + p.row*float64(rows) }

// Row is the time of a row more.
func (p *Price) Row() float64 { return p.row }

// Chance is the least chance of being chosen that makes a drafted row worth its time, in a step that has that many
// rows before it. A step of R rows takes T = first + row R; with a row more, which stands a chance p of taking the
// place of another, it does more in its time where p > R row / T.
func (p *Price) Chance(rows int) float64 {
	return float64(rows)*p.row/p.Step(rows) + caution
}

// caution is what the chance of a drafted token must be above its price at the least: guesses of chances are rough,
// and a draft has costs beside those of its rows.
const caution = 0.05

// Note counts a step that was timed.
func (p *Price) Note(rows int, seconds float64) {
	if p.fixed || rows < 1 || !(seconds > 0) {
		return
	}
	if p.steps++; !p.Known() {
		return
	}
	if p.steps > 8*cold {
		seconds = min(seconds, strange*p.Step(rows))
	}
	const rest = 1 - forget
	if p.steps == cold+1 {
		p.noise = seconds * seconds / 4
	} else {
		off := seconds - p.Step(rows)
		p.noise += 2 * forget * (off*off - p.noise)
	}
	x := float64(rows)
	p.n, p.r, p.rr, p.t, p.rt = rest*p.n+1, rest*p.r+x, rest*p.rr+x*x, rest*p.t+seconds, rest*p.rt+x*seconds
	// The likeliest line, where times are normal about it with the variance noise, and row about rowTime first with the
	// deviation spread first: the least of sum (seconds - first - row R)^2 + k (row - rowTime first)^2.
	height := spread * p.t / p.n
	k := max(p.noise/(height*height), 1e-3)
	a, b, d := p.n+k*rowTime*rowTime, p.r-k*rowTime, p.rr+k
	det := a*d - b*b
	p.first, p.row = (d*p.t-b*p.rt)/det, (a*p.rt-b*p.t)/det
	switch mean := p.t / p.n; {
	case p.row < 0:
		p.first, p.row = mean, 0
	case p.first < 0:
		p.first, p.row = 0, p.rt/p.rr
	}
}

// After is a price with another's unit, for a model that was never timed: share of the other's.
func (p *Price) After(other *Price, share float64) *Price {
	if p.Known() {
		return p
	}
	return &Price{first: share * other.first, row: share * other.row}
}
