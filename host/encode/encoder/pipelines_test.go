package encoder

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/internal/must"
)

// piped are folders of classifiers, with what a version of transformers' pipelines makes of texts
// (models/encoders/pipelines.py).
type piped struct {
	Texts []string
	Pairs [][2]string
	Cases []struct {
		Name, Graph, Task, Refused, Function, Template string
		Several                                        bool
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
	must.Equal(t, len(list), 3)
	for _, file := range list {
		var all piped
		must.Succeed(t, json.Unmarshal([]byte(read(t, file)), &all))
		for _, c := range all.Cases {
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
						return must.Value(p.PairRows(all.Pairs[i][0], all.Pairs[i][1]))(t)
					}
					return must.Value(p.Rows(all.Texts[i]))(t)
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
		row := must.Value(r.Row(p[0], p[1]))(t)
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

// asked are the labels of texts, in batches together or each by itself.
func asked(t *testing.T, p *Predictor, n int, rows func(int) []Row, together bool) (out [][]Label) {
	t.Helper()
	var calls [][]*batch.Call[Row, []float32]
	wait := func(i int) {
		var logits [][]float32
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
