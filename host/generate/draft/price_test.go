package draft

import (
	"github.com/opgraft/graft/internal/must"
	"math"
	"math/rand/v2"
	"testing"
)

func near(a, b, share float64) bool { return math.Abs(a-b) <= share*math.Abs(b) }

// TestPriceOfRows: a draft costs the more the more rows a step has, and beside a long prompt none pays.
func TestPriceOfRows(t *testing.T) {
	p := NewPrice(1)
	before := 0.0
	for _, rows := range []int{1, 2, 4, 8, 16, 64, 512} {
		c := p.Chance(rows)
		if c <= before {
			t.Errorf("%d rows: %g, fewer %g", rows, c, before)
		}
		before = c
	}
	if p.Chance(1) > 0.2 || p.Chance(512) < 1 {
		t.Errorf("one row %g, 512 rows %g", p.Chance(1), p.Chance(512))
	}
}

// TestPriceFollowsTimes: of times that lie about a line the price finds the line; of times of one number of rows
// their height, with the slope that is assumed; and it follows when times change.
func TestPriceFollowsTimes(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 31))
	noisy := func(x float64) float64 { return x * (1 + 0.05*r.NormFloat64()) }
	for _, c := range []struct {
		name       string
		first, row float64 // what steps take
		rows       func() int
		step1      float64 // what is expected of a step of one row
		slope      float64 // and of a row more
		within     float64
	}{
		{"rows of all numbers", 0.040, 0.012, func() int { return 1 + r.IntN(17) }, 0.052, 0.012, 0.15},
		{"dear rows", 0.010, 0.009, func() int { return 1 + r.IntN(9) }, 0.019, 0.009, 0.2},
		{"rows that cost nothing", 0.010, 0, func() int { return 1 + r.IntN(17) }, 0.010, 0, 0.2},
		{"one row", 0.050, 0.5, func() int { return 1 }, 0.55, rowTime * 0.55 / (1 + rowTime), 0.05},
	} {
		p := NewPrice(1)
		for range cold {
			if p.Note(1, 9); p.Known() {
				t.Errorf("%s: known by steps that touch weights for the first time", c.name)
			}
		}
		for range 200 {
			rows := c.rows()
			p.Note(rows, noisy(c.first+c.row*float64(rows)))
		}
		if !p.Known() || !near(p.Step(1), c.step1, c.within) ||
			math.Abs(p.Row()-c.slope) > c.within*max(c.slope, 0.01*c.step1) && c.slope > 0 ||
			c.slope == 0 && p.Row() > 0.02*c.step1 {
			t.Errorf("%s: a step of one row %g and a row %g, want %g and %g", c.name, p.Step(1), p.Row(), c.step1, c.slope)
		}
		// A machine that is half as fast from now on.
		for range 300 {
			rows := c.rows()
			p.Note(rows, noisy(2*(c.first+c.row*float64(rows))))
		}
		if !near(p.Step(1), 2*c.step1, c.within) {
			t.Errorf("%s: a step of one row %g, want %g when all takes twice as long", c.name, p.Step(1), 2*c.step1)
		}
	}
}

// TestPriceOfStrangeTimes: steps that waited for something else move the price little, and nonsense not at all.
func TestPriceOfStrangeTimes(t *testing.T) {
	p := NewPrice(1)
	for i := range 100 {
		p.Note(1+i%5, 0.01+0.001*float64(i%5))
	}
	before := p.Step(1)
	p.Note(1, 50)
	if p.Step(1) > 1.3*before {
		t.Errorf("one step of 50 s: %g before, %g after", before, p.Step(1))
	}
	before = p.Step(1)
	for _, s := range []float64{0, -1, math.NaN()} {
		p.Note(1, s)
	}
	p.Note(0, 1)
	must.Equal(t, p.Step(1), before)
	// Falling times, which no line of rows has: never less than nothing.
	p = NewPrice(1)
	for i := range 100 {
		rows := 1 + i%16
		p.Note(rows, 1/float64(rows))
		if p.Row() < 0 || p.Step(1) <= 0 || math.IsNaN(p.Step(1)) {
			t.Fatalf("a step %g, a row %g", p.Step(1), p.Row())
		}
	}
	// Times that grow with the square.
	p = NewPrice(1)
	for i := range 100 {
		rows := 1 + i%16
		p.Note(rows, float64(rows*rows))
		if p.Row() < 0 || p.Step(1) <= 0 {
			t.Fatalf("a step %g, a row %g", p.Step(1), p.Row())
		}
	}
}

// TestPriceAfter: a model that was never timed has the other's unit.
func TestPriceAfter(t *testing.T) {
	large, small := Fixed(0.1, 0.01), NewPrice(0.25)
	must.Equal(t, small.After(large, 0.25).Step(2), 0.25*large.Step(2))
	for range cold + 1 {
		small.Note(1, 0.07)
	}
	if p := small.After(large, 0.25); !near(p.Step(1), 0.07, 1e-9) {
		t.Errorf("%g once it was timed", p.Step(1))
	}
	large.Note(1, 9)
	must.Equal(t, large.Step(1), 0.11)
}

// TestPriceOfNoisyTimes: steps of few rows that take anything, as on a machine with other work, do not make rows dear.
func TestPriceOfNoisyTimes(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 32))
	far := 0
	for range 200 {
		p := NewPrice(1)
		for range 40 {
			rows := 1 + r.IntN(3)
			p.Note(rows, 0.02*(1+rowTime*float64(rows))*math.Exp(0.6*r.NormFloat64()))
		}
		if c := p.Chance(1); c < 0.05 || c > 0.3 {
			far++
		}
	}
	if far > 10 {
		t.Errorf("%d of 200 prices are far from that without noise, %.2f", far, NewPrice(1).Chance(1))
	}
}
