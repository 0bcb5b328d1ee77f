package draft

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// words are the words and signs of a file of this tree, as tokens that all files share.
func words(t *testing.T, seen map[string]int32, path string) (list []int32) {
	t.Helper()
	data := must.Value(os.ReadFile(filepath.Join("../../..", path)))(t)
	for _, w := range regexp.MustCompile(`[A-Za-z]+|[0-9]|[^\sA-Za-z0-9]`).FindAllString(string(data), -1) {
		if _, ok := seen[w]; !ok {
			seen[w] = int32(len(seen))
		}
		list = append(list, seen[w])
	}
	return list
}

// edited is a text in which some words are others, left out or put in.
func edited(r *rand.Rand, text []int32, share float64) (list []int32) {
	for _, w := range text {
		if r.Float64() < share {
			switch r.IntN(3) {
			case 0:
				continue
			case 1:
				list = append(list, w)
			}
			w = int32(r.IntN(2000))
		}
		list = append(list, w)
	}
	return list
}

// TestDraftsOfEnglish follows texts as a model would write them, with steps that take as long as those of GPT-2's
// shape: 1, and rowTime for each row more. Prompts go on as themselves, with nothing to copy but what any text
// repeats; come again with edits; or are quoted.
func TestDraftsOfEnglish(t *testing.T) {
	const rowTime, price = 0.06, 0.06/1.06 + 0.05
	r := rand.New(rand.NewPCG(17, 11))
	seen := map[string]int32{}
	texts := [][]int32{words(t, seen, "RATIONALE.md"), words(t, seen, "docs/attention.md"),
		words(t, seen, "docs/security.md"), words(t, seen, "SECURITY.md")}
	const length = 300
	for _, c := range []struct {
		name  string
		least float64 // tokens a unit of time; 1 without drafts
		task  func(text, other []int32) (prompt, output []int32)
	}{
		{"goes on", 0.97, func(text, _ []int32) ([]int32, []int32) { return text[:length], text[length:] }},
		{"random words", 0.97, func(text, _ []int32) ([]int32, []int32) { return text[:length], random(r, length, 2000) }},
		{"another text", 0.97, func(text, other []int32) ([]int32, []int32) { return text[:length], other[:length] }},
		{"one word in five edited", 1.3,
			func(text, _ []int32) ([]int32, []int32) { return text[:length], edited(r, text[:length], 0.2) }},
		{"one word in twenty edited", 2.5,
			func(text, _ []int32) ([]int32, []int32) { return text[:length], edited(r, text[:length], 0.05) }},
		{"quotes of 12 words between 12 of its own", 1.3, func(text, other []int32) (_, output []int32) {
			for at := 0; at+12 < length; at += 24 {
				from := r.IntN(length - 12)
				output = append(append(output, text[from:from+12]...), other[at:at+12]...)
			}
			return text[:length], output
		}},
	} {
		tokens, drafts, time := 0, 0, 0.0
		call := &Odds{}
		for i, text := range texts {
			for other := texts[(i+1)%len(texts)]; len(text) >= 2*length && len(other) >= length; text, other = text[2*length:],
				other[length:] {
				prompt, output := c.task(text[:2*length], other)
				drafted, right := follow(New(call, false, 0, prompt), output, price)
				tokens, drafts = tokens+len(output), drafts+drafted
				time += float64(len(output)-right) + rowTime*float64(drafted)
			}
		}
		gain := float64(tokens) / time
		t.Logf("%-42s %d tokens, %d drafted: %.3fx", c.name, tokens, drafts, gain)
		if gain < c.least {
			t.Errorf("%s: %.3fx, needed %.2fx", c.name, gain, c.least)
		}
	}
}
