package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/generate/text"
)

// row is one text as tokens, its special tokens included.
type row struct {
	ids    []int64
	second int // where the second text of a pair begins; 0 for none
}

// lengths are where the lengths of a batch's rows come from, and how far rows are padded.
type lengths struct {
	kind string
	// Between are the least and the greatest length of kind uniform; equal is the length of kind none.
	least, most int
	padTo       int // 0 for the longest row
}

// Kinds of lengths. Each takes its rows by chance, from the seed of the cell.
const (
	sentences = "sentences" // of the texts: real tokens where the vocabulary is BERT's, else as many others
	articles  = "articles"  // of the texts, cut where the model has no more positions
	queries   = "queries"   // as long as those of MS MARCO, see lengthOf
	passages  = "passages"
	pairs     = "pairs"   // a query and a passage
	uniform   = "uniform" // every length alike, from the least to the most; the longest is there once
	unpadded  = "none"    // all rows as long
)

func (l lengths) String() string {
	s := l.kind
	switch l.kind {
	case uniform:
		s = fmt.Sprintf("uniform %d to %d", l.least, l.most)
	case unpadded:
		return fmt.Sprintf("%d tokens, no padding", l.most)
	}
	if l.padTo > 0 {
		return fmt.Sprintf("%s, padded to %d", s, l.padTo)
	}
	return s + ", padded to the longest"
}

// MS MARCO (Bajaj et al., 2016, arXiv 1611.09268) has queries of about 6 words and passages of about 56. Only means are
// published: lengths are sampled from the log-normal distribution of that mean whose logarithm has the deviation
// spread, and a word is made of 1.3 tokens, as English is in BERT's vocabulary.
const (
	queryWords, passageWords = 6, 56
	querySpread              = 0.40
	passageSpread            = 0.45
	tokensOfWord             = 1.3
)

// wordsOf samples how many words a text has, mean on average.
func wordsOf(r *rand.Rand, mean, spread float64) float64 {
	return math.Exp(math.Log(mean) - spread*spread/2 + spread*r.NormFloat64())
}

// lengthOf samples the tokens of such a text.
func lengthOf(r *rand.Rand, mean, spread float64) int {
	return max(1, int(math.Round(wordsOf(r, mean, spread)*tokensOfWord)))
}

// errNoTexts is the error of a figure whose lengths are those of texts that were not given.
var errNoTexts = errors.New("its lengths are those of texts: name a file of them, one a line, with -texts")

// rows are n texts for a model.
func (l lengths) rows(r *rand.Rand, e *encoder, n int, corpus *corpus) ([]row, error) {
	list := make([]row, n)
	for i := range list {
		switch l.kind {
		case sentences, articles:
			if corpus == nil {
				return nil, errNoTexts
			}
			from := corpus.sentences
			if l.kind == articles {
				from = corpus.articles
			}
			list[i] = e.fit(r, from[r.IntN(len(from))])
		case queries:
			list[i] = e.random(r, lengthOf(r, queryWords, querySpread)+2)
		case passages:
			list[i] = e.random(r, lengthOf(r, passageWords, passageSpread)+2)
		case pairs:
			query := min(lengthOf(r, queryWords, querySpread), e.longest/2-2)
			list[i] = e.random(r, query+lengthOf(r, passageWords, passageSpread)+3)
			list[i].second = query + 2
			list[i].ids[query+1] = e.tokens.last
		case uniform:
			length := l.least + r.IntN(l.most-l.least+1)
			if i == n/2 {
				length = l.most
			}
			list[i] = e.random(r, length)
		case unpadded:
			list[i] = e.random(r, l.most)
		default:
			return nil, fmt.Errorf("no lengths are called %q", l.kind)
		}
	}
	return list, nil
}

// random is a text of length tokens, special ones included.
func (e *encoder) random(r *rand.Rand, length int) row {
	length = min(max(length, 2), e.longest)
	t := e.tokens
	ids := make([]int64, length)
	for i := range ids {
		ids[i] = t.from + r.Int64N(t.size-t.from)
		for ids[i] == t.pad || ids[i] == t.first || ids[i] == t.last {
			ids[i] = t.from + r.Int64N(t.size-t.from)
		}
	}
	ids[0], ids[length-1] = t.first, t.last
	return row{ids: ids}
}

// fit is a text of BERT's tokens for a model: the same, or as many of its own.
func (e *encoder) fit(r *rand.Rand, ids []int64) row {
	if e.tokens != bertTokens {
		return e.random(r, len(ids))
	}
	if len(ids) > e.longest {
		ids = append(slices.Clone(ids[:e.longest-1]), ids[len(ids)-1])
	}
	return row{ids: ids}
}

// corpus is a file of texts, as tokens of BERT's vocabulary.
type corpus struct{ articles, sentences [][]int64 }

// readCorpus reads texts, one a line, of which sentences end in ". ", "? " or "! ".
func readCorpus(ctx context.Context, path string) (*corpus, error) {
	at, err := tokenizer()
	if err != nil {
		return nil, err
	}
	t, err := text.Open(at)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := &corpus{}
	s := bufio.NewScanner(f)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		line := strings.TrimSpace(s.Text())
		if line == "" {
			continue
		}
		for i, part := range append([]string{line}, sentencesOf(line)...) {
			ids, err := t.Encode(ctx, part, text.EncodeOptions{})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			if i == 0 {
				c.articles = append(c.articles, ids)
			} else {
				c.sentences = append(c.sentences, ids)
			}
		}
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(c.sentences) == 0 {
		return nil, fmt.Errorf("%s: found no text, needed one a line", path)
	}
	return c, nil
}

// sentencesOf cuts a text after marks that end a sentence.
func sentencesOf(s string) (list []string) {
	words := strings.Fields(s)
	from := 0
	for i, w := range words {
		last := w[len(w)-1]
		if i == len(words)-1 || last == '.' || last == '?' || last == '!' {
			list = append(list, strings.Join(words[from:i+1], " "))
			from = i + 1
		}
	}
	return list
}
