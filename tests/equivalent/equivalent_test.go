package equivalent

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

var (
	variants = flag.Int("variants", 0, "variants of each graph whose facts are compared (default: 200, of families 40)")
	only     = flag.Uint64("seed", 0, "compare only the variant of this seed")
)

// fixtures are the small graphs of all exporters.
func fixtures(t *testing.T, f func(t *testing.T, o *Original, m *model.Model)) {
	for _, fixture := range models.Fixtures() {
		if fixture.Exporter == "full" {
			continue
		}
		t.Run(fixture.String(), func(t *testing.T) {
			t.Parallel()
			b := must.Value(fixture.Bytes(1))(t)
			m := must.Value(model.Parse(b, ""))(t)
			defer m.Close()
			o := must.Value(Read(m.Proto(), m))(t)
			f(t, o, m)
		})
	}
}

// facts are the blocks' facts in an order and with names that do not depend on
// the variant.
func facts(t *testing.T, p *onnx.Model, m *model.Model, names map[string]string) (list []string) {
	t.Helper()
	g := must.Value(graph.New(p, m))(t)
	r := blocks.Find(g, graph.Infer(g))
	for _, u := range r.Unrecognised {
		list = append(list, "unrecognised "+u.Op) // reasons name nodes
	}
	for _, b := range r.Blocks {
		a := *b.Attention
		a.Scale, _ = strconv.ParseFloat(strconv.FormatFloat(a.Scale, 'g', 5, 64), 64)
		if a.Projections != nil {
			p := *a.Projections
			p.Query, p.Key, p.Value, p.Output = original(p.Query, names), original(p.Key, names), original(p.Value, names),
				original(p.Output, names)
			a.Projections = &p
		}
		j := must.Value(json.Marshal(a))(t)
		w := b.Wiring
		known := fmt.Sprintf(" input %t, before its positions %t, kept %t", w.Input != nil, w.RawKey != nil,
			w.LeavingKey != nil && w.LeavingValue != nil)
		list = append(list, b.Obstacle+string(j)+known)
	}
	slices.Sort(list)
	return list
}

// original names a projection's constants as the exporter did.
func original(l *blocks.Linear, names map[string]string) *blocks.Linear {
	if l == nil {
		return nil
	}
	to := *l
	for _, name := range []*string{&to.Weight, &to.Bias} {
		for names[*name] != "" && names[*name] != *name {
			*name = names[*name]
		}
	}
	return &to
}

func TestFactsStay(t *testing.T) {
	applied := make(chan map[string]int, len(models.Fixtures()))
	t.Run("fixtures", func(t *testing.T) {
		fixtures(t, func(t *testing.T, o *Original, m *model.Model) {
			want := facts(t, m.Proto(), m, nil)
			if len(want) == 0 {
				t.Fatal("no attention was found in the graph as exported")
			}
			steps := map[string]int{}
			defer func() { applied <- steps }()
			name := strings.TrimPrefix(t.Name(), "TestFactsStay/fixtures/")
			count := uint64(*variants)
			if count == 0 && strings.HasPrefix(name, "families/") {
				count = 40
			} else if count == 0 {
				count = 200
			}
			if testing.Short() {
				count = min(count, 20)
			}
			for seed := uint64(1); seed <= count; seed++ {
				if *only != 0 {
					seed = *only
				}
				d := must.Value(o.Vary(seed))(t, "seed", seed)
				for name, n := range d.Steps {
					steps[name] += n
				}
				if got := facts(t, d.Model, m, d.Names); !slices.Equal(got, want) {
					t.Fatalf("the variant of seed %d has other facts (go test ./tests/equivalent -run '%s' -seed %d)\n%s", seed,
						t.Name(), seed, difference(got, want))
				}
				if *only != 0 {
					break
				}
			}
		})
	})
	close(applied)
	total := map[string]int{}
	for steps := range applied {
		for name, n := range steps {
			total[name] += n
		}
	}
	t.Log(total)
	for _, r := range rules {
		if *only == 0 && !t.Failed() && total[r.name] == 0 {
			t.Errorf("no graph was varied by the rule %q", r.name)
		}
	}
}

// difference shows the facts that one side has and the other has not.
func difference(got, want []string) string {
	var b strings.Builder
	for _, side := range []struct {
		name     string
		of, from []string
	}{{"got ", got, want}, {"want", want, got}} {
		for _, fact := range side.of {
			if !slices.Contains(side.from, fact) {
				fmt.Fprintf(&b, "%s %s\n", side.name, fact)
			}
		}
	}
	return b.String()
}

// lengths are those of a run: one token after a past in most, several without.
var lengths = map[string]int64{
	"batch_size": 2, "sequence_length": 1, "past_sequence_length": 16, "past_decoder_sequence_length": 21,
	"encoder_sequence_length": 29, "past_encoder_sequence_length": 29, "decoder_sequence_length": 1, "kv_cache_dim": 16,
	"num_channels": 3, "height": 32, "width": 32, "text_batch_size": 2, "image_batch_size": 2, "samples": 400,
}

func TestAnswersStay(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	answered := 5 // variants of each graph that are run
	if testing.Short() {
		answered = 1
	}
	fixtures(t, func(t *testing.T, o *Original, m *model.Model) {
		for seed, runs := uint64(1), 0; runs < answered; seed++ {
			if seed > uint64(4*answered) {
				t.Fatalf("ONNX Runtime itself ran only %d of %d variants", runs, seed)
			}
			if *only != 0 {
				seed = *only
			}
			d := must.Value(o.Vary(seed))(t)
			path := filepath.Join(t.TempDir(), "variant.onnx")
			must.Succeed(t, m.Write(context.Background(), d.Model, path, model.WriteOptions{}))
			// Rare variants are sound and yet more than ONNX Runtime's own
			// optimizer or shape inference can take.
			s, err := session.Open(l, path, session.Options{Unpatched: true})
			if err != nil {
				t.Logf("seed %d has no reference: %v", seed, err)
				continue
			}
			s.Close()
			runs++
			options := comparison.Options{A: "none", B: "auto", Force: true,
				Inputs: inputs.Options{Seed: seed, Dims: lengths, LooseDims: true}}
			r := must.Value(comparison.Answers(context.Background(), l, set, path, options))(t, "seed", seed)
			for _, out := range r.Parity.Outputs {
				if !out.OK {
					t.Errorf("seed %d: %s: %s, %d of %v differ, max %g absolute, %g relative", seed, out.Name, out.Problem,
						out.Disagree, out.Shape, out.MaxAbsolute, out.MaxRelative)
				}
			}
			if *only != 0 {
				break
			}
		}
	})
}

// TestVariantsDiffer tests the rules themselves: variants of two
// seeds are not alike, and those of one are.
func TestVariantsDiffer(t *testing.T) {
	f := must.Value(models.Lookup("optimum", "gpt2"))(t)
	b := must.Value(f.Bytes(1))(t)
	m := must.Value(model.Parse(b, ""))(t)
	o := must.Value(Read(m.Proto(), m))(t)
	sizes := map[int]bool{}
	for seed := range uint64(20) {
		var ops [2]string
		for i := range ops {
			d := must.Value(o.Vary(seed))(t)
			for _, n := range d.Model.Graph.Node {
				ops[i] += n.GetOpType() + n.GetName() + " "
			}
			sizes[len(d.Model.Graph.Node)] = true
		}
		must.Equal(t, ops[0], ops[1], seed)
	}
	if len(sizes) < 10 {
		t.Errorf("20 seeds drew graphs of only %d sizes", len(sizes))
	}
}
