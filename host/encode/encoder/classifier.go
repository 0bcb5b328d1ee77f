package encoder

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/encode/folder"
)

// Classifier gives labels of texts, as the pipelines of transformers do. It is safe for concurrent use.
type Classifier struct {
	*scorer[Scored]
	labels []string
}

// Scored is a row with its logits, or those of its tokens one after the other.
type Scored struct {
	row    Row
	logits []float32
}

// OpenClassifier opens a folder of a model for text or token classification. A context that ends ends that soon.
func OpenClassifier(ctx context.Context, path string, o Options) (*Classifier, error) {
	c := &Classifier{}
	s, err := openScorer(ctx, path, o, func(s *scorer[Scored]) (func(Row, []float32) (Scored, error), error) {
		n := cmp.Or(s.width, s.base.folder.Labels, 2)
		var err error
		c.labels, err = s.base.folder.LabelNames(n)
		return func(row Row, logits []float32) (Scored, error) {
			rows := 1
			if s.tokens {
				rows = row.Length()
			}
			if len(logits) != n*rows {
				return Scored{}, &diagnostic.Error{Path: s.base.path, Found: fmt.Sprintf("%d logits", len(logits)/rows),
					Needed: fmt.Sprintf("%d, one for each label of the model", n)}
			}
			return Scored{row, logits}, nil
		}, err
	})
	if err != nil {
		return nil, err
	}
	c.scorer = s
	return c, nil
}

// Labels are those of the model, in the order of its outputs.
func (c *Classifier) Labels() []string { return slices.Clone(c.labels) }

// Tokens is whether labels are those of tokens, and not of whole texts.
func (c *Classifier) Tokens() bool { return c.tokens }

// Label is one of a text, with its score.
type Label struct {
	Label string  `json:"label"`
	Score float32 `json:"score"`
}

// Questions say what is asked of a text. The zero value asks for all labels of the model, the best first.
type Questions struct {
	TopK     int    // labels of a text at most; 0 for all
	Function string // what makes scores of logits: none, sigmoid or softmax; "" is what the model's configuration says

	// Candidates are labels of the caller's, which a model of natural language inference judges: zero-shot classification.
	// nil for the model's own.
	Candidates []string
	Hypothesis string // with {} for a candidate; "" is "This example is {}."
	Several    bool   // each candidate is judged by itself
}

// Predictor answers questions.
type Predictor struct {
	classifier *Classifier
	ask        Questions
	labels     []string // of which there are scores
	hypotheses []string // nil where the labels are the model's
	function   folder.Function
	entails    int
}

// Predictor checks questions against the model.
func (c *Classifier) Predictor(q Questions) (p *Predictor, err error) {
	p = &Predictor{classifier: c, ask: q, labels: c.labels}
	if c.tokens {
		return nil, &diagnostic.Error{Path: c.base.path, Found: "a model that labels tokens", Needed: "one that labels texts",
			Fix: "ask for entities"}
	}
	if q.Candidates == nil {
		if q.Hypothesis != "" || q.Several {
			return nil, &diagnostic.Error{Found: "a hypothesis, or several labels that may hold, without labels",
				Needed: "candidates of which the model judges whether they hold"}
		}
		if q.Function == "" {
			p.function, err = c.base.folder.FunctionOf(len(c.labels))
			return p, err
		}
		var ok bool
		if p.function, ok = folder.Functions[q.Function]; !ok {
			return nil, &diagnostic.Error{Found: fmt.Sprintf("the function %q", diagnostic.Clip(q.Function)),
				Needed: "none, sigmoid or softmax"}
		}
		return p, nil
	}
	if q.Function != "" {
		return nil, &diagnostic.Error{Found: "a function beside candidates",
			Needed: "none: the shares of entailment are the scores"}
	}
	if len(q.Candidates) == 0 || slices.Contains(q.Candidates, "") {
		return nil, &diagnostic.Error{Found: "no label, or an empty one",
			Needed: "labels of which the model judges whether they hold"}
	}
	if len(c.labels) < 2 {
		return nil, &diagnostic.Error{Path: c.base.path, Found: "a model of one label",
			Needed: "one of natural language inference"}
	}
	if p.entails, err = c.base.folder.Entailment(c.labels); err != nil {
		return nil, err
	}
	p.labels = q.Candidates
	for _, label := range q.Candidates {
		h, err := hypothesis(cmp.Or(q.Hypothesis, "This example is {}."), label)
		if err != nil {
			return nil, err
		}
		p.hypotheses = append(p.hypotheses, h)
	}
	return p, nil
}

// hypothesis puts a label into a template as Python's str.format does: {} or {0} is the label, and {{ and }} are
// braces.
func hypothesis(template, label string) (string, error) {
	var out strings.Builder
	next, first := 0, 0 // how often {} and {0} stand in it
	for rest := template; rest != ""; {
		n := 1
		switch {
		case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"):
			n = 2
			out.WriteByte(rest[0])
		case strings.HasPrefix(rest, "{}"):
			n, next = 2, next+1
			out.WriteString(label)
		case strings.HasPrefix(rest, "{0}"):
			n, first = 3, first+1
			out.WriteString(label)
		case rest[0] == '{', rest[0] == '}':
			next = 2
		default:
			out.WriteByte(rest[0])
		}
		rest = rest[n:]
	}
	if next > 1 || (next > 0) == (first > 0) {
		return "", &diagnostic.Error{Found: fmt.Sprintf("the hypothesis %q", diagnostic.Clip(template)),
			Needed: "a text with {} where the label goes, as This example is {}."}
	}
	return out.String(), nil
}

// Rows are a text's: one, or one for each candidate.
func (p *Predictor) Rows(ctx context.Context, text string) ([]Row, error) {
	b := p.classifier.base
	if p.hypotheses == nil {
		r, err := b.row(ctx, b.folder.CleanPair(text))
		return []Row{r}, err
	}
	rows := make([]Row, len(p.hypotheses))
	for i, h := range p.hypotheses {
		var err error
		if rows[i], err = b.judged(ctx, text, h); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// PairRows are those of two texts that are read together.
func (p *Predictor) PairRows(ctx context.Context, first, second string) ([]Row, error) {
	if p.hypotheses != nil {
		return nil, &diagnostic.Error{Found: "a pair of texts", Needed: "one: the second is the hypothesis"}
	}
	r, err := p.classifier.pair(ctx, first, second)
	return []Row{r}, err
}

// Labels are those of a text, of the logits of its rows, the best first.
func (p *Predictor) Labels(results []Scored) ([]Label, error) {
	scores := make([]float64, 0, len(p.labels))
	for _, r := range results {
		if err := numbers(r.logits); err != nil {
			return nil, err
		}
	}
	if p.hypotheses == nil {
		for _, x := range results[0].logits {
			scores = append(scores, float64(x))
		}
		p.function(scores)
	} else {
		scores = p.entailed(results)
	}
	out := make([]Label, len(scores))
	for i, s := range scores {
		out[i] = Label{p.labels[i], float32(s)}
	}
	slices.SortStableFunc(out, func(a, b Label) int { return cmp.Compare(b.Score, a.Score) })
	if k := p.ask.TopK; k > 0 && k < len(out) {
		out = out[:k]
	}
	return out, nil
}

// entailed are the scores of candidates: the shares of their entailment among all, or where each is judged by itself,
// or is the only one, against contradiction, which is the first label or, where that is entailment, the last.
func (p *Predictor) entailed(results []Scored) (scores []float64) {
	if !p.ask.Several && len(results) > 1 {
		for _, r := range results {
			scores = append(scores, float64(r.logits[p.entails]))
		}
		folder.Softmax(scores)
		return scores
	}
	against := 0
	if p.entails == 0 {
		against = len(p.classifier.labels) - 1
	}
	for _, r := range results {
		two := []float64{float64(r.logits[against]), float64(r.logits[p.entails])}
		folder.Softmax(two)
		scores = append(scores, two[1])
	}
	return scores
}
