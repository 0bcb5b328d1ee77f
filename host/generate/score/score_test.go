package score

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestScoresEqualPython compares with what rouge_score, sacrebleu and jiwer gave
// (testdata/expected.py).
func TestScoresEqualPython(t *testing.T) {
	data, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var expected struct {
		MadeBy map[string]string `json:"made_by"`
		Cases  []struct {
			Name       string
			Outputs    []string
			References []string
			Scores
		}
	}
	if err := json.Unmarshal(data, &expected); err != nil {
		t.Fatal(err)
	}
	if len(expected.Cases) < 25 {
		t.Fatalf("%d cases", len(expected.Cases))
	}
	for _, c := range expected.Cases {
		got, err := Of(c.Outputs, c.References)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		for name, v := range map[string][2]float64{
			"rouge1": {got.ROUGE1, c.ROUGE1}, "rouge2": {got.ROUGE2, c.ROUGE2}, "rougeL": {got.ROUGEL, c.ROUGEL},
			"bleu": {got.BLEU / 100, c.BLEU / 100}, "wer": {got.WER, c.WER},
		} {
			if !(math.Abs(v[0]-v[1]) < 1e-12) {
				t.Errorf("%s: %s is %.15g, %v give %.15g", c.Name, name, v[0], expected.MadeBy, v[1])
			}
		}
	}
}

func TestOfNeedsPairs(t *testing.T) {
	if _, err := Of([]string{"a"}, nil); err == nil ||
		!strings.Contains(err.Error(), "there are 1 outputs and 0 references") {
		t.Errorf("%v", err)
	}
	if s, err := Of(nil, nil); err != nil || *s != (Scores{}) {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	path := func(name, content string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	text := path("out.txt", "the cat sat\tthe dog sat\n\nthe last line here\n")
	lines := path("out.jsonl",
		`{"index":0,"sequences":[{"text":"the cat sat"},{"text":"no"}]}`+"\n"+`{"index":1,"sequences":[],"error":"bad"}`+"\n"+`{"index":2,"sequences":[{"text":"the last line here"}]}`+"\n")
	reference := path("reference.txt", "the cat sat\nnothing\nthe last line here\n")
	for form, output := range map[string]string{"text": text, "jsonl": lines} {
		s, err := Files(output, form, reference, 100)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(s.ROUGE1-2./3) > 1e-12 || s.BLEU == 0 {
			t.Errorf("%s: %+v", form, s)
		}
	}
	for _, c := range []struct{ output, form, reference, want string }{
		{text, "text", path("short.txt", "one\n"), "out.txt and " + dir + "/short.txt: there are 3 outputs and 1 references"},
		{text, "jsonl", reference, "out.txt, line 1: "},
		{filepath.Join(dir, "none"), "text", reference, "none"},
		{text, "text", path("long.txt", "a\n"+strings.Repeat("b", 101)+"\n"), "long.txt: line 2 has more than 100 bytes"},
		{text, "csv", reference, `the form "csv" is not known, needed is text or jsonl`},
	} {
		if _, err := Files(c.output, c.form, c.reference, 100); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s as %s: %v, want %s", c.output, c.form, err, c.want)
		}
	}
}
