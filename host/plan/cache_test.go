package plan_test

import (
	"math"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/must"
)

// Layers of published models.
var (
	bartLarge = plan.Layers{Type: "cross", Layers: 12, Heads: 16, KVHeads: 16, HeadSize: 64, ValueSize: 64, Width: 1024,
		Positions: "learned"}
	t5XXL = plan.Layers{Type: "self", Layers: 24, Heads: 128, KVHeads: 128, HeadSize: 128, ValueSize: 128, Width: 1024,
		Positions: "relative"}
	tinyCross = whisper("cross", 4, 384)
	llama     = plan.Layers{Type: "self", Layers: 22, Heads: 32, KVHeads: 4, HeadSize: 64, ValueSize: 64, Width: 2048,
		Positions: "rotary"}
	codeLlama = plan.Layers{Type: "self", Layers: 32, Heads: 32, KVHeads: 32, HeadSize: 128, ValueSize: 128, Width: 4096,
		Positions: "rotary"}
)

func whisper(kind string, layers, width int64) plan.Layers {
	return plan.Layers{Type: kind, Layers: layers, Heads: width / 64, KVHeads: width / 64, HeadSize: 64, ValueSize: 64,
		Width: width, Positions: "learned"}
}

var (
	exported = plan.Candidate{Strategy: plan.Exported}
	flash    = plan.Candidate{Strategy: plan.KeysValues}
	hidden   = plan.Candidate{Strategy: plan.PromptHiddenStates}
	keysOnly = plan.Candidate{Strategy: plan.Keys}
	inputs   = plan.Candidate{Strategy: plan.HiddenStates}
	hybrid   = plan.Candidate{Strategy: plan.FirstLayerKeys}
)

// machine is one on which figures are easily counted by hand.
var machine = plan.Machine{Bandwidth: 1e9, FLOPS: 1e12}

// EL-attention, table 4: bytes stored for the input of a batch of 32 by BART-large,
// in 4 bytes an element where the paper has 2.
func TestBytesOfELAttention(t *testing.T) {
	for _, c := range []struct {
		keys   int64
		hidden int64
	}{{256, 256 * 1024 * 4}, {1024, 1024 * 1024 * 4}} {
		s := plan.Shape{Keys: c.keys, Own: 64, Beams: 4, Batch: 32}
		must.Equal(t, hidden.Bytes(bartLarge, s), c.hidden, c.keys)
		must.Equal(t, flash.Bytes(bartLarge, s), 24*c.hidden, c.keys)
		must.Equal(t, exported.Bytes(bartLarge, s), 96*c.hidden, c.keys)
	}
}

// Slim attention, the table of Whisper models in section 7: caches of cross and self
// attention together, by how often they are smaller than keys and values.
func TestBytesOfWhisper(t *testing.T) {
	for _, c := range []struct {
		name           string
		layers, width  int64
		counted, quiet float64 // option 2 with and without the encoder's output
	}{
		{"tiny", 4, 384, 4.7, 8.7}, {"base", 6, 512, 5.6, 8.7}, {"small", 12, 768, 6.8, 8.7},
		{"medium", 24, 1024, 7.7, 8.7}, {"large", 32, 1280, 7.9, 8.7},
	} {
		cross, self := whisper("cross", c.layers, c.width), whisper("self", c.layers, c.width)
		encoded, generated := plan.Shape{Keys: 1500, Beams: 1, Batch: 1}, plan.Shape{Own: 448, Beams: 1, Batch: 1}
		base := flash.Bytes(cross, encoded) + flash.Bytes(self, generated)
		must.Equal(t, base, 2*c.width*c.layers*(1504+448)*4, c.name)
		if got := keysOnly.Bytes(cross, encoded) + keysOnly.Bytes(self, generated); 2*got != base {
			t.Errorf("%s: option 1 takes %d bytes, want half of %d", c.name, got, base)
		}
		generated2, encoded2 := keysOnly.Bytes(self, generated), hidden.Bytes(cross, encoded)
		for what, x := range map[string]struct {
			got  int64
			want float64
		}{"without the encoder's output": {generated2, c.quiet}, "with it": {generated2 + encoded2, c.counted}} {
			if r := float64(base) / float64(x.got); math.Abs(r-x.want) > 0.06 {
				t.Errorf("%s: option 2 %s is %.2fx smaller, want %.1fx", c.name, what, r, x.want)
			}
		}
	}
}

// Slim attention, section 6: inputs where keys are wider than they.
func TestBytesOfInputs(t *testing.T) {
	s := plan.Shape{Keys: 512, Own: 0, Beams: 1, Batch: 1}
	if a, b := flash.Bytes(t5XXL, s), inputs.Bytes(t5XXL, s); a != 32*b {
		t.Errorf("keys and values take %d bytes, inputs %d: want 32x", a, b)
	}
	if a, b := flash.Bytes(t5XXL, s), keysOnly.Bytes(t5XXL, s); a != 2*b {
		t.Errorf("keys and values take %d bytes, keys %d: want 2x", a, b)
	}
}

func TestBytesOfRest(t *testing.T) {
	self := whisper("self", 2, 64) // a position takes 1,024 bytes of keys and values
	for _, c := range []struct {
		what      string
		candidate plan.Candidate
		layers    plan.Layers
		shape     plan.Shape
		want      int64
	}{
		{"whole blocks", flash, self, plan.Shape{Keys: 17, Beams: 1}, 32 * 1024},
		{"prompt once, what follows once a beam", flash, self, plan.Shape{Keys: 16, Own: 8, Beams: 4}, 48 * 1024},
		{"two pools", hidden, self, plan.Shape{Keys: 17, Own: 5, Beams: 4}, 32*512 + 32*1024},
		{"no prompt to speak of", hidden, self, plan.Shape{Keys: 0, Own: 16, Beams: 1}, 16 * 1024},
		{"inputs of all", inputs, self, plan.Shape{Keys: 17, Own: 5, Beams: 4}, 48 * 512},
		{"keys of the first layer", hybrid, whisper("cross", 4, 64), plan.Shape{Keys: 32, Beams: 4}, 32 * 256},
		{"halves", plan.Candidate{Strategy: plan.PromptHiddenStates, Storage: plan.Float16}, bartLarge,
			plan.Shape{Keys: 1024, Beams: 4}, 1024 * 2048},
		{"halves of an odd width in whole lines", plan.Candidate{Strategy: plan.HiddenStates, Storage: plan.BFloat16},
			plan.Layers{Type: "self", Layers: 1, Heads: 1, KVHeads: 1, HeadSize: 3, ValueSize: 3, Width: 3},
			plan.Shape{Keys: 16, Beams: 1}, 16 * 8},
		{"halves of keys and values", plan.Candidate{Strategy: plan.KeysValues, Storage: plan.Float16}, self,
			plan.Shape{Keys: 16, Beams: 1}, 16 * 512},
		{"two pools of halves", plan.Candidate{Strategy: plan.PromptHiddenStates, Storage: plan.BFloat16}, self,
			plan.Shape{Keys: 17, Own: 5, Beams: 4}, 32*256 + 32*512},
		{"keys and values of int8, and a scale of each head", plan.Candidate{Strategy: plan.KeysValues, Storage: plan.Int8},
			plan.Layers{Type: "self", Layers: 3, Heads: 8, KVHeads: 2, HeadSize: 64, ValueSize: 64, Width: 512},
			plan.Shape{Keys: 16, Beams: 1}, 16 * 3 * 2 * (64 + 64 + 8)},
		{"hidden states of int8, and a scale of 64 numbers",
			plan.Candidate{Strategy: plan.PromptHiddenStates, Storage: plan.Int8}, bartLarge, plan.Shape{Keys: 1024, Beams: 4},
			1024 * (1024 + 16*4)},
		{"the model as exported has no other type", plan.Candidate{Strategy: plan.Exported, Storage: plan.Int8}, self,
			plan.Shape{Keys: 16, Beams: 1}, 16 * 1024},
	} {
		must.Equal(t, c.candidate.Bytes(c.layers, c.shape), c.want, c.what, c.candidate)
	}
	must.Equal(t, plan.BatchWithin(8<<30, 96<<20), 85)
}

// Times are those of bytes or operations, whichever take longer.
func TestPredictions(t *testing.T) {
	free := manifest.Cost{Bandwidth: 1, FLOPS: 1}
	d, e := 1024.0, 1024.0
	for _, c := range []struct {
		what      string
		machine   plan.Machine
		candidate plan.Candidate
		layers    plan.Layers
		shape     plan.Shape
		seconds   float64
		prefill   float64
	}{
		{"reading keys and values, once for all beams", machine, flash, bartLarge, plan.Shape{Keys: 1024, Beams: 4, Batch: 2},
			12 * 2 * 1024 * 4 * 2 * e / 1e9, 12 * 4 * d * 2 * e / 1e9},
		{"reading the encoder's output, and both weights", machine, hidden, bartLarge,
			plan.Shape{Keys: 1024, Beams: 1, Batch: 2},
			12 * (2*1024*4*d + 4*d*2*e) / 1e9, 0},
		{"computing on the encoder's output", plan.Machine{Bandwidth: 1e15, FLOPS: 1e9}, hidden, bartLarge,
			plan.Shape{Keys: 1024, Beams: 4, Batch: 2},
			12 * (8*1024*16*4*d/1e9 + 8*16*2*d*128/0.93e9), 0},
		{"reading the keys, and their weight", machine, keysOnly, bartLarge, plan.Shape{Keys: 1024, Beams: 1, Batch: 2},
			12 * (2*1024*4*e + 4*e*e) / 1e9, 12 * 4 * d * e / 1e9},
		{"hybrid: the first layer reads one weight", machine, hybrid, bartLarge, plan.Shape{Keys: 1024, Beams: 1, Batch: 2},
			12*(2*1024*4*e+4*e*2*e)/1e9 - 4*e*e/1e9, 4 * d * e / 1e9},
		{"self attention makes keys and values", machine, flash, t5XXL, plan.Shape{Keys: 512, Own: 10, Beams: 4, Batch: 1},
			24 * (552*4*2*16384 + 4*1024*2*16384) / 1e9, 0},
		{"self attention over inputs makes none", machine, inputs, t5XXL, plan.Shape{Keys: 512, Own: 0, Beams: 1, Batch: 1},
			24 * (512*4*1024 + 4*1024*2*16384) / 1e9, 0},
		{"self attention over keys makes no values", machine, keysOnly, t5XXL,
			plan.Shape{Keys: 512, Own: 0, Beams: 1, Batch: 1},
			24 * (512*4*16384 + 4*1024*16384 + 4*16384*16384) / 1e9, 0},
		{"what all layers read may stay in cache",
			plan.Machine{Bandwidth: 1e9, FLOPS: 1e15, LastCacheBandwidth: 4e9, LastCacheBytes: 20e6}, hidden, tinyCross,
			plan.Shape{Keys: 1500, Beams: 1, Batch: 1}, (1+3.0/4)*1500*4*384/1e9 + 4*4*384*2*384/1e9, 0},
	} {
		p := plan.NewPredictor(c.machine, costing(t, free), plan.Implementations{}, nil)
		got := p.Predict(c.layers, c.candidate, c.shape)
		if math.Abs(got.Seconds/c.seconds-1) > 1e-9 || got.Measured {
			t.Errorf("%s: a step takes %g s, want %g", c.what, got.Seconds, c.seconds)
		}
		if math.Abs(got.Prefill-c.prefill) > 1e-9*c.prefill {
			t.Errorf("%s: before it %g s, want %g", c.what, got.Prefill, c.prefill)
		}
		must.Equal(t, got.Bytes, c.candidate.Bytes(c.layers, c.shape), c.what)
	}
	s := plan.Shape{Batch: 3, Steps: 10}
	must.Equal(t, (plan.Prediction{Seconds: 2, Prefill: 5}).PerStep(s), 3.5)
}

// What plugins say of their operators counts.
func TestCostsOfPlugins(t *testing.T) {
	s := plan.Shape{Keys: 1024, Beams: 1, Batch: 1}
	full := plan.NewPredictor(machine, costing(t, manifest.Cost{Bandwidth: 1, FLOPS: 1}), plan.Implementations{},
		nil).Predict(bartLarge, flash, s)
	half := plan.NewPredictor(machine, costing(t, manifest.Cost{Bandwidth: 0.5, FLOPS: 1, OverheadUS: 7}),
		plan.Implementations{}, nil).Predict(bartLarge, flash, s)
	if want := 2*full.Seconds + 12*7e-6; math.Abs(half.Seconds/want-1) > 1e-9 {
		t.Errorf("at half the bandwidth a step takes %g s, want %g", half.Seconds, want)
	}
	usual := plan.NewPredictor(machine, nil, plan.Implementations{}, nil).Predict(bartLarge, flash, s)
	if usual.Seconds <= full.Seconds || usual.Seconds >= half.Seconds {
		t.Errorf("without a figure of the plugin's a step takes %g s, want between %g and %g", usual.Seconds, full.Seconds,
			half.Seconds)
	}
}

// costing are manifests whose operators all cost the same.
func costing(t *testing.T, c manifest.Cost) []*manifest.Manifest {
	t.Helper()
	var list []*manifest.Manifest
	for name, strategies := range map[string][]string{
		"pairs": {"keys_values"}, "rows": {"prompt_hidden_states"}, "keys": {"keys", "hidden_states"},
	} {
		m := &manifest.Manifest{Name: name}
		for _, strategy := range strategies {
			m.Operators = append(m.Operators,
				manifest.Operator{Name: strategy, Cost: c, KVCache: &manifest.KVCache{Strategy: strategy, Inputs: strategy}})
		}
		list = append(list, m)
	}
	return list
}

func TestLacks(t *testing.T) {
	narrow := bartLarge
	narrow.Heads, narrow.KVHeads = 8, 8
	wide := bartLarge
	wide.Width = 20000
	for _, c := range []struct {
		candidate plan.Candidate
		layers    plan.Layers
		want      string
	}{
		{flash, llama, ""}, {exported, llama, ""},
		{hidden, llama, "rotary positions lie between"}, {inputs, codeLlama, "rotary positions lie between"},
		{keysOnly, codeLlama, ""}, {keysOnly, llama, "32 query heads share 4 heads of keys"},
		{hidden, bartLarge, ""}, {inputs, bartLarge, "that is prompt_hidden_states"}, {hidden, wide, "20000 wide"},
		{keysOnly, narrow, "512 wide and made from 1024"}, {hybrid, narrow, "512 wide and made from 1024"},
		{hybrid, t5XXL, "inputs of their own"}, {hybrid, bartLarge, ""}, {keysOnly, t5XXL, ""}, {inputs, t5XXL, ""},
	} {
		got := c.candidate.Lacks(c.layers)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s for %s: %q, want %q", c.candidate, c.layers, got, c.want)
		}
	}
}

func TestNamesOfCaches(t *testing.T) {
	for _, c := range []plan.Candidate{exported, flash, hidden, keysOnly, inputs, hybrid} {
		if c.String() != string(c.Strategy) || c.Inputs() != c.Strategy {
			t.Errorf("%s with the inputs of %s", c, c.Inputs())
		}
	}
	must.Equal(t, (plan.Candidate{Strategy: plan.KeysValues, Storage: plan.Int8}).String(), "keys_values in int8")
	must.Equal(t, (plan.Candidate{Strategy: plan.Keys, Storage: plan.Float16}).String(), "keys in float16")
	must.Fail(t, must.Error(plan.ParsePrefer("size")), "needed is speed or memory")
}
