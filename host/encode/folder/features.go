package folder

import (
	"fmt"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Features are what modules hand on for one text, by sentence-transformers' names.
type Features struct {
	Length   int // tokens of the text
	Prompt   int // the first of them that are the prompt's
	Expanded int // the last of them that fill a query up
	IDs      []int64
	Task     Task
	Tokens   Rows
	Vector   []float32 // sentence_embedding; nil before it is made
	Scores   []float32 // scores of a cross-encoder
}

// Rows are vectors of one width, one after the other.
type Rows struct {
	Values []float32
	Width  int
}

// List are the vectors, each by itself.
func (r Rows) List() [][]float32 {
	list := [][]float32{}
	for at := 0; at < len(r.Values); at += r.Width {
		list = append(list, r.Values[at:at+r.Width])
	}
	return list
}

// only leaves the tokens that are kept.
func (f *Features) only(kept func(token int) bool) {
	in, n := f.Tokens, 0
	out, ids := make([]float32, 0, len(in.Values)), []int64(nil)
	for t := range f.Length {
		if kept(t) {
			out = append(out, in.Values[t*in.Width:(t+1)*in.Width]...)
			if t < len(f.IDs) {
				ids = append(ids, f.IDs[t])
			}
			n++
		}
	}
	f.Tokens.Values, f.IDs, f.Length = out, ids, n
}

// Settle leaves out the tokens that fill a query up, where no module of the folder says that they count.
func (f *Features) Settle(attended bool) {
	if f.Expanded > 0 && !attended {
		own := f.Length - f.Expanded
		f.only(func(t int) bool { return t < own })
	}
}

// Feature is the name of one of them.
type Feature string

// The features that modules read and write.
const (
	TokenEmbeddings   Feature = "token_embeddings"
	SentenceEmbedding Feature = "sentence_embedding"
	Scores            Feature = "scores"
	masked            Feature = "attention_mask" // is there where tokens were left out
)

// of is a feature as rows: those of tokens, or one.
func (f *Features) of(name Feature) Rows {
	switch name {
	case TokenEmbeddings:
		return f.Tokens
	case Scores:
		return Rows{f.Scores, len(f.Scores)}
	}
	return Rows{f.Vector, len(f.Vector)}
}

func (f *Features) set(name Feature, r Rows) {
	switch name {
	case TokenEmbeddings:
		f.Tokens = r
	case Scores:
		f.Scores = r.Values
	default:
		f.Vector = r.Values
	}
}

// Widths are those of the features, as far as they are known before a run: absent is less than 0, unknown is 0.
type Widths map[Feature]int

// absent is the width of what is not there.
const absent = -1

// Module makes features of others.
type Module interface {
	// Apply changes the features of one text.
	Apply(*Features) error
	// Check follows the widths, and refuses what cannot be applied to them.
	Check(Widths) error
}

// mapped is what a module changes row by row.
type mapped struct {
	path     string // the file that says so
	in, out  Feature
	from, to int // widths; 0 where any is taken, and stays
	optional bool
	inGraph  bool // a graph whose output is as wide as this module's has it inside
	row      func(in, out []float32)
}

// names reads module_input_name and module_output_name.
func (m *mapped) names(o *object) {
	names := []Feature{TokenEmbeddings, SentenceEmbedding, Scores}
	read := func(key string, absent Feature) Feature {
		s, ok := o.text(key)
		if !ok {
			return absent
		}
		for _, n := range names {
			if s == string(n) {
				return n
			}
		}
		if o.err == nil {
			o.err = &diagnostic.Error{Path: o.path, Found: fmt.Sprintf("%s is %q", key, diagnostic.Clip(s)),
				Needed: fmt.Sprintf("one of %s, %s and %s", names[0], names[1], names[2])}
		}
		return absent
	}
	m.path = o.path
	m.in = read("module_input_name", m.in)
	m.out = read("module_output_name", m.in)
	if (m.in == TokenEmbeddings) != (m.out == TokenEmbeddings) && o.err == nil {
		o.err = &diagnostic.Error{Path: o.path,
			Found:  fmt.Sprintf("module_input_name is %s and module_output_name is %s", m.in, m.out),
			Needed: "both of tokens, or both of texts"}
	}
}

func (m *mapped) Check(w Widths) error {
	n := w[m.in]
	switch {
	case n == absent && m.optional:
		return nil
	case n == absent:
		return &diagnostic.Error{Path: m.path,
			Found:  fmt.Sprintf("a module that reads %s, which no module before it makes", m.in),
			Needed: "a Pooling before it, or another module_input_name"}
	case m.inGraph && n == m.to:
		m.row, m.from = func(in, out []float32) { copy(out, in) }, m.to
	case n > 0 && m.from > 0 && n != m.from:
		return m.unfit(n)
	}
	if m.to > 0 {
		n = m.to
	}
	w[m.out] = n
	return nil
}

func (m *mapped) unfit(n int) error {
	return &diagnostic.Error{Path: m.path, Found: fmt.Sprintf("a module that reads %d numbers after one of %d", m.from, n),
		Needed: "as many"}
}

func (m *mapped) Apply(f *Features) error {
	in := f.of(m.in)
	if in.Values == nil {
		return nil // Check saw that it may be absent
	}
	if m.from > 0 && in.Width != m.from {
		return m.unfit(in.Width)
	}
	width := in.Width
	if m.to > 0 {
		width = m.to
	}
	rows := len(in.Values) / in.Width
	out := Rows{make([]float32, rows*width), width}
	for r := range rows {
		m.row(in.Values[r*in.Width:(r+1)*in.Width], out.Values[r*width:(r+1)*width])
	}
	f.set(m.out, out)
	return nil
}

// Truncate leaves the first numbers of a text's vector, as truncate_dim says.
type Truncate int

// Check is Module's.
func (n Truncate) Check(w Widths) error {
	w[SentenceEmbedding] = min(w[SentenceEmbedding], int(n))
	return nil
}

// Apply is Module's.
func (n Truncate) Apply(f *Features) error {
	f.Vector = f.Vector[:min(len(f.Vector), int(n))]
	return nil
}
