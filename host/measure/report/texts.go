package report

import (
	"fmt"
	"math"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/measure/comparison/divergence"
	"github.com/opgraft/graft/host/measure/comparison/generations"
)

// texts is the section of how far the sides' distributions of the next token are from a's; nil where none were
// compared.
func (f *folder) texts() (*section, error) {
	if f.Forced == nil {
		return nil, nil
	}
	s := &section{ID: "texts", Title: "Texts"}
	if r := f.Forced; r != nil {
		over := map[string]string{generations.OverInputs: "the inputs", generations.OverReferences: "the references",
			generations.OverOutputs: "what a generated from the inputs"}[r.Over]
		says := fmt.Sprintf("Each side reads %s as they are (teacher forcing) and predicts every token from those before "+
			"it: %s of %s.", over, diagnostic.Counted(r.Tokens, "token"), diagnostic.Counted(r.Texts, "text"))
		if r.Window > 0 {
			says += fmt.Sprintf(" It reads windows of %d tokens, %d apart.", r.Window, r.Stride)
		}
		if r.Left > 0 {
			says += fmt.Sprintf(" %s were left out.", diagnostic.Counted(r.Left, "more token"))
		}
		s.Text = append(s.Text, says+" The divergence is Kullback and Leibler's, from a's distribution to the side's, of "+
			"a token and in nats. A greedy token is the one that is most likely.")
		s.Tables = append(s.Tables, f.distributions())
	}
	return s, nil
}

// distributions is the table of perplexities and divergences.
func (f *folder) distributions() table {
	t := table{Head: []head{{"side", false}, {"perplexity", true}, {"over a's", true}, {"95 % interval", true},
		{"KL, mean", true}, {"KL, 99th percentile", true}, {"KL, greatest", true},
		{"equal greedy tokens", true}, {"first other token", false}}}
	for i := -1; i < len(f.Sides); i++ {
		at, own := f.against(i)
		l := f.of(i).Likelihood
		row := []cell{text(f.name(i)), finite(l.Perplexity, own+"/likelihood/perplexity", "", figures)}
		if i < 0 {
			t.Rows = append(t.Rows, append(row, text(""), text(""), text(""), text(""), text(""), text(""), text("")))
			continue
		}
		d, at := f.Sides[i].Divergence, at+"/divergence"
		low, high := finite(d.RatioCI95[0], at+"/perplexity_ratio_ci95/0", " to ", figures),
			finite(d.RatioCI95[1], at+"/perplexity_ratio_ci95/1", "×", figures)
		if low.Number != nil && high.Number != nil {
			low.More = []number{*high.Number}
		}
		row = append(row, finite(d.PerplexityRatio, at+"/perplexity_ratio", "×", figures), low,
			finite(d.KLMean, at+"/kl_mean", "", difference), finite(d.KLP99, at+"/kl_p99", "", difference),
			finite(d.KLMax, at+"/kl_max", "", difference))
		equal := num(float64(d.EqualGreedy), at+"/equal_greedy", fmt.Sprint(d.EqualGreedy))
		equal.After = " of "
		t.Rows = append(t.Rows, append(row,
			cell{Number: &equal, More: []number{num(float64(d.Tokens), at+"/tokens", fmt.Sprint(d.Tokens))}},
			cell{Text: other(d.First), Class: "wrap"}))
	}
	return t
}

// other is a first difference in words.
func other(d *divergence.Difference) string {
	if d == nil {
		return "none"
	}
	word := func(c divergence.Choice) string {
		if c.Text == "" {
			return fmt.Sprintf("token %d", c.Token)
		}
		return fmt.Sprintf("%q", c.Text)
	}
	return fmt.Sprintf("token %d of text %d: %s, where a has %s", d.Token+1, d.Text+1, word(d.B), word(d.A))
}

// finite is a cell of a number, with what is written after it; in words where that is infinite.
func finite(x float64, at, after string, printed func(float64) string) cell {
	if x == math.MaxFloat64 {
		return text("not finite")
	}
	n := num(x, at, printed(x))
	n.After = after
	return one(n)
}

// figures prints a number so that a thousandth of it shows.
func figures(x float64) string {
	return fixed(x, min(max(4-int(math.Floor(math.Log10(max(x, 1e-9)))), 0), 8))
}
