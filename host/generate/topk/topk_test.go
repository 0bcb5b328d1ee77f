package topk

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/internal/must"
)

// load opens the plugin as it was built: from GRAFT_PLUGIN_PATH, else from build/plugins.
func load(t testing.TB, threads int) *Selector {
	t.Helper()
	if os.Getenv("GRAFT_PLUGIN_PATH") == "" {
		folder := must.Value(filepath.Abs("../../../build/plugins"))(t)
		t.Setenv("GRAFT_PLUGIN_PATH", folder)
	}
	t.Setenv("GRAFT_PLUGIN_UNVERIFIED", "1")
	found := must.Value(discovery.Find(discovery.Options{}).ByName("logits-top-k"))(t)
	p := must.Value(plugin.Open(found.Folder, plugin.OpenOptions{}))(t)
	selector := must.Value(New(p, "LogitsTopK", threads))(t)
	t.Cleanup(selector.Close)
	return selector
}

var negInf = float32(math.Inf(-1))

// scenery says how logits are made.
type scenery int

const (
	smooth  scenery = iota // no two logits are equal
	ties                   // whole numbers, most of them several times
	sparse                 // many are -Inf already
	distant                // far from zero, so that rounding makes some equal
	sceneries
)

func logits(r *rand.Rand, s scenery, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		switch s {
		case smooth:
			out[i] = float32(r.NormFloat64() * 3)
		case ties:
			out[i] = float32(r.IntN(9) - 4)
		case sparse:
			out[i] = negInf
			if r.IntN(5) == 0 {
				out[i] = float32(r.NormFloat64() * 30)
			}
		case distant:
			out[i] = float32(-4000 + r.NormFloat64()*2)
		}
	}
	return out
}

func vocabulary(r *rand.Rand) int {
	switch r.IntN(20) {
	case 0:
		return 1 + r.IntN(60000)
	case 1, 2:
		return 1 + r.IntN(9000)
	case 3:
		return 4096 * (1 + r.IntN(3))
	}
	return 1 + r.IntN(300)
}

// random makes a request of any kind.
func random(r *rand.Rand, s scenery) *search.Request {
	vocab := vocabulary(r)
	req := &search.Request{Vocab: vocab}
	for range 1 + r.IntN(4) {
		g := search.Group{First: len(req.Rows), Count: 1 + r.IntN(4), K: 1 + r.IntN(12), Mode: search.Mode(r.IntN(3)),
			Normalize: r.IntN(4) == 0}
		if r.IntN(10) == 0 {
			g.K = 1 + r.IntN(2*vocab)
		}
		if g.Mode == search.Sample {
			g.K = min(g.K, 20)
			warp(r, &g, vocab)
		}
		for range g.Count {
			row := search.Row{Processors: processors(r, vocab)}
			if r.IntN(2) == 0 {
				row.Bias = -5 * r.Float32()
			}
			req.Rows = append(req.Rows, row)
		}
		req.Groups = append(req.Groups, g)
		if r.IntN(8) == 0 {
			req.Rows = append(req.Rows, search.Row{}) // in no group
		}
	}
	req.Logits = logits(r, s, len(req.Rows)*vocab)
	return req
}

// warp makes a group sample.
func warp(r *rand.Rand, g *search.Group, vocab int) {
	if g.LogSoftmax = r.IntN(2) == 0; !g.LogSoftmax {
		g.Count = 1
	}
	for range g.K {
		g.Uniform = append(g.Uniform, r.Float32())
	}
	if r.IntN(2) == 0 {
		g.Temperature = 0.3 + 2*r.Float32()
	}
	if r.IntN(2) == 0 {
		g.TopK = 1 + r.IntN(min(60, 2*vocab))
	}
	if r.IntN(3) == 0 {
		g.TopP = 0.05 + 0.95*r.Float32()
	}
	if r.IntN(3) == 0 {
		g.MinP = 0.3 * r.Float32()
	}
	if r.IntN(4) == 0 {
		g.TypicalP = 0.05 + 0.9*r.Float32()
	}
	g.MinKeep = r.IntN(4)
}

func processors(r *rand.Rand, vocab int) []search.Processor {
	count := r.IntN(6)
	if r.IntN(10) == 0 {
		count = r.IntN(2 * vocab)
	}
	var list []search.Processor
	for range min(count, 3000) {
		e := search.Processor{Token: r.Int32N(int32(vocab)), Op: search.ProcessorOp(r.IntN(3)), Value: 0.5 + r.Float32()}
		if r.IntN(200) == 0 {
			e.Op = search.Only
		}
		list = append(list, e)
	}
	return list
}

// near says whether two logits differ by rounding alone, of numbers as large as `of`.
func near(a, b, of float32) bool {
	if a == b {
		return true
	}
	return math.Abs(float64(a)-float64(b)) <= 1e-5+1e-6*math.Abs(float64(b))+3e-7*math.Abs(float64(of))
}

func order(vocab int) func(a, b search.Candidate) int {
	return func(a, b search.Candidate) int {
		if a.Score != b.Score {
			return cmp.Compare(b.Score, a.Score)
		}
		return cmp.Compare(int(a.Row)*vocab+int(a.Token), int(b.Row)*vocab+int(b.Token))
	}
}

// TestAgainstReference: the candidates of random requests are those of the selector in Go. Where rounding
// puts another token in a place, its score is that place's score too.
func TestAgainstReference(t *testing.T) {
	const requests = 4000
	for _, threads := range []int{1, 3} {
		selector := load(t, threads)
		r := rand.New(rand.NewPCG(uint64(threads), 7))
		total, same := 0, 0
		for n := range requests / 2 {
			s := scenery(n % int(sceneries))
			req := random(r, s)
			before := slices.Clone(req.Logits)
			want, wantErr := new(search.Reference).Run(req)
			got, err := selector.Run(req)
			if !slices.Equal(before, req.Logits) {
				t.Fatalf("request %d: the logits were written to", n)
			}
			if wantErr != nil || err != nil {
				if wantErr == nil || err == nil || wantErr.Error() != err.Error() {
					t.Fatalf("request %d: found error %v, want %v", n, err, wantErr)
				}
				continue
			}
			for i, g := range req.Groups {
				total++
				if slices.Equal(got[i], want[i]) {
					same++
					continue
				}
				if g.Mode == search.Sample {
					sameSamples(t, req, i, got[i], want[i])
				} else {
					sameBest(t, req, i, got[i], want[i])
				}
				if t.Failed() {
					t.Fatalf("request %d, scenery %d", n, s)
				}
			}
		}
		t.Logf("%d threads: %d of %d groups bit for bit", threads, same, total)
		if same*2 < total {
			t.Errorf("%d of %d groups are bit for bit the same, most are wanted", same, total)
		}
	}
}

// sameBest holds a list of best candidates against the wanted one.
func sameBest(t *testing.T, req *search.Request, i int, got, want []search.Candidate) {
	t.Helper()
	g := req.Groups[i]
	if len(got) != len(want) {
		t.Errorf("group %d %+v: %d candidates, want %d", i, g, len(got), len(want))
		return
	}
	// Every possible pair with its score.
	every := *req
	g.K = g.Count * req.Vocab
	every.Groups = []search.Group{g}
	all := must.Value(new(search.Reference).Run(&every))(t)
	score := map[[2]int32]float32{}
	for _, c := range all[0] {
		score[[2]int32{c.Row, c.Token}] = c.Score
	}
	for j, c := range got {
		of := req.Logits[int(c.Row)*req.Vocab+int(c.Token)]
		if math.IsInf(float64(of), 0) {
			of = 0
		}
		known, ok := score[[2]int32{c.Row, c.Token}]
		if !ok || !near(c.Score, known, of) || !near(c.Score, want[j].Score, of) {
			t.Errorf("group %d %+v, vocabulary %d, row %+v: candidate %d is %+v (known as %v), want %+v", i, req.Groups[i],
				req.Vocab, req.Rows[c.Row], j, c, known, want[j])
			return
		}
		delete(score, [2]int32{c.Row, c.Token})
	}
	if !(g.Mode == search.Raw && g.Normalize) && !slices.IsSortedFunc(got, order(req.Vocab)) {
		t.Errorf("group %d is not in order: %v", i, got)
	}
}

// sameSamples allows another token only where a random number lies within rounding of the border between two.
func sameSamples(t *testing.T, req *search.Request, i int, got, want []search.Candidate) {
	t.Helper()
	agree := func(list []search.Candidate) bool {
		return slices.EqualFunc(got, list, func(a, b search.Candidate) bool {
			return a.Row == b.Row && a.Token == b.Token && near(a.Score, b.Score, 4000)
		})
	}
	if agree(want) {
		return
	}
	g := req.Groups[i]
	for _, nudge := range []float32{-3e-6, 3e-6} {
		moved := *req
		h := g
		h.Uniform = nil
		for _, u := range g.Uniform {
			h.Uniform = append(h.Uniform, min(max(u+nudge, 0), math.Nextafter32(1, 0)))
		}
		moved.Groups = []search.Group{h}
		if list, err := new(search.Reference).Run(&moved); err == nil && agree(list[0]) {
			return
		}
		// A warper's own border.
		for _, by := range []float32{1 - 2e-6, 1 + 2e-6} {
			h.Uniform = g.Uniform
			h.TopP, h.MinP, h.TypicalP = g.TopP*by, g.MinP*by, g.TypicalP*by
			moved.Groups[0] = h
			if list, err := new(search.Reference).Run(&moved); err == nil && agree(list[0]) {
				return
			}
		}
	}
	t.Errorf("group %d %+v: drew %v, want %v", i, g, got, want)
}

// TestWholeNumbers: with whole logits and no log-softmax nothing is rounded, so lists are equal bit for
// bit, ties included.
func TestWholeNumbers(t *testing.T) {
	selector := load(t, 2)
	r := rand.New(rand.NewPCG(11, 12))
	for n := range 1000 {
		req := random(r, ties)
		for i := range req.Groups {
			g := &req.Groups[i]
			g.Mode, g.Normalize, g.LogSoftmax, g.Uniform = search.Raw, false, false, nil
		}
		for i := range req.Rows {
			req.Rows[i].Bias = float32(r.IntN(5) - 2)
			for j := range req.Rows[i].Processors {
				req.Rows[i].Processors[j].Value = float32(int(1) << r.IntN(3))
			}
		}
		want, err := new(search.Reference).Run(req)
		if err != nil {
			continue // everything was banned
		}
		got := must.Value(selector.Run(req))(t)
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Fatalf("request %d, group %d %+v: found %v, want %v", n, i, req.Groups[i], got[i], want[i])
			}
		}
	}
}

func TestErrors(t *testing.T) {
	selector := load(t, 2)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, vocab := range []int{1, 5, 130, 5000} {
		for _, bad := range []float32{nan, inf} {
			for mode := range search.Sample + 1 {
				for token := 0; token < vocab; token += 1 + vocab/40 {
					req := &search.Request{Vocab: vocab, Rows: make([]search.Row, 3), Logits: make([]float32, 3*vocab)}
					req.Logits[2*vocab+token] = bad
					req.Groups = []search.Group{{First: 0, Count: 1, K: 1, Mode: mode}, {First: 2, Count: 1, K: 1, Mode: mode}}
					if mode == search.Sample {
						req.Groups[0].Uniform, req.Groups[1].Uniform = []float32{0.5}, []float32{0.5}
						req.Groups[1].TopK = token % 2
					}
					if token%3 == 0 { // a ban does not hide it
						req.Rows[2].Processors = []search.Processor{{Token: int32(token), Op: search.Ban}}
					}
					_, want := new(search.Reference).Run(req)
					_, err := selector.Run(req)
					var row *search.RowError
					if !errors.As(err, &row) || row.Row != 2 || err.Error() != want.Error() {
						t.Fatalf("vocabulary %d, token %d is %v, mode %d: found %v, want %v", vocab, token, bad, mode, err, want)
					}
				}
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*search.Request)
		want   string
	}{
		{"all banned", func(r *search.Request) {
			for i := range 4 {
				r.Logits[i] = negInf
			}
			r.Groups[0].Count = 1
		}, "logits of row 0: every token is banned or impossible"},
		{"too few logits", func(r *search.Request) { r.Logits = r.Logits[:7] },
			"a request has 7 logits for 2 rows of 4: 8 are needed"},
		{"no candidates", func(r *search.Request) { r.Groups[0].K = 0 },
			"group 0 asks for 0 candidates: at least 1 is needed"},
		{"random numbers", func(r *search.Request) { r.Groups[0].Mode = search.Sample },
			"group 0 asks for 2 samples and gives 0 random numbers"},
	} {
		req := &search.Request{Logits: make([]float32, 8), Vocab: 4, Rows: make([]search.Row, 2),
			Groups: []search.Group{{Count: 2, K: 2}}}
		c.change(req)
		must.FailExactly(t, must.Error(selector.Run(req)), c.want)
	}
	// What the kernel itself refuses.
	for _, change := range []func(*search.Request){
		func(r *search.Request) { r.Groups[0].First = 1 },
		func(r *search.Request) { r.Groups[0].Mode = 7 },
		func(r *search.Request) { r.Rows[1].Processors = []search.Processor{{Token: 4}} },
		func(r *search.Request) { r.Rows[1].Processors = []search.Processor{{Token: -1}} },
		func(r *search.Request) { r.Rows[1].Processors = []search.Processor{{Op: 9}} },
	} {
		req := &search.Request{Logits: make([]float32, 8), Vocab: 4, Rows: make([]search.Row, 2),
			Groups: []search.Group{{Count: 2, K: 2}}}
		change(req)
		if _, err := selector.Run(req); !errors.Is(err, refusal.ErrKernel) {
			t.Errorf("%+v: found %v, want an error of the kernel's", req.Groups[0], err)
		}
	}
	if lists, err := selector.Run(&search.Request{Vocab: 4}); err != nil || len(lists) != 0 {
		t.Errorf("nothing requested: %v, %v", lists, err)
	}
}

// BenchmarkStep: the selector of a step of GPT-2's vocabulary, against the one in Go.
func BenchmarkStep(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, rows := range []int{1, 4, 16} {
		req := &search.Request{Vocab: 50257, Rows: make([]search.Row, rows), Logits: logits(r, smooth, rows*50257)}
		for first := 0; first < rows; first += 4 {
			req.Groups = append(req.Groups, search.Group{First: first, Count: min(4, rows), K: 8})
		}
		name := map[int]string{1: "1 row", 4: "beam 4", 16: "4 x beam 4"}[rows]
		for _, threads := range []int{1, 2} {
			selector := load(b, threads)
			b.Run(name+map[int]string{1: ", 1 thread", 2: ", 2 threads"}[threads], func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					must.Value(selector.Run(req))(b)
				}
			})
		}
		var reference search.Reference
		b.Run(name+", in Go", func(b *testing.B) {
			for b.Loop() {
				must.Value(reference.Run(req))(b)
			}
		})
	}
}
