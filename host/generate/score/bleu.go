package score

import (
	"math"
	"regexp"
	"strings"
	"unicode"
)

// bleuOrder is the longest run of tokens that is compared.
const bleuOrder = 4

// bleuCounts are the counts of a corpus, of runs of 1 to 4 tokens.
type bleuCounts struct {
	correct, total    [bleuOrder]int
	output, reference int // tokens
}

// add counts one line.
func (c *bleuCounts) add(output, reference []string) {
	c.output += len(output)
	c.reference += len(reference)
	for n := range bleuOrder {
		a, b := ngramCounts(output, n+1), ngramCounts(reference, n+1)
		for gram, count := range a {
			c.correct[n] += min(count, b[gram])
		}
		c.total[n] += max(0, len(output)-n)
	}
}

// score is BLEU with exponential smoothing: the k-th order without a match counts as
// half of a match to the power of k.
func (c *bleuCounts) score() float64 {
	if c.correct == [bleuOrder]int{} {
		return 0
	}
	sum, smooth := 0.0, 1.0
	for n := range bleuOrder {
		if c.total[n] == 0 {
			return 0 // no line is so long, and an order of no runs has no precision
		}
		precision := float64(c.correct[n]) / float64(c.total[n])
		if c.correct[n] == 0 {
			smooth *= 2
			precision = 1 / (smooth * float64(c.total[n]))
		}
		sum += math.Log(precision)
	}
	brevity := 1.0
	if c.output < c.reference {
		brevity = math.Exp(1 - float64(c.reference)/float64(c.output))
	}
	return 100 * brevity * math.Exp(sum/bleuOrder)
}

// The steps of the tokenizer 13a, in order: most ASCII punctuation stands alone, a
// period or comma unless digits stand around it, a dash after a digit.
var bleuSteps = []struct {
	find *regexp.Regexp
	with string
}{
	{regexp.MustCompile("([{-~\\[-` -&(-+:-@/])"), " $1 "},
	{regexp.MustCompile(`([^0-9])([.,])`), "$1 $2 "},
	{regexp.MustCompile(`([.,])([^0-9])`), " $1 $2"},
	{regexp.MustCompile(`([0-9])(-)`), "$1 $2 "},
}

// bleuTokens cuts a line as mteval-v13a.pl does.
func bleuTokens(line string) []string {
	line = strings.ReplaceAll(strings.TrimRightFunc(line, isSpace), "<skipped>", "")
	// One after the other: what &amp; leaves may be an entity again.
	for _, e := range [][2]string{{"&quot;", `"`}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}} {
		line = strings.ReplaceAll(line, e[0], e[1])
	}
	line = " " + line + " "
	for _, s := range bleuSteps {
		line = s.find.ReplaceAllString(line, s.with)
	}
	return strings.FieldsFunc(line, isSpace)
}

// isSpace is Python's notion of white space, which has four control characters more
// than Go's.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
