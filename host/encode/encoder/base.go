// Package encoder turns texts into vectors, and queries with documents into scores, with a folder of an exported
// encoder and its tokenizer, as sentence-transformers does. Texts of all callers share batches (host/encode/batch).
package encoder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/encode/folder"
	"github.com/opgraft/graft/host/generate/text"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
)

// Options say how a folder is opened.
type Options struct {
	Library    *ort.Library
	Plugins    *loaded.Set // nil for none: the model runs as exported
	Plan       plan.Options
	MapWeights bool
	Share      shared.Wish       // of weights, with other processes
	Threads    int               // of an operator; 0 is one a core
	Config     map[string]string // entries of the session's configuration
	Logger     *slog.Logger      // nil for silence
	Note       func(string)      // is told what a user should know, in place of Logger
	ModelFile  string            // the graph, below the folder; "" finds it
	MaxText    int               // bytes of the texts of a row, above which they are refused; 0 is limit.Text
	MaxInput   int               // tokens to which inputs are cut; 0 is as the model's configuration says
	Pooling    []string          // in place of the configuration's; nil for that
	Normalize  bool              // vectors have the length 1, also where the configuration does not say so
	Raw        bool              // scores are logits
	Batch      batch.Options[Row]

	readsHidden bool // what is computed for tokens that the mask hides is read
}

// base is what all encoders have.
type base struct {
	*runner   // nil where a text's vector needs no graph
	folder    *folder.Folder
	tokenizer *text.Tokenizer
	maxText   int  // bytes of the texts of a row
	longest   int  // tokens of an input; 0 for no limit
	asked     int  // the greatest number that the caller says
	cutsLeft  bool // what is longer loses its first tokens

	conversation *conversation // that pairs of texts are; nil where they are none
}

// open reads a folder that has one graph.
func open(ctx context.Context, path string, o Options) (*base, error) {
	return model.ReadAgainIfChanged(func() (*base, error) {
		f, err := readFolder(path, o)
		if err != nil {
			return nil, err
		}
		if f.Routes != nil || f.Input != nil {
			return nil, &diagnostic.Error{Path: filepath.Join(path, "modules.json"), Found: "no Transformer as the first module",
				Needed: "one", Fix: "graft embed opens the folder"}
		}
		return openPart(ctx, path, f, o, map[string]*runner{})
	})
}

// readFolder reads what a folder says. Where it has no graph, and needs one, that is the error.
func readFolder(path string, o Options) (*folder.Folder, error) {
	f, err := folder.Read(path)
	if err != nil {
		if _, missing := graphFile(path, o.ModelFile); missing != nil && !errors.Is(missing, fs.ErrNotExist) {
			return nil, missing
		}
	}
	return f, err
}

// openPart opens a folder, or a route of one. Those of one graph share it.
func openPart(ctx context.Context, path string, f *folder.Folder, o Options, graphs map[string]*runner) (*base, error) {
	b := &base{folder: f, maxText: cmp.Or(o.MaxText, limit.Text), longest: f.MaxTokens, asked: o.MaxInput}
	file := ""
	var err error
	if f.Input == nil {
		if file, err = graphOf(path, f.Path, o.ModelFile); err != nil {
			return nil, err
		}
	}
	if b.tokenizer, err = text.Open(f.Path); err != nil {
		return nil, err
	}
	cuts, pads := b.tokenizer.Sides()
	b.cutsLeft = f.Cuts.Left(cuts)
	if f.Stored {
		if b.longest = b.tokenizer.Stored(); b.longest > 0 && b.tokenizer.CutsSecond() {
			return nil, &diagnostic.Error{Path: filepath.Join(f.Path, "tokenizer.json"),
				Found:  "truncation.strategy is OnlySecond, which cuts no text that stands alone",
				Needed: "LongestFirst or OnlyFirst"}
		}
	}
	if f.Input != nil {
		b.longest = b.least(b.longest)
		return b, nil
	}
	if b.runner = graphs[file]; b.runner == nil {
		o.readsHidden = f.Expansion != nil && !f.Expansion.Attend
		if b.runner, err = openSession(ctx, file, o); err != nil {
			return nil, err
		}
		graphs[file] = b.runner
		b.pad = f.Pad
	}
	b.longest = b.least(b.longest)
	err = b.paddable(f.Pads.Left(pads))
	if err == nil && f.Chat != nil {
		err = b.converse(ctx)
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// limit is the number of tokens of a text; 0 for no limit.
func (b *base) limit(task folder.Task) int {
	if b.folder.Input != nil {
		return b.longest
	}
	return b.least(b.folder.Limit(task))
}

// least is the least of a limit and those of the graph and of the caller; 0 where there is none.
func (b *base) least(n int) int {
	list := []int{n, b.asked}
	if b.runner != nil {
		list = append(list, b.positions)
	}
	list = slices.DeleteFunc(list, func(n int) bool { return n <= 0 })
	if len(list) == 0 {
		return 0
	}
	return slices.Min(list)
}

// paddable refuses a folder that pads on the left where the graph counts its positions from the first column: a text's
// vector would depend on the texts beside it, as it does in sentence-transformers.
func (b *base) paddable(left bool) error {
	fed := slices.ContainsFunc(b.inputs, func(in input) bool { return in.role == roles.Positions })
	if !left || b.positions == 0 || fed {
		return nil
	}
	return &diagnostic.Error{Path: filepath.Join(b.folder.Path, "tokenizer_config.json"),
		Found: "padding_side is left, and " +
			"the graph counts positions from the first column: a text's vector would depend on the length of others",
		Needed: "right, or a graph with an input of positions",
		Fix:    "set padding_side to right: each text then has the vector that it has alone"}
}

// row makes tokens of a text, or of two.
func (b *base) row(ctx context.Context, texts ...string) (Row, error) {
	return b.rowOf(ctx, text.EncodeOptions{}, texts...)
}

// judged makes tokens of a text and a hypothesis, which is not cut.
func (b *base) judged(ctx context.Context, premise, hypothesis string) (Row, error) {
	return b.rowOf(ctx, text.EncodeOptions{OnlyFirst: true}, premise, hypothesis)
}

func (b *base) rowOf(ctx context.Context, o text.EncodeOptions, texts ...string) (Row, error) {
	var e text.Encoding
	var err error
	bytes := 0
	for _, s := range texts {
		bytes += len(s)
	}
	if bytes > b.maxText {
		return Row{}, &diagnostic.Error{Found: fmt.Sprintf("found a text of %d bytes", bytes),
			Needed: fmt.Sprintf("at most %d", b.maxText), Fix: "cut it, or raise the largest size (MaxTextBytes)"}
	}
	if o.TruncateLeft = b.cutsLeft; o.MaxLength == 0 {
		o.MaxLength = b.longest
	}
	if len(texts) == 2 {
		e, err = b.tokenizer.EncodePair(ctx, texts[0], texts[1], o)
	} else {
		e, err = b.tokenizer.EncodeTyped(ctx, texts[0], o)
	}
	if err == nil && len(e.IDs) == 0 && b.folder.Input == nil {
		err = errors.New("the text has no tokens")
	}
	r := Row{IDs: e.IDs, Types: e.Types}
	if !b.folder.Types {
		r.Types = nil
	}
	return r, err
}

// batching is how rows become batches: of any lengths where padding costs nothing.
func (b *base) batching(o Options) batch.Options[Row] {
	o.Batch.Length = Row.Length
	o.Batch.Unpadded = o.Batch.Unpadded || b.runner == nil || b.unpadded
	return o.Batch
}
