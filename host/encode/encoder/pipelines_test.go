package encoder

import (
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/internal/sample"
)

// piped are folders of classifiers, with what a version of transformers' pipelines makes of texts
// (models/encoders/pipelines.py).
type piped struct {
	Texts  []string
	Tagged []string
	Pairs  [][2]string
	Cases  []struct {
		Name, Graph, Task, Refused, Function, Template string
		Several                                        bool
		Aggregation                                    string
		Ignore                                         []string
		Entities                                       [][]Entity
		Candidates                                     []string
		Files                                          map[string]string
		Values                                         [][]Label
	}
	Blobs map[string]string
}

// TestPipelines: a classifier's folder gives the labels and scores of transformers' pipelines, alone and with others,
// or it is refused by name.
func TestPipelines(t *testing.T) {
	list := must.Value(filepath.Glob(encoders + "/pipelines/*.json"))(t)
	must.Equal(t, len(list), 5)
	for _, file := range list {
		var all piped
		must.Succeed(t, json.Unmarshal([]byte(read(t, file)), &all))
		for i, c := range all.Cases {
			if !sample.Has(i, 4) {
				continue
			}
			t.Run(filepath.Base(file)+"/"+c.Name, func(t *testing.T) {
				dir := unpacked(t, "pipelines/"+c.Graph, c.Files, all.Blobs)
				if c.Task == "rerank" {
					reranked(t, dir, all.Pairs, c.Values, c.Refused)
					return
				}
				m, err := OpenClassifier(t.Context(), dir, options(t, false))
				if err == nil {
					defer m.Close()
				}
				if c.Task == "tokens" && c.Refused == "" {
					must.Succeed(t, err)
					compareEntities(t, m, TokenQuestions{Aggregation: c.Aggregation, Ignore: c.Ignore}, all.Tagged, c.Entities)
					return
				}
				var p *Predictor
				if err == nil {
					p, err = m.Predictor(Questions{Function: c.Function, Candidates: c.Candidates, Hypothesis: c.Template,
						Several: c.Several})
				}
				if c.Refused != "" {
					must.Fail(t, err, c.Refused)
					return
				}
				must.Succeed(t, err)
				rows := func(i int) []Row {
					if c.Task == "pairs" {
						return must.Value(p.PairRows(t.Context(), all.Pairs[i][0], all.Pairs[i][1]))(t)
					}
					return must.Value(p.Rows(t.Context(), all.Texts[i]))(t)
				}
				for how, got := range map[string][][]Label{"with others": asked(t, p, len(c.Values), rows, true),
					"alone": asked(t, p, len(c.Values), rows, false)} {
					for i, want := range c.Values {
						if !sameLabels(got[i], want) {
							t.Errorf("%s, %d: %v\nwant %v", how, i, got[i], want)
						}
					}
				}
			})
		}
	}
}

// reranked compares the scores of pairs, in batches together and each by itself.
func reranked(t *testing.T, dir string, pairs [][2]string, want [][]Label, refused string) {
	t.Helper()
	r, err := OpenReranker(t.Context(), dir, options(t, false))
	if refused != "" {
		must.Fail(t, err, refused)
		return
	}
	must.Succeed(t, err)
	defer r.Close()
	var together, alone []float32
	var calls []*batch.Call[Row, float32]
	for _, p := range pairs {
		row := must.Value(r.Row(t.Context(), p[0], p[1]))(t)
		calls = append(calls, must.Value(r.Start(t.Context(), row, true))(t))
		alone = append(alone, must.Value(must.Value(r.Start(t.Context(), row, true))(t).Wait(t.Context()))(t))
	}
	for i, c := range calls {
		together = append(together, must.Value(c.Wait(t.Context()))(t))
		for _, got := range []float32{together[i], alone[i]} {
			if math.Abs(float64(got-want[i][0].Score)) > 1e-5 {
				t.Errorf("%d: %v together, %v alone, want %v", i, together[i], alone[i], want[i][0].Score)
			}
		}
	}
}

// compareEntities compares the entities of texts, in batches together.
func compareEntities(t *testing.T, c *Classifier, q TokenQuestions, texts []string, want [][]Entity) {
	t.Helper()
	m := must.Value(c.Tagger(q))(t)
	var calls []*batch.Call[Row, Scored]
	for _, text := range texts {
		calls = append(calls, must.Value(c.Start(t.Context(), must.Value(m.Row(t.Context(), text))(t), true))(t))
	}
	for i, call := range calls {
		got := must.Value(m.Entities(must.Value(call.Wait(t.Context()))(t)))(t)
		for k := range got {
			if k < len(want[i]) && want[i][k].Token < 0 { // of a group, which the pipeline does not say
				got[k].Token = -1
			}
			if k < len(want[i]) && math.Abs(float64(got[k].Score-want[i][k].Score)) <= 1e-5 {
				got[k].Score = want[i][k].Score
			}
		}
		if !slices.Equal(got, want[i]) {
			t.Errorf("%q: %+v\nwant %+v", texts[i], got, want[i])
		}
	}
}

// asked are the labels of texts, in batches together or each by itself.
func asked(t *testing.T, p *Predictor, n int, rows func(int) []Row, together bool) (out [][]Label) {
	t.Helper()
	var calls [][]*batch.Call[Row, Scored]
	wait := func(i int) {
		var logits []Scored
		for _, c := range calls[i] {
			logits = append(logits, must.Value(c.Wait(t.Context()))(t))
		}
		out = append(out, must.Value(p.Labels(logits))(t))
	}
	for i := range n {
		calls = append(calls, nil)
		for _, r := range rows(i) {
			calls[i] = append(calls[i], must.Value(p.classifier.Start(t.Context(), r, true))(t))
		}
		if !together {
			wait(i)
		}
	}
	for i := len(out); i < n; i++ {
		wait(i)
	}
	return out
}

// sameLabels is whether labels are the same in the same order, with scores within 1e-5; those of equal scores in any.
func sameLabels(got, want []Label) bool {
	if len(got) != len(want) {
		return false
	}
	for i, w := range want {
		if math.Abs(float64(got[i].Score-w.Score)) > 1e-5 || got[i].Label != w.Label &&
			(i == 0 || want[i-1].Score-w.Score > 1e-6) && (i+1 == len(want) || w.Score-want[i+1].Score > 1e-6) {
			return false
		}
	}
	return true
}

func TestHypothesis(t *testing.T) {
	for _, c := range []struct{ template, want, refused string }{
		{"This is {}.", "This is a cat.", ""}, {"{0} {0} {{}}", "a cat a cat {}", ""},
		{"no label", "", `the hypothesis "no label", needed a text with {}`}, {"{} {}", "", "the hypothesis"},
		{"{} {0}", "", "the hypothesis"}, {"{label}", "", "the hypothesis"}, {"{} }", "", "the hypothesis"},
	} {
		got, err := hypothesis(c.template, "a cat")
		if got != c.want || (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%q: %q, %v", c.template, got, err)
		}
	}
}

// TestLogitsAreNumbers: logits that are none are an error of their text.
func TestLogitsAreNumbers(t *testing.T) {
	graph := changed(t, "reranker/model.onnx", func(g *onnx.Graph) {
		for _, n := range [][4]string{{"Sub", "logits", "logits", "zero"}, {"Div", "zero", "zero", "none"}} {
			g.Node = append(g.Node, &onnx.Node{OpType: proto.String(n[0]), Input: n[1:3], Output: n[3:]})
		}
		g.Output[0].Name = proto.String("none")
	})
	c := must.Value(OpenClassifier(t.Context(), copied(t, "reranker", map[string]string{"model.onnx": graph}),
		options(t, false)))(t)
	defer c.Close()
	p := must.Value(c.Predictor(Questions{}))(t)
	row := must.Value(p.Rows(t.Context(), "a"))(t)[0]
	result := must.Value(must.Value(c.Start(t.Context(), row, true))(t).Wait(t.Context()))(t)
	must.Fail(t, must.Error(p.Labels([]Scored{result})), "the model's logits have an element NaN, needed are numbers")
	must.Fail(t, must.Error(c.Tagger(TokenQuestions{})), "a model that labels texts, needed one that labels tokens")
}
