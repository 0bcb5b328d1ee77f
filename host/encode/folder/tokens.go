package folder

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
)

// Task is what a text is for, where a model treats queries and documents in two ways.
type Task string

// The tasks that sentence-transformers names. "" is neither.
const (
	Query    Task = "query"
	Document Task = "document"
)

// Expansion fills a query up with tokens, whose vectors count (Khattab and Zaharia 2020, section 3.2).
type Expansion struct {
	Length int    // tokens that a query has at least, special ones counted
	Fixed  bool   // longer queries are cut to it
	Attend bool   // other tokens see them
	Token  string // "" for the tokenizer's mask_token, else its eos_token
}

// Vocabulary finds tokens of a tokenizer.
type Vocabulary interface {
	ID(token string) (id int64, ok bool)
	Role(name string) string
	First(text string) (id int64, ok bool) // of the tokens of a text
}

// mask leaves the vectors of the tokens of a text that count when queries and documents are compared.
type mask struct {
	path    string
	words   []string
	tasks   []Task
	only    []int64 // of anything but a query these alone count; nil for all
	unknown bool    // a word that is no token stands for the unknown one, as PyLate has it
	first   bool    // a word is the first of its tokens, as ColBERT has it
	ids     []int64 // of words
}

func readMask(folder string, _ *Folder) (Module, error) {
	o, _, err := readObject(filepath.Join(folder, "config.json"), "MultiVectorMask")
	if err != nil {
		return nil, err
	}
	m := &mask{path: o.path, tasks: []Task{Document}}
	o.value("skiplist_words", "a list of words", &m.words)
	o.value("skiplist_tasks", "a list of tasks", &m.tasks)
	o.value("keep_only_token_ids", "a list of ids", &m.only)
	return m, o.close()
}

// Resolve finds the ids of the words.
func (m *mask) Resolve(v Vocabulary) {
	m.ids = nil
	for _, word := range m.words {
		find := v.ID
		if m.first {
			find = v.First
		}
		id, ok := find(word)
		if !ok && m.unknown {
			id, ok = v.ID(v.Role("unk_token"))
		}
		if ok {
			m.ids = append(m.ids, id)
		}
	}
}

func (m *mask) Check(w Widths) error {
	if w[TokenEmbeddings] == absent {
		return &diagnostic.Error{Path: m.path, Found: "a MultiVectorMask without vectors of tokens before it",
			Needed: "a Transformer"}
	}
	if w[SentenceEmbedding] != absent {
		return &diagnostic.Error{Path: m.path, Found: "a MultiVectorMask after a Pooling", Needed: "one of the two"}
	}
	w[masked] = 0
	return nil
}

func (m *mask) Apply(f *Features) error {
	f.only(func(t int) bool {
		if t >= len(f.IDs) {
			return true
		}
		id := f.IDs[t]
		task := f.Task
		if task == "" {
			task = Document
		}
		return !(slices.Contains(m.tasks, task) && slices.Contains(m.ids, id)) &&
			(f.Task == Query || len(m.only) == 0 || slices.Contains(m.only, id))
	})
	f.Expanded = 0 // those that are left count
	return nil
}

// late reads PyLate's keys, of a folder of a late-interaction model that it saved.
func (f *Folder) late(o *object) {
	before := o.keys
	_, has := before["query_prefix"]
	if f.Kind != "ColBERT" && (f.Kind != "" || !has) {
		return
	}
	f.Kind = "ColBERT"
	l := &Late{QueryMarker: "[Q] ", DocumentMarker: "[D] ", skip: punctuation, pylate: true}
	if s, ok := o.text("query_prefix"); ok {
		l.QueryMarker = s
	}
	if s, ok := o.text("document_prefix"); ok {
		l.DocumentMarker = s
	}
	o.value("skiplist_words", "a list of words", &l.skip)
	f.QueryTokens, f.DocumentTokens = 32, 180
	if n := o.number("query_length", 1, limit.Tokens); n > 0 {
		f.QueryTokens = n
	}
	if n := o.number("document_length", 1, limit.Tokens); n > 0 {
		f.DocumentTokens = n
	}
	attend := o.bool("attend_to_expansion_tokens", false)
	if o.bool("do_query_expansion", true) {
		f.Expansion = &Expansion{Length: f.QueryTokens, Fixed: true, Attend: attend}
	}
	f.Late = l
}

// Late is what PyLate and ColBERT do with texts: a token that marks queries and one for documents come after the first
// one.
type Late struct {
	QueryMarker, DocumentMarker string

	skip   []string
	pylate bool
}

// punctuation is Python's string.punctuation.
var punctuation = func() (list []string) {
	for r := rune(33); r < 127; r++ {
		if r < '0' || r > '9' && r < 'A' || r > 'Z' && r < 'a' || r > 'z' {
			list = append(list, string(r))
		}
	}
	return list
}()

// finish is what becomes of the vectors of tokens of PyLate and ColBERT after the folder's modules.
func (l *Late) finish(f *Folder) {
	path := filepath.Join(f.Path, "config_sentence_transformers.json")
	f.Modules = append(f.Modules, &mask{path: path, words: l.skip, tasks: []Task{Document}, unknown: l.pylate,
		first: !l.pylate},
		normalize(&mapped{path: path, in: TokenEmbeddings, out: TokenEmbeddings}))
}

// readColBERT reads a folder as colbert-ai saves it: the linear layer stands in the weights of the whole model, and
// artifact.metadata says the rest.
func (f *Folder) readColBERT() error {
	file, err := openSafetensors(filepath.Join(f.Path, "model.safetensors"), "linear layer of ColBERT")
	if err != nil {
		return err
	}
	defer file.Close()
	w, err := file.take("linear.weight", -1, -1)
	if err != nil {
		return err
	}
	o, _, err := readObject(filepath.Join(f.Path, "artifact.metadata"), "artifact.metadata")
	if err != nil {
		return err
	}
	f.Kind = "ColBERT"
	f.Late = &Late{QueryMarker: "[unused0]", DocumentMarker: "[unused1]"}
	if s, ok := o.text("query_token_id"); ok && s != "" {
		f.Late.QueryMarker = s
	}
	if s, ok := o.text("doc_token_id"); ok && s != "" {
		f.Late.DocumentMarker = s
	}
	f.QueryTokens, f.DocumentTokens = 32, 220
	if n := o.number("query_maxlen", 1, limit.Tokens); n > 0 {
		f.QueryTokens = n
	}
	if n := o.number("doc_maxlen", 1, limit.Tokens); n > 0 {
		f.DocumentTokens = n
	}
	f.Expansion = &Expansion{Length: f.QueryTokens, Fixed: true, Attend: o.bool("attend_to_mask_tokens", false)}
	if o.bool("mask_punctuation", true) {
		f.Late.skip = punctuation
	}
	o.refuse("similarity", `"cosine"`, "")
	o.refuse("interaction", `"colbert"`, "")
	o.refuse("relu", "false", "")
	if n := o.number("dim", 1, maxWidth); n > 0 && n != w.shape[0] && o.err == nil {
		o.err = &diagnostic.Error{Path: o.path, Found: fmt.Sprintf("dim is %d", n),
			Needed: fmt.Sprintf("%d, the width of linear.weight in model.safetensors", w.shape[0])}
	}
	if o.err != nil {
		return o.err // most of what artifact.metadata holds is of training and of an index
	}
	m := &mapped{path: file.path, in: TokenEmbeddings, out: TokenEmbeddings, from: w.shape[1], to: w.shape[0],
		inGraph: true}
	m.row = func(in, out []float32) {
		for i := range out {
			out[i] = float32(dot(w.values[i*len(in):(i+1)*len(in)], in))
		}
	}
	f.Modules = append(f.Modules, m)
	f.Late.finish(f)
	return nil
}

// readExpansion reads query_expansion of a Transformer.
func (f *Folder) readExpansion(o *object) {
	in, ok := o.inner("query_expansion")
	if !ok {
		return
	}
	e := &Expansion{Length: in.number("length", 1, limit.Tokens), Attend: in.bool("attend", false),
		Fixed: in.choice("strategy", "fixed", "min") == "fixed"}
	e.Token, _ = in.text("token")
	if e.Length == 0 && in.err == nil {
		in.err = &diagnostic.Error{Path: o.path, Found: "query_expansion without length", Needed: "the tokens of a query"}
	}
	if err := in.close(); err != nil && o.err == nil {
		o.err = err
	}
	f.Expansion = e
}

// Limit is the number of tokens of a text, special ones counted: of a query or a document where a model says one.
// Without any it is 0.
func (f *Folder) Limit(task Task) int {
	n := f.MaxTokens
	switch {
	case f.fixed: // processing_kwargs count more
	case task == Query && f.QueryTokens > 0:
		n = f.QueryTokens
	case task == Document && f.DocumentTokens > 0:
		n = f.DocumentTokens
	}
	if e := f.Expansion; e != nil && task == Query {
		switch {
		case e.Fixed:
			n = e.Length
		case !f.fixed && f.QueryTokens > 0:
			n = max(f.QueryTokens, e.Length)
		case !f.fixed:
			n = f.MaxTokens
		}
	}
	return n
}

// ExpansionToken is the id that fills queries up.
func (f *Folder) ExpansionToken(v Vocabulary) (int64, error) {
	token := f.Expansion.Token
	for _, role := range []string{"mask_token", "eos_token", "pad_token"} {
		if token == "" && (role != "pad_token" || f.Late != nil) {
			token = v.Role(role)
		}
	}
	id, ok := v.ID(token)
	if token == "" || !ok {
		return 0, &diagnostic.Error{Path: filepath.Join(f.Path, "tokenizer_config.json"),
			Found:  fmt.Sprintf("no token %q, with which queries are filled up", diagnostic.Clip(token)),
			Needed: "mask_token, or eos_token"}
	}
	return id, nil
}
