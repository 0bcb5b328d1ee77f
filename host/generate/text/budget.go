package text

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// What a text may cost, whatever the tokenizer's file asks for. Each grows with the text. Texts of people need a
// small part: compatibility forms at most 11 times the bytes of a character, and a regular expression microseconds.
const (
	growthFactor  = 16       // bytes that normalising may add, for each byte of the text
	growthFree    = 64 << 10 // and beside that; as many pieces
	formFactor    = 4        // how long a text may have become before a Unicode form, which may make it 11 times as long
	formFree      = 4 << 10
	regexFree     = time.Second
	regexForBytes = 50 * time.Microsecond // for each byte of the text
)

// What a file may bring.
const (
	maxToken      = 4 << 10 // bytes: every position of a text may be compared with a whole token
	maxAffix      = 8       // bytes before or after each character of a word
	maxExpression = 4 << 10 // bytes of regular expressions in all: a category in one stands for hundreds of ranges
	maxTranslated = 1 << 20 // bytes of an expression with its sets written out
	maxComponents = 128     // normalisers, pre-tokenizers, processors and decoders
	maxDepth      = 32      // lists and objects in each other
	maxAround     = 4 << 10 // ids that are put around a text
)

// budget is what is left for one text. It is for one goroutine.
type budget struct {
	text   int           // bytes of the text
	growth int           // bytes that may still be added
	pieces int           // that may still be cut
	regex  time.Duration // that regular expressions may still take: see timedSearch
	look   time.Time     // when that is looked at; zero before the first
	counts bool          // regex is processor time now
	err    error         // of a decoder, which cannot return it
	ctx    context.Context
	done   int // bytes since ctx was looked at
}

// newBudget is that of a text of some bytes.
func newBudget(text int) *budget {
	return &budget{text: text, growth: growthFree + growthFactor*text, pieces: growthFree + text,
		regex: regexFree + time.Duration(text)*regexForBytes}
}

// token makes the text longer, for a decoder that does not know it in advance.
func (b *budget) token(bytes int) {
	b.text += bytes
	b.growth += growthFactor * bytes
	b.regex += time.Duration(bytes) * regexForBytes
}

// betweenLooks is how many bytes are worked on between looks at the context.
const betweenLooks = 4 << 10

// work is the context's error where it ended, at the latest betweenLooks bytes later.
func (b *budget) work(bytes int) error {
	if b.done += bytes; b.done < betweenLooks || b.ctx == nil {
		return nil
	}
	b.done = 0
	return b.ctx.Err()
}

// grow takes what a component adds to the text.
func (b *budget) grow(component string, from, to int) error {
	if to <= from {
		return nil
	}
	if b.growth -= to - from; b.growth < 0 {
		return b.exceeded(component, fmt.Sprintf("makes a text of %d bytes more than %d times as long", b.text, growthFactor))
	}
	return nil
}

// cut takes pieces.
func (b *budget) cut(component string, pieces int) error {
	if b.pieces -= pieces; b.pieces < 0 {
		return b.exceeded(component, fmt.Sprintf("cuts a text of %d bytes into more pieces than it has bytes", b.text))
	}
	return nil
}

func (b *budget) overtime(expression string) error {
	return b.exceeded(fmt.Sprintf("regular expression %q", expression),
		fmt.Sprintf("takes more than %v of processor time on a text of %d bytes",
			regexFree+time.Duration(b.text)*regexForBytes, b.text))
}

func (b *budget) exceeded(component, found string) error {
	return &diagnostic.Error{Found: "found that its " + component + " " + found,
		Needed: "a tokenizer whose cost grows with the text",
		Fix:    "take the tokenizer's files from where the model comes from"}
}

// checkDepth refuses JSON whose lists and objects lie deeper in each other than a tokenizer's do.
func checkDepth(data []byte) error {
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return fmt.Errorf("byte %d: found lists and objects more than %d deep in each other, needed those of a tokenizer",
					i, maxDepth)
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return nil
}

// checkToken refuses a token that is too long to look for.
func checkToken(token string) error {
	if len(token) > maxToken {
		return fmt.Errorf("found the token %q..., which has %d bytes, needed at most %d", token[:40], len(token), maxToken)
	}
	return nil
}

// components are those of a list, which a few bytes could make many.
type components []component

func (list *components) UnmarshalJSON(data []byte) error {
	var raw []json.RawMessage
	if err := decode(data, &raw); err != nil {
		return err
	}
	if len(raw) > maxComponents {
		return fmt.Errorf("found %d components, needed at most %d", len(raw), maxComponents)
	}
	*list = make(components, len(raw))
	for i := range raw {
		if err := decode(raw[i], &(*list)[i]); err != nil {
			return err
		}
	}
	return nil
}

// count adds up components and the bytes of their expressions.
func (c *component) count() (n, expressions int) {
	n = 1
	if c.Pattern != nil && c.Pattern.Regex != nil {
		expressions = len(*c.Pattern.Regex)
	}
	for _, list := range []components{c.Normalizers, c.PreTokenizers, c.Processors, c.Decoders} {
		for i := range list {
			m, e := list[i].count()
			n, expressions = n+m, expressions+e
		}
	}
	return n, expressions
}
