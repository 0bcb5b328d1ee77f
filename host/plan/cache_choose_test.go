package plan_test

import (
	"math"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/internal/must"
)

// twoCores is about the machine of design notes: reading is cheap beside computing.
var twoCores = plan.Machine{Bandwidth: 45e9, CacheBandwidth: 200e9, CacheBytes: 2e6, FLOPS: 226e9, Dispatch: 1.5e-6,
	LastCacheBandwidth: 100e9, LastCacheBytes: 32e6}

// gpu computes 200 times as much as it reads in bytes.
var gpu = plan.Machine{Bandwidth: 4.8e12, FLOPS: 960e12, Dispatch: 1e-9}

func one(n int64) [2]int64 { return [2]int64{n, n} }

func choose(t *testing.T, m plan.Machine, o plan.CacheOptions, kinds ...plan.Kind) []plan.CacheChoice {
	t.Helper()
	choices := must.Value(plan.ChooseCaches(plan.NewPredictor(m, nil, plan.Implementations{}, nil), kinds, o))(t)
	return choices
}

var crossAll = []plan.Candidate{flash, hidden, keysOnly, hybrid}

// EL-attention pays on a processor where heads times beams are few, and keys times
// batch many; it never pays where arithmetic is the limit.
func TestChoiceForSpeed(t *testing.T) {
	at := func(l plan.Layers, keys, beams, batch int64) plan.Kind {
		return plan.Kind{Layers: l, Candidates: crossAll,
			Range: plan.Range{Keys: one(keys), Beams: one(beams), Batch: one(batch)}}
	}
	for _, c := range []struct {
		what string
		m    plan.Machine
		kind plan.Kind
		want plan.Candidate
	}{
		{"few heads, one beam, many requests", twoCores, between(at(tinyCross, 1500, 1, 16)), hidden},
		{"the same, keys too may be stored", twoCores, at(tinyCross, 1500, 1, 16), keysOnly},
		{"sixteen heads and four beams", twoCores, at(bartLarge, 1024, 4, 4), flash},
		{"a short input of one request", twoCores, at(bartLarge, 64, 1, 1), flash},
		{"the same beams where arithmetic is cheap", gpu, between(at(bartLarge, 1024, 4, 512)), hidden},
	} {
		got := choose(t, c.m, plan.CacheOptions{}, c.kind)[0]
		if got.Candidate != c.want || got.Either != nil || got.Reason == "" {
			t.Errorf("%s: chose %s because %q, want %s", c.what, got.Candidate, got.Reason, c.want)
		}
		if len(got.Options) != len(c.kind.Candidates) || got.Options[0].Speedup != 1 {
			t.Errorf("%s: options %+v", c.what, got.Options)
		}
	}
}

// between leaves keys and values, and the encoder's output.
func between(k plan.Kind) plan.Kind {
	k.Candidates = crossAll[:2]
	return k
}

func TestChoiceForMemory(t *testing.T) {
	r := plan.Range{Keys: one(1024), Own: one(64), Beams: one(4), Batch: one(4)}
	cross := plan.Kind{Layers: bartLarge, Candidates: crossAll, Range: r}
	self := bartLarge
	self.Type = "self"
	own := plan.Kind{Layers: self, Candidates: []plan.Candidate{flash, hidden, keysOnly, inputs},
		Range: plan.Range{Keys: one(1), Own: one(64), Beams: one(4), Batch: one(4)}}
	got := choose(t, twoCores, plan.CacheOptions{Prefer: plan.PreferMemory}, own, cross)
	if got[0].Candidate != keysOnly && got[0].Candidate != inputs || got[1].Candidate != hidden {
		t.Errorf("chose %s and %s", got[0].Candidate, got[1].Candidate)
	}
	if want := "stores 4 MiB a request, 24x fewer than keys_values; expected "; !strings.HasPrefix(got[1].Reason, want) {
		t.Errorf("because %q, want %q", got[1].Reason, want)
	}
	// What the weights rule out is not taken, and its reason shown.
	cross.Refused = map[plan.Candidate]string{hidden: "layer 3 is not to be trusted"}
	got = choose(t, twoCores, plan.CacheOptions{Prefer: plan.PreferMemory}, cross)
	if got[0].Candidate != hybrid || got[0].Options[1].Refused != "layer 3 is not to be trusted" {
		t.Errorf("chose %s, options %+v", got[0].Candidate, got[0].Options)
	}
	cross.Candidates = []plan.Candidate{hidden}
	_, err := plan.ChooseCaches(plan.NewPredictor(twoCores, nil, plan.Implementations{}, nil), []plan.Kind{cross},
		plan.CacheOptions{})
	if err == nil || !strings.Contains(err.Error(),
		"nothing can run the 12 layers of cross attention, 16 heads of 64 (16 of keys), width 1024: prompt_hidden_states: "+
			"layer 3 is not to be trusted") {
		t.Errorf("got the error %v", err)
	}
}

// A bound on memory takes what generates most with as many requests as fit: fewer
// bytes pay where they allow a larger batch, and not where they cost more time.
func TestChoiceWithinMemory(t *testing.T) {
	self := bartLarge
	self.Type = "self"
	kinds := []plan.Kind{
		{Layers: self, Candidates: []plan.Candidate{flash, keysOnly},
			Range: plan.Range{Keys: one(1), Own: one(63), Beams: one(4), Batch: one(16)}},
		{Layers: bartLarge, Candidates: crossAll, Range: plan.Range{Keys: one(1024), Beams: one(4), Batch: one(16)}},
	}
	free := choose(t, twoCores, plan.CacheOptions{MaxBytes: 64 << 30}, kinds...)
	if free[0].Candidate != flash || free[1].Candidate != flash || strings.Contains(free[1].Reason, "largest requests") {
		t.Fatalf("with memory to spare: %s and %s because %q", free[0].Candidate, free[1].Candidate, free[1].Reason)
	}
	// A request takes 24 MiB of its own keys and values and 96 MiB of the encoder's. With
	// 16 heads and 4 beams arithmetic on the encoder's output takes longer than what
	// twice the batch gains.
	got := choose(t, twoCores, plan.CacheOptions{MaxBytes: 1 << 30}, kinds...)
	if got[0].Candidate != flash || got[1].Candidate != flash ||
		!strings.HasSuffix(got[1].Reason, "; 1 GiB hold 8 of the largest requests") {
		t.Errorf("%s and %s because %q", got[0].Candidate, got[1].Candidate, got[1].Reason)
	}
	// Where arithmetic is cheap the batch counts.
	got = choose(t, plan.Machine{Bandwidth: 45e9, FLOPS: 100e12}, plan.CacheOptions{MaxBytes: 200 << 20}, kinds[0],
		plan.Kind{Layers: bartLarge, Candidates: []plan.Candidate{flash, hybrid},
			Range: plan.Range{Keys: one(1024), Beams: one(4), Batch: one(16)}})
	if got[1].Candidate != hybrid {
		t.Errorf("chose %s because %q", got[1].Candidate, got[1].Reason)
	}
	// Nothing but the smallest fits, or not even that.
	for _, c := range []struct {
		limit int64
		want  string
	}{
		{30 << 20, "30 MiB hold 1 of the largest requests, and none with keys_values, the first choice"},
		{1 << 20, "1 MiB hold none of the largest requests, and none with keys_values, the first choice"},
	} {
		got := choose(t, twoCores, plan.CacheOptions{MaxBytes: c.limit}, kinds...)
		if got[1].Candidate == flash || got[1].Reason != c.want {
			t.Errorf("%d bytes: %s because %q, want %q", c.limit, got[1].Candidate, got[1].Reason, c.want)
		}
	}
	// Who prefers memory has it at any batch.
	least := choose(t, twoCores, plan.CacheOptions{Prefer: plan.PreferMemory, MaxBytes: 1 << 30}, kinds...)
	if least[0].Candidate != keysOnly || least[1].Candidate != hidden || least[1].Options[1].Batch != 64 {
		t.Errorf("%s and %s, %+v", least[0].Candidate, least[1].Candidate, least[1].Options)
	}
}

// The saved memory of the table: 8 GiB, 1,024 tokens, beam 4, 64 new ones.
func TestBatchesWithinMemory(t *testing.T) {
	self := bartLarge
	self.Type = "self"
	kinds := []plan.Kind{
		{Layers: self, Candidates: []plan.Candidate{flash, keysOnly},
			Range: plan.Range{Keys: one(1), Own: one(64), Beams: one(4), Batch: one(1)}},
		{Layers: bartLarge, Candidates: crossAll, Range: plan.Range{Keys: one(1024), Beams: one(4), Batch: one(1)}},
	}
	got := choose(t, twoCores, plan.CacheOptions{MaxBytes: 8 << 30}, kinds...)
	const kv, k = 272 * 24 * 4096, 272 * 12 * 4096
	for i, want := range []int64{(8 << 30) / (kv + 96<<20), (8 << 30) / (kv + 4<<20), (8 << 30) / (kv + 48<<20),
		(8 << 30) / (kv + 4<<20)} {
		must.Equal(t, got[1].Options[i].Batch, want, got[1].Options[i].Name)
	}
	if a, b := got[1].Options[0].Batch, got[1].Options[1].Batch; float64(b) < 3.8*float64(a) {
		t.Errorf("%d requests with the encoder's output, %d with keys and values: want 3.8x", b, a)
	}
	if a, b := int64(8<<30)/(kv+96<<20), int64(8<<30)/(k+4<<20); float64(b) < 5*float64(a) {
		t.Errorf("%d requests with keys alone too, %d without: want 5x", b, a)
	}
}

func TestCrossover(t *testing.T) {
	p := plan.NewPredictor(twoCores, nil, plan.Implementations{}, nil)
	x := plan.NewCrossover(p, tinyCross, flash, hidden)
	s := plan.Shape{Beams: 1, Batch: 16, Steps: 0}
	for _, c := range []struct {
		keys int64
		want int
	}{{16, 0}, {1499, 1}, {1500, 1}} {
		if s.Keys = c.keys; x.Pick(s) != c.want {
			t.Errorf("%d positions: picked %d, want %d", c.keys, x.Pick(s), c.want)
		}
	}
	must.Equal(t, plan.NewCrossover(p, bartLarge, flash, hidden).Pick(plan.Shape{Keys: 1024, Beams: 8, Batch: 4}), 0)
	s = plan.Shape{Keys: 1024, Beams: 4, Batch: 4}
	must.Equal(t, testing.AllocsPerRun(100, func() { x.Pick(s) }), 0)
	// A range on both sides is decided for each request.
	k := plan.Kind{Layers: tinyCross, Candidates: crossAll, Either: true,
		Range: plan.Range{Keys: one(1500), Beams: [2]int64{1, 8}, Batch: [2]int64{1, 16}}}
	got := choose(t, twoCores, plan.CacheOptions{}, k)[0]
	if got.Either == nil || got.Candidate != flash ||
		!strings.HasPrefix(got.Reason, "each request's shape decides: prompt_hidden_states at ") {
		t.Errorf("chose %s because %q", got.Candidate, got.Reason)
	}
	k.Either = false
	if got := choose(t, twoCores, plan.CacheOptions{}, k)[0]; got.Either != nil {
		t.Errorf("a host that cannot decide a request is asked to: %q", got.Reason)
	}
}

// What is computed before the first step counts where outputs are short.
func TestCrossPhaseCounts(t *testing.T) {
	k := plan.Kind{Layers: bartLarge, Candidates: []plan.Candidate{flash, hidden},
		Range: plan.Range{Keys: one(1024), Beams: one(1), Batch: one(4), Steps: 1}}
	if got := choose(t, twoCores, plan.CacheOptions{}, k)[0]; got.Candidate != hidden {
		t.Errorf("for one token chose %s because %q", got.Candidate, got.Reason)
	}
	k.Range.Beams, k.Range.Steps = one(8), 500
	if got := choose(t, twoCores, plan.CacheOptions{}, k)[0]; got.Candidate != flash {
		t.Errorf("for 500 tokens of 8 beams chose %s because %q", got.Candidate, got.Reason)
	}
}

// table is measurements of everything, a factor off.
type table map[plan.Strategy]float64

func (m table) Seconds(_ plan.Layers, c plan.Candidate, _ plan.Shape) (float64, bool) {
	x, ok := m[c.Strategy]
	return x, ok
}

func (m table) Projection(plan.Layers, plan.Shape) (float64, bool) { return 0, false }

// projected is a table with the time of projections.
type projected struct {
	table
	projection float64
}

func (m projected) Projection(plan.Layers, plan.Shape) (float64, bool) { return m.projection, true }

// Linear layers that make keys and values are those of the table, too, not of a roofline
// that was measured at another time.
func TestMeasuredProjectionsCount(t *testing.T) {
	self := bartLarge
	self.Type = "self"
	all := table{plan.KeysValues: 1, plan.Keys: 1, plan.HiddenStates: 1, plan.PromptHiddenStates: 1,
		plan.FirstLayerKeys: 1}
	s := plan.Shape{Keys: 1024, Beams: 1, Batch: 1}
	for _, c := range []struct {
		layers           plan.Layers
		candidate        plan.Candidate
		seconds, prefill float64
	}{
		{self, flash, 1.5, 0}, {self, keysOnly, 1.25, 0}, {self, inputs, 1, 0}, {self, hidden, 1.5, 0},
		{bartLarge, flash, 1, 0.5}, {bartLarge, keysOnly, 1, 0.25}, {bartLarge, hidden, 1, 0},
		{bartLarge, hybrid, 1, 0.25 / 12},
	} {
		got := plan.NewPredictor(plan.Machine{Bandwidth: 1, FLOPS: 1}, nil, plan.Implementations{},
			projected{all, 0.5}).Predict(c.layers, c.candidate, s)
		if math.Abs(got.Seconds-c.seconds) > 1e-9 || math.Abs(got.Prefill-c.prefill) > 1e-9 || !got.Measured {
			t.Errorf("%s attention, %s: %+v, want %g and before it %g", c.layers.Type, c.candidate, got, c.seconds, c.prefill)
		}
	}
}

// Measured times count where there are any, with a smaller margin when both are.
func TestMeasurementsCount(t *testing.T) {
	r := plan.Range{Keys: one(1024), Beams: one(4), Batch: one(4)}
	k := plan.Kind{Layers: bartLarge, Candidates: []plan.Candidate{flash, hidden}, Range: r}
	for _, c := range []struct {
		measured table
		want     plan.Candidate
	}{
		{table{plan.KeysValues: 1, plan.PromptHiddenStates: 0.9}, hidden},
		{table{plan.KeysValues: 1, plan.PromptHiddenStates: 0.97}, flash},
		{table{plan.PromptHiddenStates: 1e-9}, hidden},
		{table{plan.KeysValues: 1e-9}, flash},
	} {
		got, err := plan.ChooseCaches(plan.NewPredictor(twoCores, nil, plan.Implementations{}, c.measured), []plan.Kind{k},
			plan.CacheOptions{})
		if err != nil || got[0].Candidate != c.want {
			t.Errorf("%v: chose %s, %v; want %s", c.measured, got[0].Candidate, err, c.want)
		}
	}
	p := plan.NewPredictor(twoCores, nil, plan.Implementations{}, table{plan.PromptHiddenStates: 0.25})
	x := p.Predict(bartLarge, hidden, r.Largest())
	if !x.Measured || x.Seconds != 0.25 || x.Model == x.Seconds || p.Operators(bartLarge, hidden, r.Largest()) != x.Model {
		t.Errorf("measured: %+v", x)
	}
}

func TestRangeShapes(t *testing.T) {
	r := plan.Range{Keys: [2]int64{16, 1024}, Own: one(0), Beams: [2]int64{1, 8}, Batch: one(3), Steps: 9}
	list := r.Shapes()
	if len(list) != 16 || list[0] != (plan.Shape{Keys: 16, Beams: 1, Batch: 3, Steps: 9}) ||
		list[15] != (plan.Shape{Keys: 1024, Beams: 8, Batch: 3, Steps: 9}) {
		t.Errorf("%d shapes: %v", len(list), list)
	}
	if list[4].Keys != 64 || list[8].Keys != 256 {
		t.Errorf("between 16 and 1,024 stand %d and %d", list[4].Keys, list[8].Keys)
	}
	if r.Largest() != list[15] {
		t.Errorf("the largest is %v", r.Largest())
	}
}

// What was decided already stays, and the others are chosen beside it.
func TestNamedKinds(t *testing.T) {
	r := plan.Range{Keys: one(1024), Own: one(64), Beams: one(4), Batch: one(16)}
	self := bartLarge
	self.Type = "self"
	own := plan.Kind{Layers: self, Candidates: []plan.Candidate{flash, hidden, keysOnly, inputs},
		Range: plan.Range{Keys: one(1), Own: one(64), Beams: one(4), Batch: one(16)}}
	cross := plan.Kind{Layers: bartLarge, Candidates: crossAll, Range: r}
	limit := 16 * (keysOnly.Bytes(self, own.Range.Largest()) + flash.Bytes(bartLarge, r.Largest()))
	for _, c := range []struct {
		named plan.Strategy
		want  plan.Candidate // of cross attention
		batch int64
	}{
		{plan.Keys, flash, 16},
		{plan.KeysValues, flash, 14},
	} {
		own.Named = c.named
		got := choose(t, twoCores, plan.CacheOptions{MaxBytes: limit}, own, cross)
		if got[0].Candidate.Strategy != c.named || !strings.HasPrefix(got[0].Reason, "as named") ||
			got[1].Candidate != c.want {
			t.Errorf("%s is named: chose %s because %q and %s because %q, want %s", c.named, got[0].Candidate, got[0].Reason,
				got[1].Candidate, got[1].Reason, c.want)
		}
		for _, o := range got[1].Options {
			if o.Candidate == c.want && o.Batch != c.batch {
				t.Errorf("%s is named: %d requests fit with %s, want %d", c.named, o.Batch, o.Name, c.batch)
			}
		}
	}
	own.Named = plan.FirstLayerKeys
	if _, err := plan.ChooseCaches(plan.NewPredictor(twoCores, nil, plan.Implementations{}, nil), []plan.Kind{own},
		plan.CacheOptions{}); err == nil || !strings.HasPrefix(err.Error(), "first_layer_keys is no candidate of the ") {
		t.Errorf("found %v", err)
	}
}

// Without a bound, options are told how many requests fit into what there is.
func TestRequestsWithin(t *testing.T) {
	cross := plan.Kind{Layers: bartLarge, Candidates: crossAll,
		Range: plan.Range{Keys: one(1024), Beams: one(4), Batch: one(16)}}
	for _, o := range choose(t, twoCores, plan.CacheOptions{Within: 1 << 30}, cross)[0].Options {
		must.Equal(t, o.Batch, int64(1<<30)/o.Largest.Bytes, o.Name)
	}
}
