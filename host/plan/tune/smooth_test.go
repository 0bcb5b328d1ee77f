package tune

import (
	"github.com/opgraft/graft/internal/must"
	"slices"
	"testing"
)

func TestNoiseIsTakenOff(t *testing.T) {
	a := Axes{Keys: []int64{16, 64, 256}, Own: []int64{0}, Beams: []int64{1, 4}, Batch: []int64{1, 4}}
	//             batch 1, 4 of beam 1;  of beam 4
	times := []float64{
		1, 90, 3, 4, //     of 16 keys: another program ran once
		5, 6, 70, 8, //     of 64
		9, 10, 11, 12, // of 256
	}
	a.settle(times)
	must.Equal(t, times, []float64{1, 4, 3, 4, 5, 6, 8, 8, 9, 10, 11, 12})
	table := made()
	for _, r := range table.Rows {
		before := slices.Clone(r.Seconds)
		table.Axes.settle(r.Seconds)
		must.Equal(t, before, r.Seconds, r.Strategy)
	}
	// Wherever a time is settled, none of a larger shape is below it.
	for i := range table.Rows[0].Seconds {
		table.Rows[0].Seconds[i] = float64((i*7919)%24 + 1)
	}
	row := table.Rows[0].Seconds
	table.Axes.settle(row)
	for i := range row {
		for j := range row {
			x, y := table.Axes.Shape(i), table.Axes.Shape(j)
			if x.Keys <= y.Keys && x.Own <= y.Own && x.Beams <= y.Beams && x.Batch <= y.Batch && row[i] > row[j] {
				t.Fatalf("%+v takes %g, %+v %g", x, row[i], y, row[j])
			}
		}
	}
}
