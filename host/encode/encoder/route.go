package encoder

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/encode/folder"
	"github.com/opgraft/graft/host/generate/text"
	"github.com/opgraft/graft/host/ort"
)

// route is how texts of a task become vectors.
type route struct {
	*base
	options Options
	outputs []output
	whole   bool            // the graph pools
	pool    *folder.Pooling // the last one; nil where there is none
	modules []folder.Module
	gives   Gives
	width   int // of a vector; 0 where the model does not say it
	marker  map[folder.Task]int64
	filler  int64 // what fills queries up
	median  int   // length of a token, of model2vec
	unknown int64 // the token that model2vec leaves out
	m3      *m3   // nil but for BGE-M3
}

// choose decides which output is used, and how it becomes a vector.
func (r *route) choose(path string, o Options) error {
	f := r.folder
	switch f.Kind {
	case "SparseEncoder":
		r.gives.Sparse = true
	case "MultiVectorEncoder", "ColBERT":
		r.gives.Tokens = true
	default:
		r.gives.Dense = true
	}
	if err := r.resolve(); err != nil {
		return err
	}
	if f.Input != nil {
		if f.Model2Vec {
			if err := r.static(); err != nil {
				return err
			}
		}
		if len(o.Pooling) > 0 {
			return &diagnostic.Error{Path: path, Found: "a static embedding, whose vectors are not pooled", Needed: "no pooling",
				Fix: "leave out the pooling"}
		}
		if f.Unfit != nil {
			return f.Unfit
		}
		r.modules = slices.Concat([]folder.Module{f.Input}, f.Modules, after(f, o))
		return r.check(path, folder.Widths{folder.TokenEmbeddings: -1, folder.SentenceEmbedding: -1, folder.Scores: -1})
	}
	return r.chooseOutput(path, o)
}

// resolve finds tokens that the folder names.
func (r *route) resolve() (err error) {
	f := r.folder
	if f.Expansion != nil {
		if r.filler, err = f.ExpansionToken(r.tokenizer); err != nil {
			return err
		}
	}
	if f.Late != nil {
		r.marker = map[folder.Task]int64{}
		for task, token := range map[folder.Task]string{folder.Query: f.Late.QueryMarker,
			folder.Document: f.Late.DocumentMarker} {
			id, ok := r.tokenizer.ID(token)
			if !ok && token != "" {
				return &diagnostic.Error{Path: filepath.Join(f.Path, "tokenizer.json"),
					Found: fmt.Sprintf("no token %q, which marks texts", diagnostic.Clip(token)), Needed: "it"}
			}
			if ok {
				r.marker[task] = id
			}
		}
	}
	for _, m := range f.Modules {
		if m, ok := m.(interface{ Resolve(folder.Vocabulary) }); ok {
			m.Resolve(r.tokenizer)
		}
	}
	return nil
}

func (r *route) chooseOutput(path string, o Options) error {
	b, f := r.base, r.folder
	if found, err := r.chooseM3(path, o); found {
		return err
	}
	names := []string{"token_embeddings", "last_hidden_state"}
	if f.Logits() {
		names = []string{"logits"}
	}
	states, hasStates := b.output(3, names...)
	whole, hasWhole := b.output(2, "sentence_embedding")
	if hasStates && !f.Logits() && !slices.Contains(names, states.Name) && f.Words > 0 &&
		states.Shape[2] == int64(f.Words) {
		hasStates = false // logits of the vocabulary by another name
	}
	modules, unfit := f.Modules, f.Unfit
	switch {
	case len(o.Pooling) > 0 && (f.Logits() || !r.gives.Dense):
		return &diagnostic.Error{Path: path,
			Found:  "a pooling that is asked for, and a folder that gives sparse vectors or vectors of tokens",
			Needed: "one of hidden states", Fix: "leave out the pooling"}
	case len(o.Pooling) > 0 && hasStates:
		pool := &folder.Pooling{Modes: o.Pooling, Prompt: true}
		if p := f.Pooling(); p != nil {
			pool.Prompt = p.Prompt
		}
		r.pool, modules, unfit = pool, []folder.Module{pool}, nil
	case len(o.Pooling) > 0:
		return &diagnostic.Error{Path: b.path, Found: "no output of hidden states to pool among " + b.listed(),
			Needed: "one of shape [batch, sequence, width]", Fix: "leave out the pooling"}
	case hasWhole && (whole.Name == "sentence_embedding" || !hasStates) && !b.needsStates(hasStates) && !r.gives.Tokens:
		// The graph is the whole way.
		r.outputs, r.whole, r.modules = []output{{whole, 0}}, true, after(f, o)
		return r.check(path, folder.Widths{folder.TokenEmbeddings: -1, folder.Scores: -1,
			folder.SentenceEmbedding: int(max(whole.Shape[1], 0))})
	case !hasStates:
		return &diagnostic.Error{Path: b.path, Found: "the outputs " + b.listed(),
			Needed: "hidden states [batch, sequence, width], or sentence_embedding [batch, width]",
			Fix:    "export the model for feature-extraction"}
	case unfit != nil:
		return unfit
	case r.gives.Tokens:
	case f.Pooling() != nil:
		r.pool = f.Pooling()
	case f.Given && r.gives.Dense:
		return &diagnostic.Error{Path: filepath.Join(path, "modules.json"), Found: "no Pooling",
			Needed: "one after the Transformer"}
	case !f.Given:
		return &diagnostic.Error{Path: path,
			Found:  "nothing says how the model pools: no modules.json with a Pooling, no output sentence_embedding",
			Needed: "the pooling that the model was trained with",
			Fix:    `say it: --pooling mean --normalize, or graft.Pooling("mean") and graft.Normalize()`}
	}
	if err := b.wide(states); err != nil {
		return err
	}
	r.outputs, r.modules = []output{{states, 0}}, slices.Concat(modules, after(f, o))
	return r.check(path, folder.Widths{folder.TokenEmbeddings: int(max(states.Shape[2], 0)),
		folder.SentenceEmbedding: -1, folder.Scores: -1})
}

// wide refuses hidden states of another width than config.json says: the graph and the files beside it are not of one
// model. A graph that has ColBERT's linear layer inside gives narrower ones.
func (b *base) wide(states ort.ValueInfo) error {
	n, f := states.Shape[2], b.folder
	if states.Name != "last_hidden_state" || n <= 0 || f.Hidden == 0 || n == int64(f.Hidden) || f.Late != nil {
		return nil
	}
	return &diagnostic.Error{Path: filepath.Join(f.Path, "config.json"), Found: fmt.Sprintf("hidden_size is %d", f.Hidden),
		Needed: fmt.Sprintf("%d, the width of the graph's last_hidden_state", n),
		Fix:    "copy both from where the model comes from"}
}

// needsStates is whether the folder's own modules are taken in place of a vector of the graph's: it counts the tokens
// of prompts, which the folder does not.
func (b *base) needsStates(has bool) bool {
	p := b.folder.Pooling()
	return has && b.folder.Unfit == nil && p != nil && !p.Prompt && len(b.folder.Prompts) > 0
}

// after is what is done to a vector after the folder's modules: it is cut first.
func after(f *folder.Folder, o Options) (list []folder.Module) {
	if f.Truncate > 0 {
		list = append(list, folder.Truncate(f.Truncate))
	}
	if o.Normalize {
		list = append(list, folder.Normalize())
	}
	return list
}

// check follows the widths through the modules.
func (r *route) check(path string, w folder.Widths) error {
	for _, m := range r.modules {
		if err := m.Check(w); err != nil {
			return err
		}
	}
	r.width = w[folder.SentenceEmbedding]
	if r.gives.Tokens && !r.gives.Dense {
		r.width = w[folder.TokenEmbeddings]
	}
	if r.width < 0 {
		return &diagnostic.Error{Path: filepath.Join(path, "modules.json"), Found: "no module that makes a vector of a text",
			Needed: "a Pooling, or a SpladePooling"}
	}
	return nil
}

// prompt is the text that comes before texts; given is false where there is none, not even an empty one.
func (r *route) prompt(as As) (before string, given bool, err error) {
	f, name := r.folder, as.Prompt
	if name == "" {
		if name = string(as.Task); name == "" { // with a task the default is not asked for, whether or not it has a prompt
			name = f.Prompt
		}
		before, given = f.Prompts[name]
		return before, given, nil
	}
	if before, given = f.Prompts[name]; !given {
		return "", false, noPrompt(name)
	}
	return before, true, nil
}

// encoded makes tokens of a text.
func (r *route) encoded(ctx context.Context, s string, as As) (Row, error) {
	f := r.folder
	before, given, err := r.prompt(as)
	if err != nil {
		return Row{}, err
	}
	early := f.Version != (folder.Version{}) && !f.Version.AtLeast(5, 0)
	given = given && (before != "" || early)
	if p := f.Pooling(); given && r.whole && p != nil && !p.Prompt {
		return Row{}, &diagnostic.Error{Path: r.path, Found: "an output sentence_embedding, which counts a prompt's tokens",
			Needed: "hidden states: include_prompt is false in the Pooling"}
	}
	row, err := r.tokens(ctx, before+s, as.Task)
	if err != nil || !given || r.pool == nil || r.pool.Prompt {
		return row, err
	}
	// The prompt's tokens do not count; the special token after it is none of them. Before 5.0 an empty prompt has such
	// tokens too, and its last one counts whatever it is.
	alone, err := r.tokens(ctx, before, as.Task)
	if err != nil {
		return Row{}, err
	}
	row.prompt = len(alone.IDs)
	if early || r.tokenizer.Special(alone.IDs[row.prompt-1]) {
		row.prompt--
	}
	return row, nil
}

// tokens are those of a text with its prompt, and what the folder adds to them.
func (r *route) tokens(ctx context.Context, s string, task folder.Task) (Row, error) {
	f, longest := r.folder, r.limit(task)
	id, marked := r.marker[task]
	if marked && longest > 0 {
		if longest--; longest == 0 {
			return Row{}, errors.New("no room for a text beside the token that marks it")
		}
	}
	if f.Model2Vec && longest > 0 {
		s = firstRunes(s, longest*r.median)
	}
	row, err := r.rowOf(ctx, text.EncodeOptions{MaxLength: longest, OmitSpecialTokens: f.Input != nil}, f.Clean(s))
	row.of, row.task = r, task
	if err != nil {
		return row, err
	}
	if f.Model2Vec {
		row.IDs = slices.DeleteFunc(row.IDs, func(id int64) bool { return id == r.unknown })
	}
	if marked {
		at := min(1, len(row.IDs))
		row.IDs = slices.Insert(row.IDs, at, id)
		if row.Types != nil {
			row.Types = slices.Insert(row.Types, at, 0)
		}
	}
	if e := f.Expansion; e != nil && task == folder.Query {
		row.expanded = max(min(e.Length, max(r.limit(task), len(row.IDs)))-len(row.IDs), 0)
		row.IDs = append(row.IDs, slices.Repeat([]int64{r.filler}, row.expanded)...)
		if !e.Attend {
			row.hidden = row.expanded
		}
	}
	return row, nil
}

// static finds what model2vec asks a tokenizer: the length of half of the tokens, in characters, and the unknown one.
func (r *route) static() error {
	var lengths []int
	for id := int64(0); ; id++ {
		token, ok := r.tokenizer.Token(id)
		if !ok {
			break
		}
		lengths = append(lengths, utf8.RuneCountInString(token))
	}
	slices.Sort(lengths)
	if n := len(lengths); n > 0 {
		r.median = (lengths[n/2] + lengths[(n-1)/2]) / 2
	}
	id, ok, err := r.tokenizer.Unknown()
	if r.unknown = -1; ok {
		r.unknown = id
	}
	return err
}

// firstRunes are the first characters of a text.
func firstRunes(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}

// embed computes rows.
func (r *route) embed(ctx context.Context, rows []Row) ([]Embedding, error) {
	out := make([]Embedding, len(rows))
	finish := func(i int, f *folder.Features) error {
		row := &rows[i]
		f.IDs, f.Task, f.Length, f.Prompt, f.Expanded = row.IDs, row.task, row.Length(), row.prompt, row.expanded
		for _, m := range r.modules {
			if err := m.Apply(f); err != nil {
				return err
			}
		}
		switch {
		case r.gives.Dense:
			out[i].Dense = f.Vector
		case r.gives.Tokens:
			f.Settle(r.folder.Expansion != nil && r.folder.Expansion.Attend)
			out[i].Tokens = folder.Rows{Values: slices.Clone(f.Tokens.Values), Width: f.Tokens.Width}
		default:
			folder.KeepGreatest(f.Vector, r.folder.MaxActive)
			out[i].Sparse = sparse(f.Vector)
		}
		return nil
	}
	if r.runner == nil {
		for i := range rows {
			if err := finish(i, &folder.Features{}); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return out, r.run(ctx, rows, r.outputs, func(i, o int, values []float32, width int) error {
		switch n := rows[i].Length(); {
		case o > 0 && o == r.m3.sparse:
			out[i].Sparse = r.m3.weigh(rows[i].IDs, values, r.folder.Words)
			return nil
		case o > 0:
			out[i].Tokens = folder.Rows{Values: slices.Clone(values[:(n-1)*width]), Width: width}
			return nil
		case r.whole:
			return finish(i, &folder.Features{Vector: append([]float32(nil), values[:min(width, len(values))]...)})
		}
		return finish(i, &folder.Features{Tokens: folder.Rows{Values: values[:rows[i].Length()*width], Width: width}})
	})
}

// sparse is a vector without its zeros.
func sparse(v []float32) Sparse {
	s := Sparse{Width: len(v)}
	for i, x := range v {
		if x != 0 {
			s.Indices, s.Weights = append(s.Indices, int32(i)), append(s.Weights, x)
		}
	}
	return s
}
