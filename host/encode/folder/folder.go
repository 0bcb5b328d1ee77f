// Package folder reads the configuration of a model's folder, as sentence-transformers 2 to 6.2 write it: what becomes
// of a text before the graph, and of the graph's output after it. A key that it does not know is an error, since it may
// change every answer; unused.go lists those that change none.
package folder

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
)

// Folder is what a folder says.
type Folder struct {
	Path    string   // of the Transformer's files, the tokenizer's among them
	Given   bool     // there is a modules.json
	Modules []Module // after the Transformer
	// Unfit is why the modules cannot be applied: one of them is not implemented. nil where they can.
	Unfit error

	Kind       string  // model_type: SentenceTransformer, CrossEncoder or another; "" where it is not said
	Version    Version // of sentence-transformers that wrote the folder
	Prompts    map[string]string
	Prompt     string // the name of the one that is used where none is asked for
	Truncate   int    // numbers of a vector that are kept; 0 for all
	MaxTokens  int    // of an input, as the configurations say; 0 for no limit
	Pad        int64  // what rows are filled up with
	Pads, Cuts Side   // where rows are filled up, and where what is too long is cut; "" is the tokenizer's
	Labels     int    // of a classifier; 0 where it is not said
	Words      int    // of the vocabulary, as config.json says; 0 where it does not
	Hidden     int    // the width of last_hidden_state, as config.json says; 0 where it does not
	// Architecture is the model's class in transformers, BertForSequenceClassification; "" where it is not said.
	Architecture string
	Activation   string // of a cross-encoder's scores; "" where it is not said
	Types        bool   // the model is given the types of tokens

	// Causal is whether the Transformer gives logits of each token, of which a LogitScore makes a score.
	Causal bool
	Chat   *Chat // how pairs of texts are rendered; nil where they are read one after the other

	// Input makes a text's vector of its tokens, in place of a graph; nil for a graph. Its tokens have no special ones
	// around.
	Input     Module
	Stored    bool // texts are cut as tokenizer.json itself says
	Model2Vec bool // unknown tokens are left out, and long texts are cut before they are tokens

	Vocabulary bool   // the numbers of a vector are those of the tokenizer's tokens
	MaxActive  int    // numbers of a vector that are not 0, as max_active_dims says; 0 for all
	Similarity string // by which vectors are compared: similarity_fn_name; "" where it is not said

	// Of vectors of tokens: Late is what PyLate and ColBERT do, and QueryTokens and DocumentTokens are the greatest
	// lengths of texts, 0 where they are not said.
	Late                        *Late
	Expansion                   *Expansion // nil for none
	QueryTokens, DocumentTokens int

	Routes   map[string]*Folder // of a Router; nil where there is none
	Fallback string             // the route of texts of no task; "" where there is none

	labels       labels
	lower        bool
	logits       bool      // the Transformer gives logits of a vocabulary in place of hidden states
	fixed        bool      // MaxTokens counts more than QueryTokens and DocumentTokens
	transformers Version   // that wrote config.json
	activatedBy  [2]string // file and key of Activation
}

// Side is left or right.
type Side string

// Left is whether it is the left one, which another one decides where it is not said.
func (s Side) Left(otherwise bool) bool { return s == "left" || s == "" && otherwise }

// Version is a version's major and minor number; zero where it is not known.
type Version struct{ Major, Minor int }

// AtLeast is false where the version is not known.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

func parseVersion(s string) (v Version) {
	major, rest, _ := strings.Cut(s, ".")
	minor := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))] // 5.0rc1 is of 5.0
	a, err := strconv.Atoi(major)
	b, wrong := strconv.Atoi(minor)
	if err != nil || wrong != nil || a < 0 || b < 0 {
		return Version{}
	}
	return Version{a, b}
}

// Read reads a folder. Its graph is not looked at.
func Read(folder string) (*Folder, error) {
	f := &Folder{Path: folder, Prompts: map[string]string{}}
	if err := f.readModel(folder); err != nil {
		return nil, err
	}
	if err := f.readModules(folder); err != nil {
		return nil, err
	}
	parts := []*Folder{f}
	if f.Routes != nil {
		parts = slices.Collect(maps.Values(f.Routes))
	}
	for _, part := range parts {
		if err := part.readConfig(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Logits is whether the Transformer gives logits of a vocabulary in place of hidden states.
func (f *Folder) Logits() bool { return f.logits }

// readModel reads config_sentence_transformers.json.
func (f *Folder) readModel(folder string) error {
	path := filepath.Join(folder, "config_sentence_transformers.json")
	o, _, err := readObject(path, "config_sentence_transformers.json")
	if err != nil {
		return err
	}
	if v, ok := o.inner("__version__"); ok {
		f.Version = v.version("sentence_transformers")
		if err := v.close(); err != nil {
			return err
		}
	}
	f.Kind, _ = o.text("model_type")
	var prompts map[string]*string
	if o.value("prompts", "texts by name", &prompts) {
		for name, text := range prompts {
			f.Prompts[name] = ""
			if text != nil {
				f.Prompts[name] = *text
			}
		}
	}
	if f.Prompt, _ = o.text("default_prompt_name"); f.Prompt != "" {
		if _, ok := f.Prompts[f.Prompt]; !ok {
			return &diagnostic.Error{Path: path, Found: fmt.Sprintf("default_prompt_name is %q", diagnostic.Clip(f.Prompt)),
				Needed: "one of prompts"}
		}
	}
	f.Truncate = o.number("truncate_dim", 1, maxWidth)
	f.activation(o, "activation_fn", "activation_fn")
	f.Similarity, _ = o.text("similarity_fn_name")
	f.MaxActive = o.number("max_active_dims", 1, maxVocabulary)
	f.late(o)
	return o.close()
}

// activation reads the class of a cross-encoder's activation, which several files may name: the first one counts.
func (f *Folder) activation(o *object, key, shown string) {
	if class, ok := o.text(key); ok && f.Activation == "" {
		f.Activation, f.activatedBy = class, [2]string{o.path, shown}
	}
}

// ScoresBy is the activation of a cross-encoder's scores. Where the folder names none it is Sigmoid for one label, as
// sentence-transformers has it.
func (f *Folder) ScoresBy() (Activation, error) {
	if f.Activation == "" {
		return activations["Sigmoid"], nil
	}
	a, err := FindActivation(f.activatedBy[0], f.activatedBy[1], f.Activation)
	if e, ok := err.(*diagnostic.Error); ok {
		e.Fix = "ask for logits (RawScores, --raw)"
	}
	return a, err
}

// readConfig reads what concerns texts and scores in config.json, most of which describes the graph, and the
// tokenizer's configuration.
func (f *Folder) readConfig() error {
	path := filepath.Join(f.Path, "config.json")
	o, _, err := readObject(path, "config.json")
	if err != nil {
		return err
	}
	if in, ok := o.inner("sentence_transformers"); ok {
		f.activation(in, "activation_fn", "sentence_transformers.activation_fn")
		if v := in.version("version"); f.Version == (Version{}) {
			f.Version = v
		}
		if err := in.close(); err != nil {
			return err
		}
	}
	f.transformers = o.version("transformers_version")
	f.activation(o, "sbert_ce_default_activation_function", "sbert_ce_default_activation_function")
	positions := float64(o.number("max_position_embeddings", -1, 1<<53))
	f.Words = o.number("vocab_size", -1, maxVocabulary)
	f.Pad = max(int64(o.number("pad_token_id", -1<<31, limit.Tokens)), 0) // below 0 there is none
	f.readLabels(o)
	kind, _ := o.text("model_type")
	f.Hidden = o.number("hidden_size", 1, maxWidth)
	if kind == "reformer" || o.number("word_embed_proj_dim", 1, maxWidth) > 0 {
		f.Hidden = 0 // of layers inside: the output is twice as wide, or projected
	}
	class, _ := o.text("tokenizer_class")
	if o.err != nil {
		return o.err
	}
	if !f.Given {
		switch {
		case f.Architecture == "HF_ColBERT":
			if err := f.readColBERT(); err != nil {
				return err
			}
		case kind == "model2vec" || o.keys["embedding_dtype"] != nil:
			return f.readModel2Vec(o)
		}
	}
	if f.Stored { // nothing but tokenizer.json is read
		return nil
	}
	longest, err := f.readTokenizer(class)
	if err != nil {
		return err
	}
	if f.MaxTokens == 0 {
		for _, n := range []float64{positions, longest} {
			if n >= 1 && n <= limit.Tokens && (f.MaxTokens == 0 || int(n) < f.MaxTokens) {
				f.MaxTokens = int(n)
			}
		}
	}
	return nil
}

// strip takes off blanks around a text, those of Python's str.strip.
func strip(s string) string { return strings.TrimFunc(s, isBlank) }

// Clean is a text of an embedder as it is tokenized.
func (f *Folder) Clean(s string) string {
	if f.Input != nil {
		return s
	}
	if !f.Version.AtLeast(5, 4) { // which does not strip, and has the tokenizer make lower case
		s = strip(s)
	}
	if f.lower {
		s = lower(s)
	}
	return s
}

// CleanPair is a text of a cross-encoder as it is tokenized.
func (f *Folder) CleanPair(s string) string {
	if f.Version != (Version{}) && !f.Version.AtLeast(4, 0) {
		s = strip(s)
	}
	return s
}
