package main

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/internal/must"
)

// small is a model of few tokens.
var small = &encoder{name: "small", longest: 12, tokens: vocabulary{size: 50, pad: 1, first: 2, last: 3, from: 5}}

func TestLengthsOfRows(t *testing.T) {
	texts := &corpus{articles: [][]int64{slices.Repeat([]int64{7}, 40)}, sentences: [][]int64{{101, 9, 102}}}
	bert := &encoder{name: "bert", longest: 8, tokens: bertTokens}
	for _, c := range []struct {
		e           *encoder
		l           lengths
		texts       *corpus
		least, most int
	}{
		{small, lengths{kind: unpadded, most: 7}, nil, 7, 7},
		{small, lengths{kind: unpadded, most: 99}, nil, 12, 12}, // no more positions
		{small, lengths{kind: uniform, least: 3, most: 9}, nil, 3, 9},
		{small, lengths{kind: queries}, nil, 3, 12},
		{small, lengths{kind: pairs}, nil, 5, 12},
		{small, lengths{kind: sentences}, texts, 3, 3},
		{bert, lengths{kind: articles}, texts, 8, 8},
		{encoderNamed("minilm"), lengths{kind: passages}, nil, 10, 400},
	} {
		list, err := c.l.rows(rand.New(rand.NewPCG(1, 1)), c.e, 200, c.texts)
		if err != nil {
			t.Fatalf("%s: %v", c.l, err)
		}
		for _, r := range list {
			if n := len(r.ids); n < c.least || n > c.most {
				t.Errorf("%s: a row of %d tokens, need %d to %d", c.l, n, c.least, c.most)
			}
			if slices.Contains(r.ids, c.e.tokens.pad) && c.e == small {
				t.Errorf("%s: padding within a text: %v", c.l, r.ids)
			}
			if r.second >= len(r.ids) || (r.second > 0) != (c.l.kind == pairs) {
				t.Errorf("%s: the second text begins at %d of %d tokens", c.l, r.second, len(r.ids))
			}
		}
	}
	if _, err := (lengths{kind: articles}).rows(rand.New(rand.NewPCG(1, 1)), small, 1, nil); !errors.Is(err, errNoTexts) {
		t.Errorf("lengths of texts without any: %v", err)
	}
}

// Means of the sampled lengths are the published ones.
func TestMeansOfWords(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, c := range []struct{ mean, spread float64 }{{queryWords, querySpread}, {passageWords, passageSpread}} {
		const n = 20000
		sum := 0
		for range n {
			sum += lengthOf(r, c.mean, c.spread)
		}
		if got := float64(sum) / n / tokensOfWord; math.Abs(got-c.mean) > 0.03*c.mean {
			t.Errorf("texts have %.2f words, need %g", got, c.mean)
		}
	}
}

func TestSentences(t *testing.T) {
	for s, want := range map[string][]string{
		"":                     nil,
		"One":                  {"One"},
		"One . Two ? Three":    {"One .", "Two ?", "Three"},
		"He said no. And left": {"He said no.", "And left"},
	} {
		if got := sentencesOf(s); !slices.Equal(got, want) {
			t.Errorf("%q: %q, need %q", s, got, want)
		}
	}
}

func TestInputsOfTexts(t *testing.T) {
	rows := []row{{ids: []int64{2, 6, 3}}, {ids: []int64{2, 7, 3, 8, 3}, second: 3}}
	tensors := []ort.ValueInfo{{Name: "input_ids", Element: ort.Int64}, {Name: "attention_mask", Element: ort.Int32},
		{Name: "token_type_ids", Element: ort.Int64}}
	b := must.Value(small.batchOf(rows, 6, tensors))(t)
	for i, want := range [][]int64{
		{2, 6, 3, 1, 1, 1, 2, 7, 3, 8, 3, 1},
		{1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0},
		{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0},
	} {
		var got []int64
		for d := b.inputs[i].Data; len(d) > 0; {
			if tensors[i].Element == ort.Int32 {
				got, d = append(got, int64(binary.LittleEndian.Uint32(d))), d[4:]
			} else {
				got, d = append(got, int64(binary.LittleEndian.Uint64(d))), d[8:]
			}
		}
		if !slices.Equal(got, want) || !slices.Equal(b.inputs[i].Shape, []int64{2, 6}) {
			t.Errorf("%s is %v of shape %v, need %v of [2 6]", tensors[i].Name, got, b.inputs[i].Shape, want)
		}
	}
	if b.visibleTokens != 8 || b.computedTokens != 12 {
		t.Errorf("%d of %d tokens are visible, need 8 of 12", b.visibleTokens, b.computedTokens)
	}
	if _, err := small.batchOf(rows, 0, []ort.ValueInfo{{Name: "bbox"}}); err == nil ||
		!strings.Contains(err.Error(), "bbox") {
		t.Errorf("an input that is not known: %v", err)
	}
}

// Answers of hidden tokens do not count; all others do, by 1e-5 + 1e-4 of the value.
func TestComparedAnswers(t *testing.T) {
	fed := &batch{rows: 2, length: 2, visible: []int{2, 1}}
	for _, c := range []struct {
		name     string
		shape    []int64
		change   int
		by       float32
		ok       bool
		compared int
	}{
		{"nothing", []int64{2, 2, 2}, 0, 0, true, 6},
		{"within", []int64{2, 2, 2}, 0, 0.9e-4, true, 6},
		{"beyond", []int64{2, 2, 2}, 0, 1.3e-4, false, 6},
		{"a visible token", []int64{2, 2, 2}, 5, 1, false, 6},
		{"a hidden token", []int64{2, 2, 2}, 6, 1, true, 6},
		{"not a number", []int64{2, 2, 2}, 0, float32(math.NaN()), false, 6},
		{"a row of a text", []int64{2, 4}, 7, 1, false, 8},
	} {
		plain, patched := array{Name: "y", Element: ort.Float32, Shape: c.shape},
			array{Name: "y", Element: ort.Float32, Shape: c.shape}
		for i := range 8 {
			v := float32(1)
			plain.Data = binary.LittleEndian.AppendUint32(plain.Data, math.Float32bits(v))
			if i == c.change {
				v += c.by
			}
			patched.Data = binary.LittleEndian.AppendUint32(patched.Data, math.Float32bits(v))
		}
		p, err := compareAnswers([]array{plain}, []array{patched}, fed)
		if err != nil || p.OK != c.ok || p.Compared != c.compared {
			t.Errorf("%s: %+v, %v, need %v of %d values", c.name, p, err, c.ok, c.compared)
		}
	}
	if _, err := compareAnswers([]array{{Name: "y", Shape: []int64{1}}}, []array{{Name: "y", Shape: []int64{2}}},
		fed); err == nil {
		t.Error("outputs of different shapes are compared")
	}
}

// Answers beyond the tolerance pass where ONNX Runtime is beyond it against itself, and they are at most twice as far.
func TestRoundingOfTheReference(t *testing.T) {
	for _, c := range []struct {
		largest  float64
		rounding cellParity
		want     bool
	}{
		{2e-5, cellParity{OK: false, Largest: 1e-5}, true},
		{2.1e-5, cellParity{OK: false, Largest: 1e-5}, false},
		{2e-5, cellParity{OK: true, Largest: 1e-5}, false},
		{math.Inf(1), cellParity{OK: false, Largest: 1e-5}, false},
	} {
		if got := (&cellParity{Largest: c.largest}).passes(c.rounding); got != c.want {
			t.Errorf("%g against %+v: %v, need %v", c.largest, c.rounding, got, c.want)
		}
	}
}

// What a process holds more is the difference of floors: peaks between them do not count.
func TestFloorsOfCycles(t *testing.T) {
	c := cyclesSide{}
	for i := range 25 {
		if i < 4 { // not settled
			c.Looks = append(c.Looks, held{RSSMB: 10})
			continue
		}
		c.Looks = append(c.Looks, held{RSSMB: 100 + float64(i%3)*40 + float64(i), Descriptors: 9 + i%2, Threads: 7 + i/20})
	}
	c.compare()
	if c.FirstMB != 106 || c.LastMB != 121 || c.Descriptors != 0 || c.Threads != 1 {
		t.Errorf("%+v, need floors of 106 and 121 MB, no descriptor more and one thread", c)
	}
}

func TestSessionConfigEntries(t *testing.T) {
	got, err := configEntries("graft.padding=ignore,a=b=c")
	if err != nil || len(got) != 2 || got["graft.padding"] != "ignore" || got["a"] != "b=c" {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"graft.padding", "=x"} {
		if _, err := configEntries(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
