package plan

import "math"

// Range is the shapes that are expected, each from smallest to largest; Batch is how many
// requests are in flight, Steps how many tokens a request generates.
type Range struct {
	Keys  [2]int64 `json:"keys"`
	Own   [2]int64 `json:"own"`
	Beams [2]int64 `json:"beams"`
	Batch [2]int64 `json:"batch"`
	Steps int64    `json:"steps,omitempty"`
}

// Largest is the shape that takes the most memory.
func (r Range) Largest() Shape {
	return Shape{Keys: r.Keys[1], Own: r.Own[1], Beams: r.Beams[1], Batch: r.Batch[1], Steps: r.Steps}
}

// Shapes are the range's corners and what lies between, in equal ratios.
func (r Range) Shapes() []Shape {
	var list []Shape
	for _, keys := range between(r.Keys) {
		for _, own := range between(r.Own) {
			for _, beams := range between(r.Beams) {
				for _, batch := range between(r.Batch) {
					list = append(list, Shape{Keys: keys, Own: own, Beams: beams, Batch: batch, Steps: r.Steps})
				}
			}
		}
	}
	return list
}

// between is the ends of an interval and up to two numbers between them, each
// about as many times the one before.
func between(ends [2]int64) []int64 {
	low, high := max(ends[0], 1), ends[1]
	list := []int64{ends[0]}
	for part := 1; part <= 3; part++ {
		x := int64(math.Round(float64(low) * math.Pow(float64(high)/float64(low), float64(part)/3)))
		if x > list[len(list)-1] {
			list = append(list, x)
		}
	}
	return list
}
