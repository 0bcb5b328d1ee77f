package folder

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// The greatest width of a layer after the encoder, and of a vector with a number for each token.
const (
	maxWidth      = 1 << 16
	maxVocabulary = 1 << 24
)

// weightsOf reads the weights of a module. The tensors' shapes are asked for by take, for which the file is open.
// Of two names with | between, the first that is there is read: of weights that are shared one stands in the file.
func weightsOf(folder, what string, read func(take func(name string, shape ...int) []float32)) error {
	file, err := openSafetensors(filepath.Join(folder, "model.safetensors"), what)
	if err != nil {
		return err
	}
	defer file.Close()
	read(func(name string, shape ...int) []float32 {
		var w weights
		if first, other, ok := strings.Cut(name, "|"); ok {
			if name = first; !file.has(first) {
				name = other
			}
		}
		if err == nil {
			w, err = file.take(name, shape...)
		}
		return w.values
	})
	return err
}

// readDense reads a Dense: a linear layer with an activation, and a residual around both.
func readDense(folder string, in *Folder) (Module, error) {
	path := filepath.Join(folder, "config.json")
	o, found, err := readObject(path, "Dense")
	if err != nil {
		return nil, err
	}
	m := &mapped{in: SentenceEmbedding}
	if in.Late != nil {
		m.in = TokenEmbeddings
	}
	m.names(o)
	m.from, m.to = o.number("in_features", 1, maxWidth), o.number("out_features", 1, maxWidth)
	bias, residual := o.bool("bias", true), o.bool("use_residual", false)
	class, ok := o.text("activation_function")
	if !ok {
		class = "torch.nn.modules.activation.Tanh"
	}
	if err := o.close(); err != nil {
		return nil, err
	}
	if !found || m.from == 0 || m.to == 0 {
		return nil, &diagnostic.Error{Path: path, Found: fmt.Sprintf("a layer from %d to %d", m.from, m.to),
			Needed: fmt.Sprintf("in_features and out_features from 1 to %d", maxWidth)}
	}
	activation, err := FindActivation(path, "activation_function", class)
	if err != nil {
		return nil, err
	}
	var weight, offset, around []float32
	if err := weightsOf(folder, "Dense", func(take func(string, ...int) []float32) {
		weight = take("linear.weight", m.to, m.from)
		if bias {
			offset = take("linear.bias", m.to)
		}
		if residual && m.from != m.to {
			around = take("residual.weight", m.to, m.from)
		}
	}); err != nil {
		return nil, err
	}
	m.row = func(in, out []float32) {
		for i := range out {
			sum := dot(weight[i*len(in):(i+1)*len(in)], in)
			if offset != nil {
				sum += float64(offset[i])
			}
			sum = activation(sum)
			switch {
			case around != nil:
				sum += dot(around[i*len(in):(i+1)*len(in)], in)
			case residual:
				sum += float64(in[i])
			}
			out[i] = float32(sum)
		}
	}
	return m, nil
}

func dot(a, b []float32) float64 {
	sum := 0.
	for i, x := range a {
		sum += float64(x) * float64(b[i])
	}
	return sum
}

// readNormalize reads a Normalize. Before 5.4 it has no configuration.
func readNormalize(folder string, _ *Folder) (Module, error) {
	o, _, err := readObject(filepath.Join(folder, "config.json"), "Normalize")
	if err != nil {
		return nil, err
	}
	m := &mapped{in: SentenceEmbedding}
	m.names(o)
	return normalize(m), o.close()
}

// Normalize gives vectors of texts the length 1.
func Normalize() Module { return normalize(&mapped{in: SentenceEmbedding, out: SentenceEmbedding}) }

func normalize(m *mapped) Module {
	m.row = func(in, out []float32) {
		length := max(math.Sqrt(dot(in, in)), 1e-12)
		for i, x := range in {
			out[i] = float32(float64(x) / length)
		}
	}
	return m
}

// readLayerNorm reads a LayerNorm.
func readLayerNorm(folder string, _ *Folder) (Module, error) {
	path := filepath.Join(folder, "config.json")
	o, _, err := readObject(path, "LayerNorm")
	if err != nil {
		return nil, err
	}
	n := o.number("dimension", 1, maxWidth)
	if err := o.close(); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, &diagnostic.Error{Path: path, Found: "no dimension", Needed: "the width of the vectors"}
	}
	var weight, bias []float32
	if err := weightsOf(folder, "LayerNorm", func(take func(string, ...int) []float32) {
		weight, bias = take("norm.weight", n), take("norm.bias", n)
	}); err != nil {
		return nil, err
	}
	m := &mapped{path: path, in: SentenceEmbedding, out: SentenceEmbedding, from: n}
	m.row = func(in, out []float32) {
		mean, variance := 0., 0.
		for _, x := range in {
			mean += float64(x) / float64(n)
		}
		for _, x := range in {
			variance += (float64(x) - mean) * (float64(x) - mean) / float64(n)
		}
		scale := 1 / math.Sqrt(variance+1e-5) // eps of torch.nn.LayerNorm
		for i, x := range in {
			out[i] = float32((float64(x)-mean)*scale*float64(weight[i]) + float64(bias[i]))
		}
	}
	return m, nil
}

// readDropout reads a Dropout, which does nothing but in training.
func readDropout(folder string, _ *Folder) (Module, error) {
	o, _, err := readObject(filepath.Join(folder, "config.json"), "Dropout")
	if err != nil {
		return nil, err
	}
	return nil, o.close()
}
