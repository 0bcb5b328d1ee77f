package blocks

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/internal/must"
)

// parsed are lengths: products of numbers and symbols.
func parsed(words string) (dims []graph.Dim) {
	for word := range strings.FieldsSeq(words) {
		d := graph.DimInt(1)
		for factor := range strings.SplitSeq(word, "*") {
			if n, err := strconv.ParseInt(factor, 10, 64); err == nil {
				d = d.Mul(graph.DimInt(n))
			} else {
				d = d.Mul(graph.DimSym(factor))
			}
		}
		dims = append(dims, d)
	}
	return dims
}

func TestRegroup(t *testing.T) {
	for _, c := range []struct{ axes, from, to, want string }{
		{"b h s d", "N 2 S 16", "N 2 S 16", "b h s d"},
		{"b s h d", "N S 2 16", "N S 32", "b s hd"},
		{"b s h d", "N S 2 16", "M", "bshd"},
		{"bh s d", "2*N S 16", "N 2 S 16", "b h s d"},
		{"bh s d", "2*N S 16", "M 2 S 16", "b h s d"},
		{"b h s t", "N 2 16 16", "M 2 16 16", "b h s t"},
		{"b h s t", "N 2 16 16", "M K 2 16 16", "none"}, // two lengths are not told
		{"b h s t", "N 2 16 16", "1 M 2 16 16", " b h s t"},
		{"b h s t", "N 2 16 16", "M 512", "b hst"},
		{"b h s t", "N 2 16 16", "N 2 M 16", "b h s t"},
		{"b h s t", "N 4 16 16", "N 2 M 4", "b h0 h1st0 t1"},
		{"b h s t", "N 4 16 16", "N 4 16 16 M", "none"}, // nothing is left for the last
	} {
		v, got := view{scale: 1}, "none"
		for i, d := range parsed(c.from) {
			v.dims = append(v.dims, []axis{{role: strings.Fields(c.axes)[i], size: d}})
		}
		if to, ok := v.regroup(parsed(c.to), nil); ok {
			got = to.text()
		}
		must.Equal(t, got, c.want, c.axes, c.from, c.to)
	}
}

// TestRegroupWithOneLengthUnknown spreads axes over random shapes of as many elements: every dimension has the length
// that it would have if it were told.
func TestRegroupWithOneLengthUnknown(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 10_000 {
		v := view{scale: 1}
		var factors []int64
		for i := range 1 + random.IntN(4) {
			size := int64(1)
			for range 1 + random.IntN(2) {
				factor := []int64{1, 2, 3, 5}[random.IntN(4)]
				factors, size = append(factors, factor), size*factor
			}
			v.dims = append(v.dims, []axis{{role: string("bhsd"[i]), size: graph.DimInt(size)}})
		}
		lengths := []int64{1}
		for _, factor := range factors {
			if random.IntN(2) == 0 {
				lengths = append(lengths, 1)
			}
			lengths[len(lengths)-1] *= factor
		}
		to := make([]graph.Dim, len(lengths))
		for i, n := range lengths {
			to[i] = graph.DimInt(n)
		}
		to[random.IntN(len(to))] = graph.DimSym("unknown")
		out, ok := v.regroup(to, nil)
		if !ok {
			continue
		}
		found++
		for i, d := range out.dims {
			if !length(d).Is(lengths[i]) {
				t.Fatalf("%s of %v as %v (%v) is %q, of lengths %v", v.text(), v.dims, to, lengths, out.text(), out.dims)
			}
		}
		said := "bhsd"
		if h, ok := v.size("h"); ok && isOne(h) {
			said = "bsd" // one head may stand anywhere
		}
		roles := func(v view) string {
			return string(slices.Compact([]byte(strings.Map(func(r rune) rune {
				if strings.ContainsRune(said, r) {
					return r
				}
				return -1
			}, v.text()))))
		}
		if a, b := roles(v), roles(out); a != b {
			t.Fatalf("%v is in the order %q and was in %q", to, b, a)
		}
	}
	if found < 5000 {
		t.Errorf("only %d of 10,000 shapes were told", found)
	}
}
