package folder

import (
	"fmt"
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
)

// lookup makes a vector of a text's tokens without a graph.
type lookup struct {
	path  string
	width int
	apply func(f *Features, out []float32) error
}

func (l *lookup) Check(w Widths) error {
	w[SentenceEmbedding] = l.width
	return nil
}

func (l *lookup) Apply(f *Features) error {
	out := make([]float32, l.width)
	err := l.apply(f, out)
	f.Vector = out
	return err
}

// beyond is the error of a token that a model has no row for.
func (l *lookup) beyond(id int64) error {
	return &diagnostic.Error{Path: l.path, Found: fmt.Sprintf("the token %d", id),
		Needed: "one that the model has a row for"}
}

// readSparseStatic reads a SparseStaticEmbedding: a weight for each token that a text has.
func readSparseStatic(folder string, in *Folder) (Module, error) {
	path := filepath.Join(folder, "config.json")
	o, _, err := readObject(path, "SparseStaticEmbedding")
	if err != nil {
		return nil, err
	}
	o.refuse("path", "", "save the model again with sentence-transformers, which writes model.safetensors")
	if err := o.close(); err != nil {
		return nil, err
	}
	var weight []float32
	if err := weightsOf(folder, "SparseStaticEmbedding", func(take func(string, ...int) []float32) {
		weight = take("weight", -1)
	}); err != nil {
		return nil, err
	}
	in.Vocabulary = true
	l := &lookup{path: path, width: len(weight)}
	l.apply = func(f *Features, out []float32) error {
		for _, id := range f.IDs {
			if id >= int64(len(weight)) {
				return l.beyond(id)
			}
			out[id] = weight[id]
		}
		if f.Vector != nil { // of the modules before it
			if len(f.Vector) != len(out) {
				return &diagnostic.Error{Path: path, Found: fmt.Sprintf("weights of %d tokens", len(out)),
					Needed: fmt.Sprintf("%d, the width of the vector before them", len(f.Vector))}
			}
			for i, x := range f.Vector {
				out[i] *= x
			}
		}
		return nil
	}
	return l, nil
}

// readStatic reads a StaticEmbedding: the mean of the rows of a matrix that a text's tokens number.
// sentence-transformers and model2vec write it, the latter also as fewer rows, with the row of each token (mapping) and
// its weight (weights).
func readStatic(folder string, in *Folder) (Module, error) {
	path := filepath.Join(folder, "model.safetensors")
	file, err := openSafetensors(path, "StaticEmbedding")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	name := "embedding.weight"
	if !file.has(name) {
		name = "embeddings"
	}
	matrix, err := file.take(name, -1, -1)
	if err != nil {
		return nil, err
	}
	rows, width := matrix.shape[0], matrix.shape[1]
	tokens := rows
	var mapping, factors weights
	if name == "embeddings" && file.has("mapping") {
		if mapping, err = file.take("mapping", -1); err != nil {
			return nil, err
		}
		tokens = len(mapping.values)
	}
	if name == "embeddings" && file.has("weights") {
		if factors, err = file.take("weights", tokens); err != nil {
			return nil, err
		}
	}
	for i, row := range mapping.values {
		if !(row >= 0 && int(row) < rows) {
			return nil, &diagnostic.Error{Path: path, Found: fmt.Sprintf("a mapping of the token %d to the row %v", i, row),
				Needed: fmt.Sprintf("one of %d rows", rows)}
		}
	}
	l := &lookup{path: path, width: width}
	l.apply = func(f *Features, out []float32) error {
		sums := make([]float64, width)
		for _, id := range f.IDs {
			if id >= int64(tokens) {
				return l.beyond(id)
			}
			row, factor := int(id), 1.
			if mapping.values != nil {
				row = int(mapping.values[id])
			}
			if factors.values != nil {
				factor = float64(factors.values[id])
			}
			for d, x := range matrix.values[row*width : (row+1)*width] {
				sums[d] += factor * float64(x)
			}
		}
		for d := range out {
			out[d] = float32(sums[d] / max(float64(len(f.IDs)), 1))
		}
		return nil
	}
	in.Stored = true
	return l, nil
}

// readModel2Vec reads what is left of the config.json of a folder of model2vec that has no modules.json, as model2vec
// reads it.
func (f *Folder) readModel2Vec(o *object) error {
	o.kind = "config.json of model2vec"
	normalized := o.bool("normalize", false)
	f.MaxTokens, f.Model2Vec = 512, true
	if _, given := o.keys["max_length"]; given {
		f.MaxTokens = o.number("max_length", 1, limit.Tokens)
	}
	if err := o.close(); err != nil {
		return err
	}
	var err error
	f.Input, err = readStatic(f.Path, f)
	f.Stored = false
	if normalized {
		f.Modules = append(f.Modules, Normalize())
	}
	return err
}
