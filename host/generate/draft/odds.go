package draft

// classes are the numbers of tokens that agreed: those of sizes, and fewer.
const classes = len(sizes) + 1

// class is that of a number of tokens that agreed.
func class(agreed int) int {
	for i, n := range sizes {
		if agreed >= n {
			return i
		}
	}
	return len(sizes)
}

// Odds count how often the next token of a guess was right, by the number of tokens that agreed before it. They are
// of one call, whose texts are mostly of one kind, and each request begins with them.
type Odds struct {
	right, tried [classes]float64
}

// What is assumed of a guess before any was compared, and as how many comparisons that counts.
var assumed = [classes]float64{0.8, 0.5, 0.25, 0.1}

const weight = 4

// memory is the number of comparisons that count, about: a text may change its manner.
const memory = 64

// note counts a comparison.
func (o *Odds) note(class int, right bool) {
	o.tried[class]++
	if right {
		o.right[class]++
	}
	if o.tried[class] > memory {
		o.tried[class] /= 2
		o.right[class] /= 2
	}
}

// chance is the share of right guesses, where `before` stands for those that were not counted.
func (o *Odds) chance(class int, before float64) float64 {
	return (o.right[class] + weight*before) / (o.tried[class] + weight)
}
