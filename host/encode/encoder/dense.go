package encoder

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// maxDense is the greatest width of a layer after the pooling.
const maxDense = 1 << 16

// dense is a linear layer after the pooling, with an activation.
type dense struct {
	in, out      int
	weight, bias []float32 // [out, in], [out] or nil
	activation   func(float64) float64
}

// activations are those of torch that a configuration may name, by the last part of the name.
var activations = map[string]func(float64) float64{
	"Identity": func(x float64) float64 { return x },
	"Tanh":     math.Tanh,
	"Sigmoid":  func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
	"ReLU":     func(x float64) float64 { return max(x, 0) },
	"GELU":     func(x float64) float64 { return x * (1 + math.Erf(x/math.Sqrt2)) / 2 },
	"SiLU":     func(x float64) float64 { return x / (1 + math.Exp(-x)) },
}

// activation finds one by the name of its class; ok is false for one of others than torch.
func activation(class string) (f func(float64) float64, ok bool) {
	if !strings.HasPrefix(class, "torch.nn.") {
		return nil, false
	}
	f, ok = activations[class[strings.LastIndexByte(class, '.')+1:]]
	return f, ok
}

// readDense reads a Dense: config.json and model.safetensors.
func readDense(folder string) (*dense, error) {
	path := filepath.Join(folder, "config.json")
	c := struct {
		In       int    `json:"in_features"`
		Out      int    `json:"out_features"`
		Bias     *bool  `json:"bias"`
		Function string `json:"activation_function"`
	}{}
	found, err := readJSON(path, &c)
	if err != nil {
		return nil, err
	}
	if !found || c.In < 1 || c.In > maxDense || c.Out < 1 || c.Out > maxDense {
		return nil, &diagnostic.Error{Path: path, Found: fmt.Sprintf("a layer from %d to %d", c.In, c.Out),
			Needed: fmt.Sprintf("in_features and out_features from 1 to %d", maxDense)}
	}
	d := &dense{in: c.In, out: c.Out}
	var ok bool
	if d.activation, ok = activation(c.Function); !ok {
		return nil, &diagnostic.Error{Path: path,
			Found:  fmt.Sprintf("activation_function is %q", diagnostic.Clip(c.Function)),
			Needed: "Identity, Tanh, Sigmoid, ReLU, GELU or SiLU of torch.nn"}
	}
	path = filepath.Join(folder, "model.safetensors")
	if _, err := os.Stat(path); err != nil {
		e := &diagnostic.Error{Path: path, Found: "there is no such file", Needed: "the weights of the Dense", Cause: err}
		if _, err := os.Stat(filepath.Join(folder, "pytorch_model.bin")); err == nil {
			e.Found, e.Needed = "only pytorch_model.bin, which is a program in Python's pickle", "model.safetensors"
			e.Fix = "load the model with sentence-transformers and save it again: SentenceTransformer(FOLDER).save(FOLDER)"
		}
		return nil, e
	}
	tensors, err := readSafetensors(path)
	if err != nil {
		return nil, err
	}
	take := func(name string, shape ...int) ([]float32, error) {
		t, ok := tensors[name]
		if !ok || !slices.Equal(t.shape, shape) {
			return nil, &diagnostic.Error{Path: path, Found: fmt.Sprintf("%s has the shape %v", name, t.shape),
				Needed: fmt.Sprint(shape)}
		}
		return t.values, nil
	}
	if d.weight, err = take("linear.weight", c.Out, c.In); err != nil {
		return nil, err
	}
	if c.Bias == nil || *c.Bias {
		d.bias, err = take("linear.bias", c.Out)
	}
	return d, err
}

func (d *dense) width(int) int { return d.out }

func (d *dense) apply(v []float32) []float32 {
	out := make([]float32, d.out)
	for o := range out {
		sum := 0.
		if d.bias != nil {
			sum = float64(d.bias[o])
		}
		for i, w := range d.weight[o*d.in : (o+1)*d.in] {
			sum += float64(w) * float64(v[i])
		}
		out[o] = float32(d.activation(sum))
	}
	return out
}
