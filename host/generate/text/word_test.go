package text

import (
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestWords: \w in its forms, as tokenizers 0.22 splits by it, with the matches apart.
func TestWords(t *testing.T) {
	const line = "Don't a_b c-d 12é٣ x²½ ªº ⅷ 日本語 नमस्ते e\u0301t ‿ ⒶⓏ 🙂 \u200d\u200c A\u00adB"
	for expression, want := range map[string][]string{
		`\w+`: {"Don", "t", "a_b", "c", "d", "12é٣", "x²½", "ªº", "ⅷ", "日本語", "नमस्ते", "e\u0301t", "‿", "ⒶⓏ", "A",
			"B"},
		`\W+`: {"'", " ", " ", "-", " ", " ", " ", " ", " ", " ", " ", " ", " ", " 🙂 \u200d\u200c ", "\u00ad"},
		`[\w']+|[^\w\s]`: {"Don't", "a_b", "c", "-", "d", "12é٣", "x", "²", "½", "ªº", "ⅷ", "日本語", "नमस्ते", "e\u0301t", "‿",
			"ⒶⓏ", "🙂", "\u200d", "\u200c", "A", "\u00ad", "B"},
		`[^\w]+`: {"'", " ", " ", "-", " ", " ", "²½ ", " ", " ", " ", " ", " ", " ", " 🙂 \u200d\u200c ", "\u00ad"},
		`[\W']+`: {"'", " ", " ", "-", " ", " ", "²½ ", " ", " ", " ", " ", " ", " ", " 🙂 \u200d\u200c ", "\u00ad"},
		`[\D]+`:  {"Don't a_b c-d ", "é", " x²½ ªº ⅷ 日本語 नमस्ते e\u0301t ‿ ⒶⓏ 🙂 \u200d\u200c A\u00adB"},
		`[\P{L}]+`: {"'", " ", "_", " ", "-", " 12", "٣ ", "²½ ", " ⅷ ", " ", "्", "े ", "\u0301",
			" ‿ ⒶⓏ 🙂 \u200d\u200c ", "\u00ad"},
	} {
		p := must.Value(newPattern(expression))(t)
		var got []string
		must.Succeed(t, p.each(line, newBudget(len(line)),
			func(start, end int) error { got = append(got, line[start:end]); return nil }))
		must.Equal(t, got, want, expression)
	}
	if _, err := newPattern(`\p{w}`); err == nil {
		t.Error(`\p{w} is taken, which Oniguruma has not`)
	}
}
