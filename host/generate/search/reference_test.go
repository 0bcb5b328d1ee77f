package search

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestWarpers: probabilities after the warpers equal those of Hugging Face's own.
func TestWarpers(t *testing.T) {
	var cases []struct {
		Logits  []*float32 `json:"scores"`
		Options struct {
			Temperature float32 `json:"temperature"`
			TopK        int     `json:"top_k"`
			TopP        float32 `json:"top_p"`
			MinP        float32 `json:"min_p"`
			TypicalP    float32 `json:"typical_p"`
		}
		Keep          int
		Probabilities []float64
	}
	readGolden(t, "warpers.json.gz", &cases)
	if len(cases) < 100 {
		t.Fatalf("%d cases, 100 are wanted", len(cases))
	}
	for i, c := range cases {
		row := make([]float32, len(c.Logits))
		for j, s := range c.Logits {
			row[j] = negInf
			if s != nil {
				row[j] = *s
			}
		}
		p := Reference{row: row}
		p.warp(&Group{Temperature: c.Options.Temperature, TopK: c.Options.TopK, TopP: c.Options.TopP, MinP: c.Options.MinP,
			TypicalP: c.Options.TypicalP, MinKeep: c.Keep})
		logSoftmax(p.row)
		for j, x := range p.row {
			if got := math.Exp(float64(x)); math.Abs(got-c.Probabilities[j]) > 1e-6 {
				t.Errorf("case %d (%+v, keep %d): token %d has %g, want %g", i, c.Options, c.Keep, j, got, c.Probabilities[j])
				break
			}
		}
	}
}

// TestReferenceDirect: the candidates of random requests equal a direct computation in float64.
func TestReferenceDirect(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var p Reference
	for range 300 {
		req, want := randomRequest(r)
		lists := must.Value(p.Run(req))(t)
		for i, g := range req.Groups {
			if len(lists[i]) != min(g.K, len(want[i])) {
				t.Fatalf("group %d: %d candidates, want %d of %d", i, len(lists[i]), g.K, len(want[i]))
			}
			for j, c := range lists[i] {
				w := want[i][j]
				if math.Abs(float64(c.Score)-w.score) > 1e-4 {
					t.Fatalf("group %d (%+v): candidate %d is %+v, want %+v", i, g, j, c, w)
				}
			}
			if !slices.IsSortedFunc(lists[i],
				func(a, b Candidate) int { return compare(keyed{a, a.Score}, keyed{b, b.Score}) }) {
				t.Fatalf("group %d is not in order: %v", i, lists[i])
			}
		}
	}
}

type pair struct {
	row, token int
	score      float64
}

// randomRequest gives a request of the modes LogProbs and Raw, and all possible candidates of each
// group, best first.
func randomRequest(r *rand.Rand) (*Request, [][]pair) {
	vocab := 2 + r.IntN(60)
	req := &Request{Vocab: vocab}
	var want [][]pair
	for range 1 + r.IntN(4) {
		g := Group{First: len(req.Rows), Count: 1 + r.IntN(4), K: 1 + r.IntN(12), Mode: Mode(r.IntN(2)),
			Normalize: r.IntN(3) == 0}
		var pairs []pair
		for range g.Count {
			row := Row{}
			if r.IntN(2) == 0 {
				row.Bias = -3 * r.Float32()
			}
			first := len(req.Logits)
			for range vocab {
				req.Logits = append(req.Logits, float32(r.NormFloat64()*3))
			}
			x := make([]float64, vocab)
			for t := range x {
				x[t] = float64(req.Logits[first+t])
			}
			if g.Mode == LogProbs {
				normalise(x)
			}
			for range r.IntN(6) {
				e := Processor{Token: r.Int32N(int32(vocab)), Op: ProcessorOp(r.IntN(4)), Value: 0.5 + r.Float32()}
				if e.Op == Only && r.IntN(4) != 0 {
					e.Op = Ban
				}
				if e.Token == 0 && e.Op == Ban {
					continue // something must be left
				}
				row.Processors = append(row.Processors, e)
				applyDirect(x, e)
			}
			if g.Normalize {
				normalise(x)
			}
			for t, s := range x {
				if !math.IsInf(s, -1) {
					pairs = append(pairs, pair{len(req.Rows), t, s + float64(row.Bias)})
				}
			}
			req.Rows = append(req.Rows, row)
		}
		// In mode Raw the order is that before Normalize, which between rows is another one.
		if g.Mode == Raw && g.Normalize && g.Count > 1 {
			g.Normalize = false
			req.Rows = req.Rows[:g.First]
			req.Logits = req.Logits[:g.First*vocab]
			continue
		}
		slices.SortFunc(pairs, func(a, b pair) int {
			switch {
			case a.score > b.score:
				return -1
			case a.score < b.score:
				return 1
			}
			return (a.row*vocab + a.token) - (b.row*vocab + b.token)
		})
		if len(pairs) == 0 {
			req.Rows = req.Rows[:g.First]
			req.Logits = req.Logits[:g.First*vocab]
			continue
		}
		req.Groups = append(req.Groups, g)
		want = append(want, pairs)
	}
	return req, want
}

func normalise(x []float64) {
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(v)
	}
	if sum == 0 {
		return // nothing is left in this row
	}
	for t := range x {
		x[t] -= math.Log(sum)
	}
}

func applyDirect(x []float64, e Processor) {
	v := float64(e.Value)
	switch e.Op {
	case Add:
		x[e.Token] += v
	case Penalise:
		if x[e.Token] < 0 {
			x[e.Token] *= v
		} else {
			x[e.Token] /= v
		}
	case Ban:
		x[e.Token] = math.Inf(-1)
	case Only:
		for t := range x {
			x[t] = math.Inf(-1)
		}
		x[e.Token] = v
	}
}

// TestReferenceTies: among equal logits the lower row and token come first.
func TestReferenceTies(t *testing.T) {
	req := &Request{Logits: []float32{1, 2, 2, 0, 2, 1, 2, 2}, Vocab: 4, Rows: make([]Row, 2),
		Groups: []Group{{Count: 2, K: 6, Mode: Raw}}}
	lists := must.Value(new(Reference).Run(req))(t)
	want := []Candidate{{0, 1, 2}, {0, 2, 2}, {1, 0, 2}, {1, 2, 2}, {1, 3, 2}, {0, 0, 1}}
	if !slices.Equal(lists[0], want) {
		t.Errorf("found %v, want %v", lists[0], want)
	}
}

func TestReferenceErrors(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	good := func() *Request {
		return &Request{Logits: make([]float32, 8), Vocab: 4, Rows: make([]Row, 2), Groups: []Group{{Count: 2, K: 2}}}
	}
	for _, c := range []struct {
		name   string
		change func(*Request)
		want   string
		row    int // of a RowError, -1: of another kind
	}{
		{"NaN", func(r *Request) { r.Logits[6] = nan }, "logits of row 1: the logit of token 2 is NaN", 1},
		{"infinite", func(r *Request) { r.Logits[3] = inf }, "logits of row 0: the logit of token 3 is +Inf", 0},
		{"all banned", func(r *Request) {
			for i := range r.Logits {
				r.Logits[i] = negInf
			}
		}, "logits of row 0: every token is banned or impossible", 0},
		{"too few logits", func(r *Request) { r.Logits = r.Logits[:7] },
			"a request has 7 logits for 2 rows of 4: 8 are needed", -1},
		{"row outside", func(r *Request) { r.Groups[0].First = 1 }, "group 0 has rows 1 to 2: the request has 2", -1},
		{"no candidates", func(r *Request) { r.Groups[0].K = 0 }, "group 0 asks for 0 candidates: at least 1 is needed", -1},
		{"unknown mode", func(r *Request) { r.Groups[0].Mode = 7 },
			"group 0 has the mode 7: LogProbs, Raw and Sample are known", -1},
		{"random numbers", func(r *Request) { r.Groups[0].Mode = Sample },
			"group 0 asks for 2 samples and gives 0 random numbers", -1},
		{"two rows", func(r *Request) { r.Groups[0].Mode, r.Groups[0].Uniform = Sample, []float32{0, 0} },
			"group 0 samples from 2 rows: only beam sampling has more than one", -1},
		{"processor outside", func(r *Request) { r.Rows[1].Processors = []Processor{{Token: 4}} },
			"row 1 has a processor of token 4: there are 4 tokens", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := good()
			c.change(req)
			_, err := new(Reference).Run(req)
			must.FailExactly(t, err, c.want)
			var bad *RowError
			if errors.As(err, &bad) != (c.row >= 0) || bad != nil && bad.Row != c.row {
				t.Errorf("row error %+v, want row %d", bad, c.row)
			}
		})
	}
	// A row that is in no group is not looked at, and one dead row among live ones is nobody's error.
	req := good()
	req.Logits[0] = nan
	req.Groups = []Group{{First: 1, Count: 1, K: 1}}
	must.Value(new(Reference).Run(req))(t, "a row that no group has")
	req = good()
	for i := range 4 {
		req.Logits[i] = negInf
	}
	lists, err := new(Reference).Run(req)
	if err != nil || len(lists[0]) != 2 || lists[0][0].Row != 1 {
		t.Errorf("a dead row beside a live one: %v, %v", lists, err)
	}
}

// TestTypicalOfTheImpossible: a token whose probability is too small for a number adds nothing to the row's entropy,
// and takes no part in what is typical.
func TestTypicalOfTheImpossible(t *testing.T) {
	p := Reference{row: []float32{0, -1, -1000}}
	p.warp(&Group{TypicalP: 0.5})
	must.Equal(t, p.row, []float32{0, negInf, negInf})
}
