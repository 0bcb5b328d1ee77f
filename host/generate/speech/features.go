package speech

import (
	"fmt"
	"math"
	"math/cmplx"

	"gonum.org/v1/gonum/dsp/fourier"
)

// Features are the log-mel features of a sound: a power spectrum every hop
// samples under a periodic Hann window, summed by mel filters, as log10 over a
// range of 8 and moved to about -1 to 1 (Radford et al. 2022, section 2.2). The
// sound is followed by silence or cut, so that they have the shape of Shape. Sounds
// of another rate are refused. It is for concurrent use.
func (e *Extractor) Features(s *Sound) ([]float32, error) {
	if s.Rate != e.rate {
		return nil, fmt.Errorf("the sound has %d samples a second, needed are %d (sampling_rate in %s): convert it, as "+
			"with ffmpeg -i IN -ar %d -ac 1 OUT.wav", s.Rate, e.rate, ConfigFile, e.rate)
	}
	frames := e.samples / e.hop
	out := make([]float64, e.bins*frames)
	fft := fourier.NewFFT(e.fft)
	frame := make([]float64, e.fft)
	spectrum := make([]complex128, e.fft/2+1)
	power := make([]float64, e.fft/2+1)
	peak := math.Inf(-1)
	for t := range frames {
		for i := range frame {
			frame[i] = e.window[i] * e.at(s.Samples, t*e.hop+i-e.fft/2)
		}
		for i, c := range fft.Coefficients(spectrum, frame) {
			a := cmplx.Abs(c)
			power[i] = a * a
		}
		for b, f := range e.filters {
			sum := 0.0
			for i, w := range f.weights {
				sum += w * power[f.first+i]
			}
			v := math.Log10(max(sum, 1e-10))
			out[b*frames+t] = v
			peak = max(peak, v)
		}
	}
	values := make([]float32, len(out))
	for i, v := range out {
		values[i] = float32((max(v, peak-8) + 4) / 4)
	}
	return values, nil
}

// at is the sample at a place, silence after the end; before the first and after
// the last the sound is mirrored.
func (e *Extractor) at(samples []float32, i int) float64 {
	if i < 0 {
		i = -i
	}
	if i >= e.samples {
		i = 2*(e.samples-1) - i
	}
	if i >= len(samples) {
		return 0
	}
	return float64(samples[i])
}

// hann is the periodic Hann window.
func hann(n int) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = 0.5 - 0.5*math.Cos(2*math.Pi*float64(i)/float64(n))
	}
	return w
}
