package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/encode/encoder"
	"github.com/opgraft/graft/host/encode/folder"
	"github.com/opgraft/graft/host/generate/pipeline"
	"github.com/opgraft/graft/host/ort"
)

// encoding are the flags that embed, rerank and predict share.
type encoding struct {
	input, modelFile, maxLine       string
	threads, workers, tokens, maxIn int
}

func (o *encoding) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.input, "input", "-", "file of inputs, one a line; - is stdin")
	f.StringVar(&o.modelFile, "model-file", "",
		"the graph of a folder that has several, such as onnx/model_quantized.onnx")
	f.StringVar(&o.maxLine, "max-line", "1MiB", "a longer line of input is an error, with its number")
	between(f, &o.threads, "threads", 0, 0, limit.Threads, "threads inside an operator (default: one a core)")
	between(f, &o.workers, "workers", 2, 1, limit.Workers, "goroutines that turn text into tokens")
	between(f, &o.tokens, "batch-tokens", batch.DefaultTokens, 1, limit.Tokens,
		"maximum of tokens of a batch, padding counted")
	between(f, &o.maxIn, "max-input-tokens", 0, 0, limit.Tokens,
		"longer inputs are cut (default: what the model's configuration says)")
}

// input is what a command reads its lines from.
type input struct {
	read  func() (string, error)
	total int64 // 0 where they cannot be counted
	close func() error
}

// open opens the input, the runtime and the plugins.
func (o *encoding) open(c *cli) (in input, options encoder.Options, err error) {
	line, err := bytesOf("--max-line", o.maxLine, limit.Line)
	if err != nil {
		return in, options, err
	}
	if in.read, in.total, in.close, err = inputs(o.input, int(line)); err != nil {
		return in, options, err
	}
	l, err := ort.FindAndOpen(c.runtime)
	if err != nil {
		return in, options, errors.Join(err, in.close())
	}
	set, err := c.load(true)
	if err != nil {
		return in, options, errors.Join(err, in.close())
	}
	// Lines have a size of their own, --max-line.
	return in, encoder.Options{Library: l, Plugins: set, MaxText: limit.Line, Threads: o.threads,
		Note: func(why string) { c.say("graft: %s", why) }, MaxInput: o.maxIn, ModelFile: o.modelFile,
		Batch: batch.Options[encoder.Row]{MaxTokens: o.tokens}}, nil
}

func (c *cli) embed() *cobra.Command {
	var o encoding
	var pooling, prompt, task string
	var normalize bool
	cmd := &cobra.Command{
		Use:   "embed MODEL_DIR",
		Short: "Turn lines of text into vectors with an exported encoder",
		Long: `Reads one text a line and writes one vector a line, in the same order. MODEL_DIR is a
folder as sentence-transformers or optimum saves it: onnx/model.onnx or model.onnx,
the tokenizer's files, and modules.json with what it names. Pooling, normalisation,
prompts and the greatest length are the model's own; a folder that does not say how it
pools needs --pooling.

A model gives one vector of a text, a sparse one (SPLADE) or a vector for each token
(ColBERT). --task query and --task document embed texts as encode_query and
encode_document do; models of PyLate and ColBERT need one of them.

-o jsonl writes objects: index, embedding, sparse_embedding or token_embeddings, and error
where a line has none. -o npy writes one array of float32 for NumPy, in which such a line is
a row of NaN; -o npz several: embeddings, the parts of a sparse matrix as SciPy reads it, or
token_embeddings with the offsets of texts. -o text writes numbers with spaces between, and
an empty line. -o FILE writes to a file, of the form that its name ends with, and a summary
to stdout. Exit code 1 when any line failed.`,
		Example: `  graft embed all-MiniLM-L6-v2 --input texts.txt -o vectors.npy
  graft embed models/encoders/embedder -o jsonl < texts.txt
  graft embed e5-small-v2 --pooling mean --normalize -o npy < texts.txt > vectors.npy`,
		Args:        exactly(1, "one model folder"),
		Annotations: map[string]string{writesFile: "true", takesForms: "jsonl npy npz"},
		RunE: func(cmd *cobra.Command, args []string) error {
			var modes []string
			if pooling != "" {
				var err error
				if modes, err = folder.ParsePooling(pooling); err != nil {
					return misused("--pooling", err)
				}
			}
			in, options, err := o.open(c)
			if err != nil {
				return err
			}
			defer in.close()
			options.Pooling, options.Normalize = modes, normalize
			e, err := encoder.OpenEmbedder(cmd.Context(), args[0], options)
			if err != nil {
				return err
			}
			defer e.Close()
			var write func(encoder.Vector, encoder.Embedding) error
			arrays := []string{"npy", "npz"}
			return c.encoded("embedded", o.input, in.total, arrays, func(form string, to io.Writer) (func() error, error) {
				var finish func() error
				var err error
				write, finish, err = vectors(form, to, e)
				return finish, err
			}, func(p pipeline.Options) (*encoder.Summary, error) {
				p.Workers = o.workers
				as := encoder.As{Task: folder.Task(task), Prompt: prompt}
				return e.Run(cmd.Context(), in.read, as, func(v encoder.Vector, made encoder.Embedding) error {
					if v.Error != "" {
						c.warn("graft: line %d: %s", v.Index+1, v.Error)
					}
					return write(v, made)
				}, p)
			})
		},
	}
	o.add(cmd)
	f := cmd.Flags()
	f.StringVar(&pooling, "pooling", "",
		"how hidden states become a vector: "+strings.Join(folder.Modes, ", ")+", or several with + (default: the model's)")
	f.BoolVar(&normalize, "normalize", false, "vectors have the length 1, also where the model does not say so")
	f.StringVar(&prompt, "prompt", "",
		"name of a prompt of the model that is put before each text, such as query (default: the task's, or the model's)")
	f.StringVar(&task, "task", "", "what the texts are: query or document (default: neither)")
	return cmd
}

func (c *cli) rerank() *cobra.Command {
	var o encoding
	var raw, tsv bool
	var top int
	cmd := &cobra.Command{
		Use:   "rerank MODEL_DIR",
		Short: "Sort documents by how well they answer a query, with an exported encoder",
		Long: `Reads one query with its documents a line and writes one result a line, in the same
order. A line is an object {"query": "...", "documents": ["...", ...]}, or with --tsv a query and
documents with tabs between. MODEL_DIR is a folder of a model for text classification with
one label, as sentence-transformers or optimum saves it, or of an embedder, whose vectors
are compared as it says: by cosine, dot product, distance, or MaxSim (ColBERT).

Scores are those of CrossEncoder: the activation that the model's configuration names, a
sigmoid where it names none; --raw gives logits.

-o jsonl writes objects: index, results (document, score; the best first), and error where a
line has none. -o text writes a line for each document: the number of the line, of the
document, the score, with tabs between. -o FILE writes to a file and a summary to stdout. Exit
code 1 when any line failed.`,
		Example: `  graft rerank ms-marco-MiniLM-L6-v2 --input queries.jsonl -o ranked.jsonl
  printf 'a query\ta document\tanother\n' | graft rerank models/encoders/reranker --tsv -o text`,
		Args:        exactly(1, "one model folder"),
		Annotations: map[string]string{writesFile: "true", takesForms: "jsonl"},
		RunE: func(cmd *cobra.Command, args []string) error {
			in, options, err := o.open(c)
			if err != nil {
				return err
			}
			defer in.close()
			options.Raw = raw
			r, err := encoder.OpenRanker(cmd.Context(), args[0], options)
			if err != nil {
				return err
			}
			defer r.Close()
			parse := encoder.ParseQuery
			if tsv {
				parse = encoder.ParseTSV
			}
			var write func(encoder.Ranking) error
			return c.encoded("ranked", o.input, in.total, nil, func(form string, to io.Writer) (finish func() error, err error) {
				write = rankings(form, to)
				return func() error { return nil }, nil
			}, func(p pipeline.Options) (*encoder.Summary, error) {
				p.Workers = o.workers
				return r.Run(cmd.Context(), in.read, parse, top, func(v encoder.Ranking) error {
					if v.Error != "" {
						c.warn("graft: line %d: %s", v.Index+1, v.Error)
					}
					return write(v)
				}, p)
			})
		},
	}
	o.add(cmd)
	f := cmd.Flags()
	f.BoolVar(&raw, "raw", false, "scores are the model's logits")
	f.BoolVar(&tsv, "tsv", false, "a line is a query and documents with tabs between")
	between(f, &top, "top-k", 0, 0, limit.Tokens, "maximum of documents of a line of output (default: all)")
	return cmd
}

// encoded runs an encoder over lines. What is written is a file that is whole or not there, or stdout; begin begins
// it in a form. Of an array the head comes last, so that one for stdout is gathered in a temporary file.
func (c *cli) encoded(what, input string, total int64, arrays []string,
	begin func(form string, to io.Writer) (finish func() error, err error),
	run func(pipeline.Options) (*encoder.Summary, error)) error {
	form := c.form
	var to io.Writer = c.out
	finish := func() error { return nil }
	switch {
	case c.file != "":
		f, err := storage.Create(c.file, storage.Shared)
		if err != nil {
			return err
		}
		defer f.Discard()
		to, finish = f, f.Commit
	case slices.Contains(arrays, form):
		folder, err := storage.Temporary("")
		if err != nil {
			return err
		}
		defer folder.Remove()
		f, err := os.OpenFile(filepath.Join(folder.Path, "array"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		to, finish = f, func() error {
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				return err
			}
			_, err := io.Copy(c.out, f)
			return err
		}
	}
	end, err := begin(form, to)
	if err != nil {
		return err
	}
	start, p := time.Now(), c.progressOver(what, input, c.file == "" && !slices.Contains(arrays, form))
	s, err := run(pipeline.Options{Done: func(n int) {
		p.say(fmt.Sprintf("%s %d, %.1f/s", what, n, float64(n)/time.Since(start).Seconds()))
		p.set(int64(n), total)
	}})
	p.end()
	if err != nil {
		return err
	}
	if err := end(); err != nil {
		return err
	}
	if err := finish(); err != nil {
		return err
	}
	if c.file != "" {
		if err := c.print(s, func(w *page) { summarized(w, what, s) }); err != nil {
			return err
		}
	}
	if s.Failed > 0 {
		return fmt.Errorf("%d of %d lines could not be %s", s.Failed, s.Lines, what)
	}
	return nil
}

// summarized prints a summary for people.
func summarized(w *page, what string, s *encoder.Summary) {
	w.printf("%s %s, %d failed; %s, %s in %s, %.0f%% padding, %.1f texts/s\n", what, counted(s.Lines, "line"), s.Failed,
		counted(s.Rows, "text"), counted(s.Tokens, "token"), counted(s.Batches, "batch"), 100*s.Padding, s.RowsPerSecond)
	if s.Dimensions > 0 {
		w.printf("%d dimensions\n", s.Dimensions)
	}
}

// vectors writes them in a form.
func vectors(form string, to io.Writer, e *encoder.Embedder) (write func(encoder.Vector, encoder.Embedding) error,
	finish func() error, err error) {
	finish = func() error { return nil }
	if gives := e.Gives(); form == "npy" && !gives.Dense || form == "text" && gives.Tokens {
		return nil, nil, &diagnostic.Error{Found: "-o " + form + " of a model that gives sparse vectors or those of tokens",
			Needed: "a form that holds them", Fix: "take -o jsonl or -o npz"}
	}
	switch form {
	case "npy":
		n, err := encoder.NewNPY(to.(io.WriteSeeker), e.Dimensions())
		if err != nil {
			return nil, nil, err
		}
		return func(_ encoder.Vector, v encoder.Embedding) error { return n.Write(v.Dense) }, n.Close, nil
	case "npz":
		n, err := encoder.NewNPZ(to, e.Gives(), e.Dimensions())
		if err != nil {
			return nil, nil, err
		}
		return func(_ encoder.Vector, v encoder.Embedding) error { return n.Write(v) }, n.Close, nil
	case "text":
		return func(v encoder.Vector, _ encoder.Embedding) error {
			var b bytes.Buffer
			for i, x := range v.Values {
				if i > 0 {
					b.WriteByte(' ')
				}
				b.WriteString(shortest(x))
			}
			if v.Sparse != nil {
				for i, x := range v.Sparse.Weights {
					if i > 0 {
						b.WriteByte(' ')
					}
					b.WriteString(strconv.Itoa(int(v.Sparse.Indices[i])) + ":" + shortest(x))
				}
			}
			b.WriteByte('\n')
			_, err := to.Write(b.Bytes())
			return err
		}, finish, nil
	}
	return func(v encoder.Vector, _ encoder.Embedding) error { return object(to, v) }, finish, nil
}

// rankings writes them in a form.
func rankings(form string, to io.Writer) func(encoder.Ranking) error {
	if form != "text" {
		return func(r encoder.Ranking) error { return object(to, r) }
	}
	return func(r encoder.Ranking) error {
		var b bytes.Buffer
		for _, d := range r.Results {
			b.WriteString(strconv.Itoa(r.Index) + "\t" + strconv.Itoa(d.Document) + "\t" + shortest(d.Score) + "\n")
		}
		_, err := to.Write(b.Bytes())
		return err
	}
}

// shortest is the shortest text from which the same float32 is read.
func shortest(x float32) string { return strconv.FormatFloat(float64(x), 'g', -1, 32) }

// object writes one object a line.
func object(to io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = to.Write(append(diagnostic.PrintableJSON(data), '\n'))
	return err
}
