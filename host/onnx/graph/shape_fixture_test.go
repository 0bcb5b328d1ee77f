package graph_test

import (
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// ran is what ONNX Runtime made of a fixture, as testdata/shapes.py writes it.
type ran struct {
	Fixture string             `json:"fixture"`
	Branch  string             `json:"branch"`
	Inputs  map[string][]int64 `json:"inputs"`
	Values  map[string]struct {
		Type  int32    `json:"type"`
		Dims  []int64  `json:"dims"`
		Ints  []int64  `json:"ints"`
		Float *float64 `json:"float"`
	} `json:"values"`
}

func runs(t *testing.T) []ran {
	t.Helper()
	f := must.Value(os.Open("testdata/shapes.json.gz"))(t)
	defer f.Close()
	z := must.Value(gzip.NewReader(f))(t)
	var file struct{ Runs []ran }
	must.Succeed(t, json.NewDecoder(z).Decode(&file))
	return file.Runs
}

// inModel reads constants that stand in the model itself: the weights of
// fixtures are left out.
type inModel struct{ graph.Tensors }

func (inModel) Data(t *onnx.Tensor) ([]byte, error) {
	if len(t.Int64Data) > 0 {
		return graph.Int64Tensor("", nil, t.Int64Data...).RawData, nil
	}
	if len(t.FloatData) > 0 {
		return graph.FloatTensor("", nil, t.FloatData...).RawData, nil
	}
	if n, err := graph.Elements(t); t.RawData == nil && (err != nil || n > 0) {
		return nil, os.ErrNotExist
	}
	return t.RawData, nil
}

func fixtureGraph(t *testing.T, f models.Fixture) *graph.Graph {
	t.Helper()
	b := must.Value(f.Graph())(t)
	m := &onnx.Model{}
	must.Succeed(t, proto.Unmarshal(b, m))
	g := must.Value(graph.New(m, inModel{}))(t)
	return g
}

// TestInferAgreesWithRuns compares what is inferred of every value of every
// fixture, evaluated at the lengths of a run, with what the run produced.
func TestInferAgreesWithRuns(t *testing.T) {
	type loaded struct {
		g *graph.Graph
		s *graph.Shapes
	}
	graphs := map[string]loaded{}
	for _, f := range models.Fixtures() {
		if f.Exporter == "full" {
			continue
		}
		g := fixtureGraph(t, f)
		graphs[f.String()] = loaded{g, graph.Infer(g)}
	}
	covered := map[string]bool{}
	var values, ints, floats int
	for _, run := range runs(t) {
		l, ok := graphs[run.Fixture]
		if !ok {
			t.Errorf("%s is no fixture: make testdata/shapes.json.gz anew", run.Fixture)
			continue
		}
		covered[run.Fixture] = true
		at := map[string]int64{}
		for name, dims := range run.Inputs {
			for i, d := range l.s.Of(l.g.Lookup(name)).Dims {
				if s := d.Symbols(); len(s) == 1 && d.Equal(graph.DimSym(s[0])) {
					at[s[0]] = dims[i]
				}
			}
		}
		scope := l.g
		l.g.Walk(func(n *graph.Node) {
			for _, a := range n.Proto.Attribute {
				for _, s := range n.Subgraphs {
					if run.Branch != "" && a.GetName() == run.Branch && s.Proto == a.G {
						scope = s
					}
				}
			}
		})
		// A length that inference gave a name of its own is one length wherever that name stands.
		for name, want := range run.Values {
			if v := scope.Lookup(name); v != nil && l.s.Of(v).Rank == len(want.Dims) {
				for i, d := range l.s.Of(v).Dims {
					if s := d.Symbols(); len(s) == 1 && d.Equal(graph.DimSym(s[0])) && l.s.Invented(s[0]) {
						at[s[0]] = want.Dims[i]
					}
				}
			}
		}
		for name, want := range run.Values {
			v := scope.Lookup(name)
			if v == nil {
				t.Errorf("%s: no value %q", run.Fixture, name)
				continue
			}
			f := l.s.Of(v)
			values++
			if int32(f.DType) != want.Type {
				t.Errorf("%s: %s has type %s, inferred %s", run.Fixture, name, onnx.Tensor_DataType(want.Type), f.DType)
			}
			if f.Rank != len(want.Dims) {
				t.Errorf("%s: %s has the shape %v, inferred rank %d", run.Fixture, name, want.Dims, f.Rank)
				continue
			}
			for i, d := range f.Dims {
				if slices.ContainsFunc(d.Symbols(), l.s.Invented) && strings.HasPrefix(run.Fixture, "genai/") &&
					strings.HasPrefix(name, "present.") {
					continue // the larger of two lengths
				}
				n, ok := d.Eval(at)
				if !ok && strings.HasPrefix(run.Fixture, "families/") {
					continue // a factor of lengths that stands nowhere alone
				}
				if !ok || n != want.Dims[i] {
					t.Errorf("%s: %s has the shape %v, inferred %v (at %v)", run.Fixture, name, want.Dims, f.Dims, at)
					break
				}
			}
			for i, d := range f.Elems {
				n, ok := d.Eval(at)
				if !ok || i >= len(want.Ints) {
					continue
				}
				if ints++; n != want.Ints[i] {
					t.Errorf("%s: %s holds %v, inferred %v (at %v)", run.Fixture, name, want.Ints, f.Elems, at)
					break
				}
			}
			if x, ok := f.Scalar(); ok && want.Float != nil {
				if floats++; math.Abs(x-*want.Float) > 1e-6*math.Abs(x) {
					t.Errorf("%s: %s is %v, inferred %v", run.Fixture, name, *want.Float, x)
				}
			}
		}
	}
	for name := range graphs {
		if !covered[name] {
			t.Errorf("%s was not run: make testdata/shapes.json.gz anew", name)
		}
	}
	t.Logf("%d values, %d elements, %d scalars agree", values, ints, floats)
	if values < 30000 || ints < 20000 || floats < 1000 {
		t.Errorf("too little was compared: %d values, %d elements, %d scalars", values, ints, floats)
	}
}

// rounded are families with lengths that are quotients of the inputs' lengths, rounded, or that an If decides:
// squares of images, windows, frames of sound, chunks of texts, and, of speech, durations that the model predicts; or
// numbers of tokens that an expert is chosen for, and a last position plus one.
var rounded = []string{"bamba", "beit", "clip", "deberta", "donut-swin", "falcon-h1", "hubert", "jamba", "longformer",
	"longt5-encoder", "segformer", "siglip", "swin", "swinv2",
	"vit", "vits", "wav2vec2", "wavlm", "yolos", "zamba2"}

// roundedSubjects are those of the full size.
var roundedSubjects = []string{"clip-vision", "deberta-v3-small", "vit-b16", "wav2vec2-base"}

// TestInferExpressesEveryLength sees to it that the lengths of the fixtures'
// values, those of the full size included, follow from the inputs' lengths.
func TestInferExpressesEveryLength(t *testing.T) {
	for _, f := range models.Fixtures() {
		if f.Exporter == "families" && slices.Contains(rounded, f.Name) ||
			f.Exporter == "full" && slices.Contains(roundedSubjects, strings.Split(f.Name, "/")[0]) {
			continue
		}
		g := fixtureGraph(t, f)
		s := graph.Infer(g)
		given := map[string]bool{}
		for _, v := range g.Inputs {
			for _, d := range s.Of(v).Dims {
				for _, name := range d.Symbols() {
					given[name] = true
				}
			}
		}
		unknown := 0
		g.Walk(func(n *graph.Node) {
			if n.Is("If") {
				return // its branches differ
			}
			for _, v := range n.Out {
				if v == nil || len(v.Uses) == 0 {
					continue
				}
				fact := s.Of(v)
				if fact.Rank < 0 {
					unknown++
					t.Logf("%s: nothing is known of %s (%s)", f, v.Name, n.Op())
				}
				for _, d := range fact.Dims {
					for _, name := range d.Symbols() {
						if !given[name] {
							unknown++
							t.Logf("%s: %s of %s (%s)", f, name, v.Name, n.Op())
						}
					}
				}
			}
		})
		if unknown > 0 {
			t.Errorf("%s: %d lengths do not follow from the inputs'", f, unknown)
		}
	}
}
