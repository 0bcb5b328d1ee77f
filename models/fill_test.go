package models

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

func entries(pairs ...string) []entry {
	list := []entry{{"location", "seed"}}
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, entry{pairs[i], pairs[i+1]})
	}
	return list
}

// values fills a whole instruction, in pieces of some bytes.
func values(t *testing.T, in *instruction, piece int64) []float32 {
	t.Helper()
	b := make([]byte, in.bytes())
	gs := in.generators(7)
	for from := int64(0); from < int64(len(b)); from += piece {
		in.fill(b[from:min(from+piece, int64(len(b)))], from, gs)
	}
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

func mustParse(t *testing.T, pairs ...string) *instruction {
	t.Helper()
	in := must.Value(parseInstruction(entries(pairs...)))(t)
	return in
}

func TestTransposesSlicesAndPackingReadTheParameter(t *testing.T) {
	const rows, columns = 5, 6
	w := values(t, mustParse(t, "name", "w", "shape", "5,6", "distribution", "normal", "mean", "0", "scale", "1"), 1<<20)
	u := values(t, mustParse(t, "name", "u", "shape", "5,6", "distribution", "normal", "mean", "0", "scale", "1"), 1<<20)
	at := func(v []float32, r, c int) float32 { return v[r*columns+c] }

	one := []string{"name", "w", "shape", "5,6", "distribution", "normal", "mean", "0", "scale", "1"}
	other := []string{"name", "u", "shape", "5,6", "distribution", "normal", "mean", "0", "scale", "1"}
	tests := []struct {
		name    string
		pairs   []string
		columns int
		want    func(r, c int) float32
	}{
		{"transpose", append(one[:10:10], "transpose", "1"), rows, func(r, c int) float32 { return at(w, c, r) }},
		{"rows", append(one[:10:10], "slice", "0:1:4"), columns, func(r, c int) float32 { return at(w, r+1, c) }},
		{"columns", append(one[:10:10], "slice", "1:2:5"), 3, func(r, c int) float32 { return at(w, r, c+2) }},
		{"columns of the transpose", append(one[:10:10], "transpose", "1", "slice", "1:1:3"), 2,
			func(r, c int) float32 { return at(w, c+1, r) }},
		{"one above the other", append(one[:10:10], other...), columns, func(r, c int) float32 {
			if r < rows {
				return at(w, r, c)
			}
			return at(u, r-rows, c)
		}},
		{"side by side", append(append([]string{"axis", "1"}, one...), other...), 2 * columns, func(r, c int) float32 {
			if c < columns {
				return at(w, r, c)
			}
			return at(u, r, c-columns)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in := mustParse(t, test.pairs...)
			for _, piece := range []int64{4, 12, 1 << 20} {
				for i, v := range values(t, in, piece) {
					if want := test.want(i/test.columns, i%test.columns); v != want {
						t.Fatalf("in pieces of %d bytes: value %d is %v, need %v", piece, i, v, want)
					}
				}
			}
		})
	}
}

func TestDistributions(t *testing.T) {
	tests := []struct {
		distribution, mean, scale string
		wantMean, wantDeviation   float64
		low, high                 float64
	}{
		{"normal", "0", "0.02", 0, 0.02, -0.0693, 0.0693},
		{"normal", "1", "0.1", 1, 0.1, 0.65, 1.35},
		{"uniform", "0.025", "0.005", 0.025, 0.005 / math.Sqrt(3), 0.02, 0.03},
		{"constant", "0", "", 0, 0, 0, 0},
	}
	for _, test := range tests {
		pairs := []string{"name", "w", "shape", "100000", "distribution", test.distribution, "mean", test.mean}
		if test.scale != "" {
			pairs = append(pairs, "scale", test.scale)
		}
		var sum, squares float64
		list := values(t, mustParse(t, pairs...), 1<<20)
		for _, v := range list {
			x := float64(v)
			if x < test.low || x > test.high {
				t.Fatalf("%s: value %v lies outside %v to %v", test.distribution, v, test.low, test.high)
			}
			sum, squares = sum+x, squares+x*x
		}
		n := float64(len(list))
		mean := sum / n
		deviation := math.Sqrt(max(squares/n-mean*mean, 0))
		if math.Abs(mean-test.wantMean) > 0.02*test.wantDeviation ||
			math.Abs(deviation-test.wantDeviation) > 0.01*test.wantDeviation {
			t.Errorf("%s: mean %v and deviation %v, need %v and %v", test.distribution, mean, deviation, test.wantMean,
				test.wantDeviation)
		}
	}
}

func TestWrongInstructionsAreRefused(t *testing.T) {
	normal := []string{"distribution", "normal", "mean", "0", "scale", "1"}
	tests := []struct {
		name  string
		pairs []string
		want  string
	}{
		{"no name", nil, "no parameter is named"},
		{"shape first", []string{"shape", "3"}, "shape stands before the first name"},
		{"no shape", append([]string{"name", "w"}, normal...), `w: shape "": need positive sizes, separated by commas`},
		{"negative size", append([]string{"name", "w", "shape", "3,-1"}, normal...),
			`w: shape "3,-1": need positive sizes, separated by commas`},
		{"overflow", append([]string{"name", "w", "shape", "2000000000,2000000000"}, normal...),
			`w: shape "2000000000,2000000000": need positive sizes, separated by commas`},
		{"distribution", []string{"name", "w", "shape", "3", "distribution", "cauchy"},
			`w: distribution "cauchy" is not known`},
		{"mean", []string{"name", "w", "shape", "3", "distribution", "normal", "mean", "x"}, `w: mean "x": need a number`},
		{"scale", []string{"name", "w", "shape", "3", "distribution", "normal", "mean", "0", "scale", "-1"},
			`w: scale "-1": need a number of at least 0`},
		{"transpose of a vector", append([]string{"name", "w", "shape", "3", "transpose", "1"}, normal...),
			`w: transpose "1" of shape [3]: need 1 and two dimensions`},
		{"slice outside", append([]string{"name", "w", "shape", "3,4", "slice", "1:2:5"}, normal...),
			`w: slice "1:2:5" lies outside 3 x 4`},
		{"slice", append([]string{"name", "w", "shape", "3,4", "slice", "all"}, normal...),
			`w: slice "all": need axis:start:end`},
		{"axis", append([]string{"axis", "2", "name", "w", "shape", "3"}, normal...), `axis "2": need 0 or 1`},
		{"twice", append([]string{"name", "w", "shape", "3", "shape", "3"}, normal...), "shape stands twice for w"},
		{"unlike parts", append(append([]string{"name", "w", "shape", "3,4"}, normal...),
			append([]string{"name", "u", "shape", "3,5"}, normal...)...),
			"u does not fit beside w along axis 0"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := parseInstruction(entries(test.pairs...))
			must.FailExactly(t, err, test.want)
		})
	}
}

// The stream is part of the format: other languages make the same weights.
func TestStreamIsFixed(t *testing.T) {
	in := mustParse(t, "name", "transformer.wte.weight", "shape", "4", "distribution", "normal", "mean", "0", "scale",
		"0.05")
	want := []uint32{0xbdcb6387, 0x3ccbc3d4, 0x3c775bc7, 0xbdda2203}
	for i, v := range values(t, in, 16) {
		must.Equal(t, math.Float32bits(v), want[i], v)
	}
}

func FuzzParseInstruction(f *testing.F) {
	f.Add("2,3", "normal", "0", "1", "1", "0:0:1")
	f.Add("4", "bytes", "", "", "", "")
	f.Add("9,9", "uniform", "1", "2", "", "1:3:4")
	f.Fuzz(func(t *testing.T, shape, distribution, mean, scale, transpose, slice string) {
		pairs := []string{"name", "w", "shape", shape, "distribution", distribution, "mean", mean, "scale", scale}
		if transpose != "" {
			pairs = append(pairs, "transpose", transpose)
		}
		if slice != "" {
			pairs = append(pairs, "slice", slice)
		}
		var in *instruction
		var err error
		must.CostLittle(t, len(strings.Join(pairs, "")), func() { in, err = parseInstruction(entries(pairs...)) })
		if err != nil {
			return
		}
		p := in.parts[0]
		last := p.offset + (p.rows-1)*p.rowStride + (p.columns-1)*p.columnStride
		if p.rows < 1 || p.columns < 1 || p.offset < 0 || last >= p.elements() {
			t.Errorf("%v reads value %d of %d", pairs, last, p.elements())
		}
	})
}
