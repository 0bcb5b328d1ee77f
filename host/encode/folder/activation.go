package folder

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Activation is a function of a number.
type Activation func(float64) float64

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func softplus(x float64) float64 {
	if x > 20 { // torch's threshold
		return x
	}
	return math.Log1p(math.Exp(x))
}

// Softmax makes logits shares of 1.
func Softmax(logits []float64) {
	most, sum := slices.Max(logits), 0.
	for i, x := range logits {
		logits[i] = math.Exp(x - most)
		sum += logits[i]
	}
	for i := range logits {
		logits[i] /= sum
	}
}

// activations are classes of torch.nn, with what their constructors take where they are given nothing, as
// sentence-transformers makes them.
var activations = map[string]Activation{
	"CELU":        func(x float64) float64 { return max(x, 0) + min(0, math.Expm1(x)) },
	"ELU":         func(x float64) float64 { return max(x, 0) + min(0, math.Expm1(x)) },
	"GELU":        func(x float64) float64 { return x * (1 + math.Erf(x/math.Sqrt2)) / 2 },
	"Hardsigmoid": func(x float64) float64 { return max(0, min(1, x/6+0.5)) },
	"Hardswish":   func(x float64) float64 { return x * max(0, min(1, x/6+0.5)) },
	"Hardtanh":    func(x float64) float64 { return max(-1, min(1, x)) },
	"Identity":    func(x float64) float64 { return x },
	"LeakyReLU":   func(x float64) float64 { return max(x, 0) + 0.01*min(x, 0) },
	"LogSigmoid":  func(x float64) float64 { return min(x, 0) - math.Log1p(math.Exp(-math.Abs(x))) },
	"Mish":        func(x float64) float64 { return x * math.Tanh(softplus(x)) },
	"ReLU":        func(x float64) float64 { return max(x, 0) },
	"ReLU6":       func(x float64) float64 { return max(0, min(6, x)) },
	"SELU": func(x float64) float64 {
		const alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
		return scale * (max(x, 0) + min(0, alpha*math.Expm1(x)))
	},
	"SiLU":       func(x float64) float64 { return x * sigmoid(x) },
	"Sigmoid":    sigmoid,
	"Softplus":   softplus,
	"Softsign":   func(x float64) float64 { return x / (1 + math.Abs(x)) },
	"Tanh":       math.Tanh,
	"Tanhshrink": func(x float64) float64 { return x - math.Tanh(x) },
}

// FindActivation finds one by the name of its class, torch.nn.modules.activation.Tanh.
func FindActivation(path, key, class string) (Activation, error) {
	if name := class[strings.LastIndexByte(class, '.')+1:]; strings.HasPrefix(class, "torch.nn.") {
		if f, ok := activations[name]; ok {
			return f, nil
		}
	}
	return nil, &diagnostic.Error{Path: path, Found: fmt.Sprintf("%s is %q", key, diagnostic.Clip(class)),
		Needed: "of torch.nn one of " + strings.Join(slices.Sorted(maps.Keys(activations)), ", ")}
}
