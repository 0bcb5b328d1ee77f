package text

import (
	"context"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// Tokenizer is what a model's folder says about text and ids. It is safe for
// concurrent use.
type Tokenizer struct {
	codec
	path    string
	clean   bool // clean_up_tokenization_spaces of tokenizer_config.json
	special map[string]bool
	target  *Tokenizer // Marian: the other language
	side    [2]string  // of truncation and of padding
	longest int        // of truncation; 0 for none
	second  bool       // truncation is of the second text alone
	roles   map[string]string
}

// codec is one way between text and ids: a tokenizer.json or a Marian model.
type codec interface {
	encode(ctx context.Context, s string) ([]int32, error)
	template() templates
	token(id int32) (string, bool)
	id(token string) (int32, bool)
	size() int
	decoder(next sink, b *budget) sink
}

// EncodeOptions are the ways to turn text into ids. The zero value is what
// Hugging Face's tokenizers do without options.
type EncodeOptions struct {
	OmitSpecialTokens bool // leave out what the post-processor puts around a text
	MaxLength         int  // maximum number of ids, special tokens counted; 0: no limit
	TruncateLeft      bool // over MaxLength, drop the first ids instead of the last
	OnlyFirst         bool // over MaxLength, of two texts the first alone is cut
}

// Spaces says whether spaces before punctuation are removed from decoded text
// (clean_up_tokenization_spaces).
type Spaces int

// SpacesConfigured is what tokenizer_config.json says; without it spaces stay.
const (
	SpacesConfigured Spaces = iota
	SpacesKept
	SpacesCleaned
)

// DecodeOptions are the ways to turn ids into text.
type DecodeOptions struct {
	SkipSpecialTokens bool
	Spaces            Spaces
}

// Encoding is a text, or two, as an encoder reads it.
type Encoding struct {
	IDs []int64
	// Types says for each id which text it belongs to, as the tokenizer counts: token_type_ids.
	Types []int64
}

// Encode returns the ids of a text. Text that is not UTF-8 is an error that
// names the first bad byte; Hugging Face's tokenizers cannot be given any. A
// context that ends ends it, within a long text too.
func (t *Tokenizer) Encode(ctx context.Context, s string, o EncodeOptions) ([]int64, error) {
	e, err := t.encoding(ctx, []string{s}, o, false)
	return e.IDs, err
}

// EncodeTyped is Encode with the types of the ids.
func (t *Tokenizer) EncodeTyped(ctx context.Context, s string, o EncodeOptions) (Encoding, error) {
	return t.encoding(ctx, []string{s}, o, true)
}

// EncodePair returns the ids of two texts that are read together, such as a query and a document. Over MaxLength the
// longer one is cut first (longest_first). Marian's tokenizers have no pairs.
func (t *Tokenizer) EncodePair(ctx context.Context, first, second string, o EncodeOptions) (Encoding, error) {
	return t.encoding(ctx, []string{first, second}, o, true)
}

func (t *Tokenizer) encoding(ctx context.Context, texts []string, o EncodeOptions, types bool) (Encoding, error) {
	var ids [2][]int32
	for k, s := range texts {
		if i := invalidUTF8(s); i >= 0 {
			return Encoding{}, notUTF8(s, i)
		}
		var err error
		if ids[k], err = t.encode(ctx, s); err != nil {
			return Encoding{}, t.failed(ctx, err)
		}
	}
	around, err := t.template().of(len(texts) == 2)
	if err != nil {
		return Encoding{}, fmt.Errorf("%s: %w", t.path, err)
	}
	e, err := around.apply(ids[0], ids[1], o, types)
	if err != nil {
		return Encoding{}, fmt.Errorf("%s: %w", t.path, err)
	}
	return e, nil
}

// failed is an error with the tokenizer's path, or the context's own.
func (t *Tokenizer) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%s: %w", t.path, err)
}

// Decode returns the text of ids.
func (t *Tokenizer) Decode(ids []int64, o DecodeOptions) (string, error) {
	d := t.Decoder(o)
	for _, id := range ids {
		if err := d.add(id); err != nil {
			return "", err
		}
	}
	return d.Finish()
}

// Decoder is Decode of tokens that come one by one.
type Decoder struct {
	tokenizer *Tokenizer
	options   DecodeOptions
	chain     sink
	out       *joined
	budget    *budget
}

// Decoder begins a text.
func (t *Tokenizer) Decoder(o DecodeOptions) *Decoder {
	d := &Decoder{tokenizer: t, options: o, out: &joined{}, budget: newBudget(0)}
	d.chain = d.out
	if o.Spaces == SpacesCleaned || o.Spaces == SpacesConfigured && t.clean {
		d.chain = cleanDecoder(d.chain)
	}
	d.chain = t.decoder(d.chain, d.budget)
	return d
}

// Add returns what a token adds to the text, without what later tokens can still change: a character that is not
// whole, a space before what may be a full stop.
func (d *Decoder) Add(id int64) (string, error) {
	if err := d.add(id); err != nil {
		return "", err
	}
	return d.more()
}

// Finish returns the rest of the text, after the last token.
func (d *Decoder) Finish() (string, error) {
	d.chain.finish()
	return d.more()
}

func (d *Decoder) add(id int64) error {
	token, ok, err := d.tokenizer.named(id)
	if ok && !(d.options.SkipSpecialTokens && d.tokenizer.special[token]) {
		d.budget.token(len(token))
		d.chain.part(token)
		d.chain.end()
	}
	return err
}

func (d *Decoder) more() (string, error) {
	if err := d.budget.err; err != nil {
		return "", fmt.Errorf("%s: %w", d.tokenizer.path, err)
	}
	text := d.out.String()
	d.out.Reset()
	return text, nil
}

func (t *Tokenizer) named(id int64) (string, bool, error) {
	if id < 0 || id > math.MaxInt32 {
		return "", false, fmt.Errorf("%s: found id %d, needed one from 0 to %d", t.path, id, t.size()-1)
	}
	token, ok := t.token(int32(id))
	return token, ok, nil
}

// Special reports the id of a special token, such as </s>.
func (t *Tokenizer) Special(id int64) bool {
	name, ok, err := t.named(id)
	return err == nil && ok && t.special[name]
}

// ID is the number of a token.
func (t *Tokenizer) ID(token string) (int64, bool) {
	id, ok := t.id(token)
	return int64(id), ok
}

// Sides are those on which tokenizer.json cuts texts and pads them; what tokenizer_config.json says comes first.
func (t *Tokenizer) Sides() (cutsLeft, padsLeft bool) {
	return strings.EqualFold(t.side[0], "left"), strings.EqualFold(t.side[1], "left")
}

// Target is the tokenizer of the language translated into. It is t itself but
// for Marian, whose two languages have a model each: Encode with t what is to be
// translated, and with Target what it is compared with. Decode decodes the
// target language in both.
func (t *Tokenizer) Target() *Tokenizer {
	if t.target == nil {
		return t
	}
	return t.target
}

func notUTF8(s string, at int) error {
	return fmt.Errorf("text of %d bytes: found byte 0x%02x at offset %d, needed UTF-8; convert the text or drop the line",
		len(s), s[at], at)
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8(s string) int {
	if utf8.ValidString(s) {
		return -1
	}
	for i, r := range s {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return i
			}
		}
	}
	return -1
}
