package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
)

// encoderOptions are those of the figures of encoders.
type encoderOptions struct {
	corpus  *corpus           // nil for none
	config  map[string]string // session config entries of the patched side
	threads int               // of a session; 0 for ONNX Runtime's default
	each    time.Duration     // that the timed runs of a cell may take, beyond three rounds
	runs    int               // of encoder-random
	cycles  int               // of encoder-cycles
}

// paddedFigure is a row of the table of padded batches.
type paddedFigure struct {
	name, what string
	least      float64
	cells      []encoderCell
	config     map[string]string // session config entries of the patched side, where the command line has none
	bits       bool              // answers are equal to the bit
}

// ignored leaves padding out where rows are outputs.
var ignored = map[string]string{"graft.padding": "ignore"}

// mostlyPaddingSeed makes a batch of 32 sentences of the repository's figures of which 35 % are real: the seed was
// looked for.
const mostlyPaddingSeed = 21

// mostlyPadding is such a batch.
func mostlyPadding(subject string, batch int) encoderCell {
	c := cellOf(subject, batch, lengths{kind: sentences})
	c.seed = mostlyPaddingSeed
	return c
}

// cellOf is a cell of the seed that all have.
func cellOf(subject string, batch int, l lengths) encoderCell {
	return encoderCell{subject: encoderNamed(subject), batch: batch, lengths: l, seed: 1}
}

// encoderFigures are the figures of encoders, plain ONNX Runtime against patched sessions.
func encoderFigures() []figure {
	var list []figure
	for _, f := range []paddedFigure{
		{name: "encoder-padded-minilm", what: "MiniLM, batch 32, 20 to 40 tokens padded to 256, padding ignored", least: 5,
			config: ignored,
			cells:  []encoderCell{cellOf("minilm", 32, lengths{kind: uniform, least: 20, most: 40, padTo: 256})}},
		{name: "encoder-padded-bge-small",
			what: "BGE-small, batch 32, sentences padded to the longest (about 35 % real), padding ignored", least: 2.2,
			config: ignored,
			cells:  []encoderCell{mostlyPadding("bge-small", 32)}},
		{name: "encoder-padded-bge-base",
			what: "BGE-base shape, batch 8, lengths 16 to 256 alike (about half is real), padded to the longest, " +
				"padding ignored", least: 1.7, config: ignored,
			cells: []encoderCell{cellOf("bert-base", 8, lengths{kind: uniform, least: 16, most: 256})}},
		{name: "encoder-padded-reranker",
			what: "reranker of MiniLM-L12's shape, batch 32, pairs of a query and a passage, by default", least: 1.8,
			cells: []encoderCell{cellOf("minilm-l12-reranker", 32, lengths{kind: pairs})}},
		{name: "encoder-padded-pooled",
			what:  "MiniLM-L6's shape with pooling in the graph beside its rows, batch 32, sentences, padding ignored",
			least: 1.5, config: ignored,
			cells: []encoderCell{cellOf("minilm-l6-pooled", 32, lengths{kind: sentences})}},
		{name: "encoder-modernbert", what: "ModernBERT-base's shape, one text of 2,048 and of 8,192 tokens, padding ignored",
			least: 1.73, config: ignored,
			cells: []encoderCell{cellOf("modernbert-base", 1, lengths{kind: unpadded, most: 2048}),
				cellOf("modernbert-base", 1, lengths{kind: unpadded, most: 8192})}},
	} {
		list = append(list, f.figure())
	}
	integers := paddedFigure{name: "encoder-int8", what: "MiniLM and BGE-small in int8, no padding", least: 1, bits: true}
	for _, name := range []string{"minilm-int8", "bge-small-int8"} {
		for _, shape := range [][2]int{{8, 128}, {32, 32}, {1, 32}, {1, 128}, {16, 64}} {
			integers.cells = append(integers.cells, cellOf(name, shape[0], lengths{kind: unpadded, most: shape[1]}))
		}
	}
	list = append(list, integers.figure())
	for _, name := range []string{"minilm", "bge-small", "e5-small", "bert-base", "minilm-l6-pooled",
		"minilm-l12-reranker", "xlm-roberta-base"} {
		var cells []encoderCell
		for _, kind := range []string{sentences, articles, queries, passages, uniform} {
			for _, batch := range []int{8, 32} {
				cells = append(cells, cellOf(name, batch, lengths{kind: kind, least: 8, most: 128}))
			}
		}
		f := paddedFigure{name: "encoder-lengths-" + name,
			what: name + ": sentences, articles, queries, passages and uniform lengths, batch 8 and 32, padded to the longest" +
				", padding ignored", least: 1, cells: cells, config: ignored}
		list = append(list, f.figure())
	}
	for _, e := range encoders {
		what := e.name + ", no padding, batch 1, 8, 32"
		if e.longest > 0 {
			what += fmt.Sprintf(", %d to %d tokens", fullLengths[0], min(e.longest, fullLengths[len(fullLengths)-1]))
		}
		least := 1.
		if e.quantised() {
			least = 0.98
		}
		f := paddedFigure{name: "encoder-full-" + e.name, what: what, least: least, cells: fullCells(&e)}
		list = append(list, f.figure())
	}
	return append(list, encoderRandom(), encoderSessions(), encoderProcesses(), encoderCycles(), encoderGrowth())
}

// Batches and lengths of cells without padding.
var (
	fullBatches = []int{1, 8, 32}
	fullLengths = []int{16, 64, 128, 512}
)

func fullCells(e *encoder) (cells []encoderCell) {
	for _, batch := range fullBatches {
		if e.longest == 0 {
			if batch <= 8 || strings.HasPrefix(e.name, "clip") {
				cells = append(cells, encoderCell{subject: encoderNamed(e.name), batch: batch, seed: 1})
			}
			continue
		}
		for _, length := range fullLengths {
			if length <= e.longest {
				cells = append(cells, cellOf(e.name, batch, lengths{kind: unpadded, most: length}))
			}
		}
	}
	return cells
}

// worst is the least speed-up of a cell that counts as not slower: what two equal sides measure on a shared machine.
const worst = 0.97

// cellsResult is the detail of a figure of cells.
type cellsResult struct {
	SchemaVersion int               `json:"schema_version"`
	Config        map[string]string `json:"session_config,omitempty"` // of the patched side
	Mean          float64           `json:"geometric_mean"`
	Least         float64           `json:"least"`
	Cells         []*cellResult     `json:"cells"`
}

func (f paddedFigure) figure() figure {
	need := fmt.Sprintf("answers equal, at least %.2fx", f.least)
	if f.bits {
		need = fmt.Sprintf("answers equal to the bit, at least %.2fx", f.least)
	}
	if len(f.cells) > 1 {
		need += fmt.Sprintf(" (geometric mean), no cell below %.2fx", worst)
	}
	return figure{f.name, f.what, need, func(ctx context.Context, b *bench) (*outcome, error) {
		if len(b.encoders.config) == 0 {
			b.encoders.config = f.config
			defer func() { b.encoders.config = nil }()
		}
		r := &cellsResult{SchemaVersion: 1, Config: b.encoders.config, Least: math.Inf(1)}
		var s *sides
		defer func() {
			if s != nil {
				s.close()
			}
		}()
		sum := 0.
		for _, c := range f.cells {
			if s == nil || s.subject != c.subject {
				if s != nil {
					s.close()
				}
				var err error
				if s, err = b.openSides(ctx, c.subject, 1); err != nil {
					s = nil
					return nil, err
				}
			}
			cell, err := b.cell(ctx, s, c)
			if err != nil {
				return nil, err
			}
			r.Cells = append(r.Cells, cell)
			r.Least = min(r.Least, cell.Speedup.Median)
			sum += math.Log(cell.Speedup.Median)
		}
		r.Mean = math.Exp(sum / float64(len(r.Cells)))
		return r.outcome(f.least, f.bits), nil
	}}
}

func (r *cellsResult) outcome(least float64, bits bool) *outcome {
	out := &outcome{Detail: r, Answers: "answers equal", Met: r.Mean >= least && (len(r.Cells) == 1 || r.Least >= worst)}
	if bits {
		out.Answers = "answers equal to the bit"
	}
	for _, c := range r.Cells {
		if !c.Parity.OK || bits && c.Parity.Largest != 0 {
			out.Answers, out.Met = "answers DIFFER", false
		}
	}
	if len(r.Cells) == 1 {
		out.Got = r.Cells[0].String()
		return out
	}
	lowest := r.Cells[0]
	for _, c := range r.Cells {
		if c.Speedup.Median < lowest.Speedup.Median {
			lowest = c
		}
	}
	out.Got = fmt.Sprintf("geometric mean of %d cells %.2fx; least: %s", len(r.Cells), r.Mean, lowest)
	return out
}
