package plan

// Margin is how much faster a candidate must be expected to be than the default
// before it is taken for its speed; MeasuredMargin is that where both were measured
// on this machine.
const (
	Margin         = 1.15
	MeasuredMargin = 1.08
)

// Crossover decides between candidates for one request at a time, by its shape. The
// first is the default, which stays where the others are near. It may be used by
// several goroutines at once.
type Crossover struct {
	predictor  *Predictor
	layers     Layers
	candidates []Candidate
}

// NewCrossover makes one; there must be at least one candidate, and all must be able to run.
func NewCrossover(p *Predictor, l Layers, candidates ...Candidate) *Crossover {
	return &Crossover{p, l, candidates}
}

// Candidates are what Pick chooses from.
func (x *Crossover) Candidates() []Candidate { return x.candidates }

// Pick is the number of the candidate that runs a shape fastest. It allocates
// nothing.
func (x *Crossover) Pick(s Shape) int {
	best := 0
	first := x.predictor.Predict(x.layers, x.candidates[0], s)
	least := first.PerStep(s)
	for i := 1; i < len(x.candidates); i++ {
		p := x.predictor.Predict(x.layers, x.candidates[i], s)
		if t := p.PerStep(s); t < least && t*margin(first, p) <= first.PerStep(s) {
			best, least = i, t
		}
	}
	return best
}

func margin(a, b Prediction) float64 {
	if a.Measured && b.Measured {
		return MeasuredMargin
	}
	return Margin
}
