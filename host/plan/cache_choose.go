package plan

import (
	"fmt"
	"math"
	"slices"
)

// Prefer is what a choice aims at.
type Prefer string

// Speed takes the default where others are not expected to be clearly faster,
// Memory what stores the fewest bytes.
const (
	PreferSpeed  Prefer = "speed"
	PreferMemory Prefer = "memory"
)

// ParsePrefer reads what a user asked for.
func ParsePrefer(name string) (Prefer, error) {
	switch p := Prefer(name); p {
	case PreferSpeed, PreferMemory:
		return p, nil
	}
	return "", fmt.Errorf("%q is no preference, needed is %s or %s", name, PreferSpeed, PreferMemory)
}

// Kind is the alike layers of one type with the candidates that may run them, the
// default first, and the shapes that are expected.
type Kind struct {
	Layers     Layers
	Candidates []Candidate
	Refused    map[Candidate]string // candidates that the weights rule out, with the reason
	// Named is what was decided already, one of the candidates' Strategy; "" leaves it
	// open.
	Named Strategy
	Range Range
	// Either says that the host can decide for each request between the candidates that
	// store keys and values and the encoder's output.
	Either bool
}

// CacheOptions narrow what Choose takes.
type CacheOptions struct {
	Prefer   Prefer // "" is PreferSpeed
	MaxBytes int64  // the maximum that all kinds together may store for the largest batch; 0 is any
	Within   int64  // what Option.Batch is told for where MaxBytes is 0; 0 is nothing
}

// Option is one candidate as it was weighed.
type Option struct {
	Candidate Candidate  `json:"-"`
	Name      string     `json:"name"`
	Refused   string     `json:"refused,omitempty"` // why it cannot run
	Largest   Prediction `json:"largest"`           // at the largest shape of the range
	// Speedup is how many times faster it is than the default, in the geometric mean
	// over the range; Worst where it is so least. The part of what is computed before
	// the first step counts in both.
	Speedup float64 `json:"speedup,omitempty"`
	Worst   float64 `json:"worst,omitempty"`
	// Batch is the maximum number of requests of the largest shape whose caches fit into
	// CacheOptions.MaxBytes or Within, the other kinds left as chosen; 0 without these.
	Batch int64 `json:"batch,omitempty"`

	measured bool // at every shape of the range, as the default's
}

// CacheChoice is what runs one kind.
type CacheChoice struct {
	Kind      Kind
	Candidate Candidate
	Either    *Crossover // not nil: decided for each request, Candidate being the default
	Reason    string
	Options   []Option // in the order of the candidates
}

// ChooseCaches decides what each kind of attention stores. It is an error when no
// candidate of a kind can run it.
func ChooseCaches(p *Predictor, kinds []Kind, o CacheOptions) ([]CacheChoice, error) {
	choices := make([]CacheChoice, len(kinds))
	for i, k := range kinds {
		choices[i] = CacheChoice{Kind: k, Options: p.weigh(k)}
		if err := choices[i].choose(p, o.Prefer); err != nil {
			return nil, err
		}
	}
	within := o.Within
	if o.MaxBytes > 0 {
		within = o.MaxBytes
		if o.Prefer != PreferMemory {
			fit(p, choices, o.MaxBytes)
		}
	}
	if within > 0 {
		batches(choices, within)
	}
	return choices, nil
}

// weigh predicts every candidate of a kind over its range.
func (p *Predictor) weigh(k Kind) []Option {
	options := make([]Option, len(k.Candidates))
	base := -1
	for i, c := range k.Candidates {
		options[i] = Option{Candidate: c, Name: c.String(), Refused: c.Lacks(k.Layers)}
		if why := k.Refused[c]; why != "" && options[i].Refused == "" {
			options[i].Refused = why
		}
		if options[i].Refused == "" && base < 0 {
			base = i
		}
	}
	shapes := k.Range.Shapes()
	for i := range options {
		x := &options[i]
		x.Largest = p.Predict(k.Layers, x.Candidate, k.Range.Largest())
		if x.Refused != "" {
			continue
		}
		sum, worst, measured := 0.0, math.Inf(1), true
		for _, s := range shapes {
			a, b := p.Predict(k.Layers, k.Candidates[base], s), p.Predict(k.Layers, x.Candidate, s)
			r := a.PerStep(s) / b.PerStep(s)
			sum += math.Log(r)
			worst = min(worst, r)
			measured = measured && a.Measured && b.Measured
		}
		x.Speedup, x.Worst, x.measured = math.Exp(sum/float64(len(shapes))), worst, measured
	}
	return options
}

// choose takes one of the options, memory being no bound.
func (c *CacheChoice) choose(p *Predictor, prefer Prefer) error {
	if named := c.Kind.Named; named != "" {
		i := slices.IndexFunc(c.Options, func(x Option) bool { return x.Candidate.Strategy == named })
		if i < 0 {
			return fmt.Errorf("%s is no candidate of the %s", named, c.Kind.Layers)
		}
		c.Candidate, c.Reason = c.Options[i].Candidate, "as named"
		return nil
	}
	first, best := -1, -1
	for i := range c.Options {
		x := &c.Options[i]
		if x.Refused != "" {
			continue
		}
		if first < 0 {
			first, best = i, i
			continue
		}
		y := &c.Options[best]
		if prefer == PreferMemory {
			if x.Largest.Bytes < y.Largest.Bytes || x.Largest.Bytes == y.Largest.Bytes && x.gains() && x.Speedup > y.Speedup {
				best = i
			}
		} else if x.gains() && x.Speedup > y.Speedup {
			best = i
		}
	}
	if first < 0 {
		return fmt.Errorf("nothing can run the %s: %s", c.Kind.Layers, c.refusals())
	}
	chosen := &c.Options[best]
	c.Candidate = chosen.Candidate
	switch {
	case prefer == PreferMemory && best != first:
		c.Reason = fmt.Sprintf("stores %s a request, %.3gx fewer than %s; expected %.2fx its speed, %.2fx at worst",
			size(chosen.Largest.Bytes), ratio(c.Options[first].Largest.Bytes, chosen.Largest.Bytes), c.Options[first].Name,
			chosen.Speedup, chosen.Worst)
	case prefer == PreferMemory:
		c.Reason = fmt.Sprintf("stores %s a request, and nothing else stores less", size(chosen.Largest.Bytes))
	case best != first:
		c.Reason = fmt.Sprintf("%s %.2fx the speed of %s over the range, %.2fx at worst", chosen.source(), chosen.Speedup,
			c.Options[first].Name, chosen.Worst)
	default:
		c.Reason = "nothing is expected to be clearly faster" + c.nearest(first)
	}
	if prefer != PreferMemory {
		c.either(p, first)
	}
	return nil
}

// gains reports an option that is worth leaving the default for.
func (x *Option) gains() bool {
	least := Margin
	if x.measured {
		least = MeasuredMargin
	}
	return x.Speedup >= least && x.Worst >= MaxLoss
}

func (x *Option) source() string {
	if x.measured {
		return "measured"
	}
	return "expected"
}

// nearest tells of the option that came closest to the default.
func (c *CacheChoice) nearest(first int) string {
	best := -1
	for i := range c.Options {
		if x := &c.Options[i]; i != first && x.Refused == "" && (best < 0 || x.Speedup > c.Options[best].Speedup) {
			best = i
		}
	}
	if best < 0 {
		return ""
	}
	x := &c.Options[best]
	return fmt.Sprintf(" (%s: %s %.2fx, %.2fx at worst)", x.Name, x.source(), x.Speedup, x.Worst)
}

// rareShapes is the part of a range that a strategy must be best in to count.
const rareShapes = 16

// either lets the shape of each request decide where neither keys and values nor the
// encoder's output is the better choice at every shape of the range.
func (c *CacheChoice) either(p *Predictor, first int) {
	k := c.Kind
	if !k.Either || k.Layers.Type != "cross" || c.Options[first].Candidate.Strategy != KeysValues {
		return
	}
	if strategy := c.Candidate.Strategy; strategy != KeysValues && strategy != PromptHiddenStates {
		return
	}
	for i := range c.Options {
		x := &c.Options[i]
		if x.Refused != "" || x.Candidate.Strategy != PromptHiddenStates {
			continue
		}
		cross := NewCrossover(p, k.Layers, c.Options[first].Candidate, x.Candidate)
		picked := [2]int{}
		shapes := k.Range.Shapes()
		for _, s := range shapes {
			picked[cross.Pick(s)]++
		}
		// Being ready for both takes folded weights: not for a rare shape.
		if picked[0] > 0 && picked[1]*rareShapes >= len(shapes) {
			c.Candidate, c.Either = c.Options[first].Candidate, cross
			c.Reason = fmt.Sprintf("each request's shape decides: %s at %d of %d shapes of the range, %s at the others", x.Name,
				picked[1], len(shapes), c.Options[first].Name)
			return
		}
	}
}

// refusals lists why no candidate runs.
func (c *CacheChoice) refusals() string {
	if len(c.Options) == 0 {
		return "no candidate was given"
	}
	text := ""
	for _, x := range c.Options {
		text = join(text, x.Name+": "+x.Refused)
	}
	return text
}
