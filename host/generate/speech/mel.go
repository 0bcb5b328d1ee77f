package speech

import "math"

// mels on Slaney's scale: linear up to 1,000 Hz, which is 15 mels, then 27 mels for
// a factor of 6.4 (Slaney 1998, Auditory Toolbox).
const (
	slaneyHertz = 1000.0
	slaneyMels  = 15.0
	slaneySlope = 200.0 / 3
)

var slaneyStep = math.Log(6.4) / 27

func melOf(hertz float64) float64 {
	if hertz < slaneyHertz {
		return hertz / slaneySlope
	}
	return slaneyMels + math.Log(hertz/slaneyHertz)/slaneyStep
}

func hertzOf(mel float64) float64 {
	if mel < slaneyMels {
		return mel * slaneySlope
	}
	return slaneyHertz * math.Exp(slaneyStep*(mel-slaneyMels))
}

// highest is the upper edge of the highest filter, whatever the rate, in hertz.
const highest = 8000.0

// filter is a mel filter: weights of frequency bins from a first one on.
type filter struct {
	first   int
	weights []float64
}

// melFilters are triangles whose edges lie evenly on Slaney's scale between 0 and
// 8,000 Hz, each of the same area in hertz. bins frequencies lie evenly between 0
// and half the rate.
func melFilters(count, bins, rate int) []filter {
	edges := make([]float64, count+2)
	for i := range edges {
		edges[i] = hertzOf(melOf(highest) * float64(i) / float64(count+1))
	}
	step := float64(rate/2) / float64(bins-1)
	filters := make([]filter, count)
	for i := range filters {
		low, middle, high := edges[i], edges[i+1], edges[i+2]
		f := &filters[i]
		for b := range bins {
			hertz := float64(b) * step
			w := min((hertz-low)/(middle-low), (high-hertz)/(high-middle))
			if w <= 0 {
				continue
			}
			if f.weights == nil {
				f.first = b
			}
			f.weights = append(f.weights, w*2/(high-low))
		}
	}
	return filters
}
