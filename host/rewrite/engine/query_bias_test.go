package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
)

// A query's own bias gives the key at a distance one of the query's numbers: which one must follow from the distance.
func TestBucketsFollowFromDistances(t *testing.T) {
	for _, c := range []struct {
		name string
		read [][]float32 // buckets of keys 0, 1, ... of queries that follow one another
		want []int64     // by distance, without those at the end that are alike
		err  string
	}{
		{name: "by distance", read: [][]float32{{0}, {1, 0}, {2, 1, 0}, {2, 2, 1, 0}}, want: []int64{0, 1, 2}},
		{name: "one for all", read: [][]float32{{1}, {1, 1}, {1, 1, 1}}, want: []int64{1}},
		{name: "by position", read: [][]float32{{0}, {0, 1}},
			err: "at distance 0 one query takes its number 0, and another its number 1"},
		{name: "beyond", read: [][]float32{{3}},
			err: "its queries have numbers for 3 distances, and distance 0 is to take number 3"},
		{name: "before", read: [][]float32{{-1}}, err: "is to take number -1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, err := &buckets{count: 3}, error(nil)
			for i, row := range c.read {
				m := &mask{own: &Evaluated{Shape: []int64{1, 1, 1, int64(len(row))}, Data: row}}
				for d := range row {
					if err == nil {
						err = k.read(m, 0, 0, int64(i-d), int64(d))
					}
				}
			}
			switch {
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("%v, want %q", err, c.err)
			case c.err == "" && (err != nil || !slices.Equal(k.shortened(), c.want)):
				t.Errorf("%v, %v; want %v", k.shortened(), err, c.want)
			}
		})
	}
}

// Numbers that depend on no token are a bias of the model's, and buckets that depend on one are none that an engine
// knows.
func TestQueryBiasIsOfTokens(t *testing.T) {
	const head = `
		in input_ids i64[b, s]
		const words f32[9, 24]
		const fixed f32[1, 2, 3, 4]
		const by i64[1, 2, 3, 5]
		out y f32[1, 2, 3, 5]
		x = Gather(words, input_ids)
		numbers = Reshape(x, [1,2,3,4])
		told = Cast(numbers) to=7
		`
	for _, c := range []struct {
		name, text string
		want       bool
	}{
		{"numbers of tokens", "y = GatherElements(numbers, by) axis=3", true},
		{"the last axis", "y = GatherElements(numbers, by) axis=-1", true},
		{"another axis", "y = GatherElements(numbers, by) axis=2", false},
		{"numbers of the model", "y = GatherElements(fixed, by) axis=3", false},
		{"buckets of tokens", "y = GatherElements(numbers, told) axis=3", false},
		{"no gathered elements", "y = Add(numbers, fixed)", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, shapes := blockstest.Graph(t, head+c.text)
			d := &Decoder{Graph: g, Shapes: shapes, Report: &blocks.Report{}}
			q := d.queryBiasOf(blocks.Bias{Value: g.Outputs[0], Factor: 0.5})
			if (q != nil) != c.want || q != nil && (q.factor != 0.5 || q.count != 4) {
				t.Errorf("%+v, want %t", q, c.want)
			}
		})
	}
}
