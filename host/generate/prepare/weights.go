package prepare

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// WeightType is what the weights of a linear layer are stored as.
type WeightType string

// The types of weights. Those of integers have a scale for each group of positions along the axis that is summed up,
// and each column; those of bfloat16 have none, and are multiplied as float32.
const (
	Float32Weights  WeightType = "float32"
	BFloat16Weights WeightType = "bf16"
	Int8Weights     WeightType = "int8"
	Int4Weights     WeightType = "int4"
)

// Integers says whether weights of the type are integers, with scales.
func (t WeightType) Integers() bool { return t == Int8Weights || t == Int4Weights }

// Activations says what linear layers of quantised weights multiply with.
type Activations string

// Kinds of activations: rounded to eight or to sixteen bits as they come, a scale for each row and group, or as they
// are.
const (
	Int8Activations    Activations = "int8"
	Int16Activations   Activations = "int16"
	Float32Activations Activations = "float32"
)

// ZeroPoints says whether integers have zero points: a value is then (q - zero) times the scale, with a zero for each
// group and column, and otherwise q times the scale.
type ZeroPoints string

// Integers with and without zero points.
const (
	WithZeroPoints    ZeroPoints = "true"
	WithoutZeroPoints ZeroPoints = "false"
)

// DefaultGroup is how many weights have one scale where nothing else was asked for.
const DefaultGroup = 32

// Weights says what the weights of a model's linear layers are stored as. The zero value is float32, as exported:
// anything else changes answers.
type Weights struct {
	// Layers is of all linear layers but the last, which makes logits: that is of Logits. "" is float32 for Layers and,
	// for Logits, the type of Layers, but int8 for int4: an error in logits decides between tokens.
	Layers, Logits WeightType
	Group          int64       // 0: DefaultGroup
	Activations    Activations // "": what Multiplied says
	ZeroPoints     ZeroPoints  // "": WithoutZeroPoints
	// Single are the types of single weights, whatever the others say of them; nil for none.
	Single map[Weight]WeightType
}

// Weight names a weight: the file that it lies in, without its folder, and its name there.
type Weight struct{ File, Name string }

// Of is the type of a layer's weights.
func (w Weights) Of(last bool) WeightType {
	layers := cmp.Or(w.Layers, Float32Weights)
	switch {
	case !last:
		return layers
	case w.Logits != "":
		return w.Logits
	case layers == Int4Weights:
		return Int8Weights
	}
	return layers
}

// OfWeight is Of of a weight that may be one of Single.
func (w Weights) OfWeight(weight Weight, last bool) WeightType {
	if t, ok := w.Single[weight]; ok {
		return t
	}
	return w.Of(last)
}

// any says whether there may be a type of which something holds.
func (w Weights) any(holds func(WeightType) bool) bool {
	for _, t := range w.Single {
		if holds(t) {
			return true
		}
	}
	return holds(w.Of(false)) || holds(w.Of(true))
}

// GroupSize is how many weights have one scale.
func (w Weights) GroupSize() int64 { return cmp.Or(w.Group, DefaultGroup) }

// Asymmetric says whether weights of a type have zero points.
func (w Weights) Asymmetric(t WeightType) bool { return t.Integers() && w.ZeroPoints == WithZeroPoints }

// Quantizes says whether any weights are to be stored in fewer bits than they were exported with.
func (w Weights) Quantizes() bool {
	return w.any(func(t WeightType) bool { return t != Float32Weights })
}

// Integers says whether any weights are to be stored as integers.
func (w Weights) Integers() bool { return w.any(WeightType.Integers) }

// Multiplied is what integers are multiplied with. Where nothing was asked for that is sixteen bits, whose rounding
// costs next to nothing beside that of weights of eight bits, but eight where weights have four: those cost far more
// than activations of eight bits, which are multiplied with them faster.
func (w Weights) Multiplied() Activations {
	if w.Activations != "" {
		return w.Activations
	}
	layers := w.Of(false)
	if !layers.Integers() {
		layers = w.Of(true)
	}
	if layers == Int4Weights {
		return Int8Activations
	}
	return Int16Activations
}

// String is what ParseWeights reads, with all that is not said but for single weights, and zero points where there
// are any.
func (w Weights) String() string {
	switch {
	case !w.Quantizes():
		return string(Float32Weights)
	case !w.Integers():
		return fmt.Sprintf("%s,logits=%s", w.Of(false), w.Of(true))
	}
	text := fmt.Sprintf("%s,logits=%s,group=%d,activations=%s", w.Of(false), w.Of(true), w.GroupSize(), w.Multiplied())
	if w.ZeroPoints == WithZeroPoints {
		text += ",zero-points=true"
	}
	return text
}

// ParseWeights reads what to store weights as: float32, bf16, int8 or int4, and after that, with commas between,
// logits=TYPE, group=N (32, 64 or 128), activations=int8, int16 or float32, and zero-points=true or false.
func ParseWeights(text string) (w Weights, err error) {
	parts := strings.Split(text, ",")
	if w.Layers, err = weightType(parts[0]); err != nil {
		return w, err
	}
	for i, part := range parts[1:] {
		name, value, _ := strings.Cut(part, "=")
		if slices.ContainsFunc(parts[1:i+1], func(other string) bool { return strings.HasPrefix(other, name+"=") }) {
			return w, fmt.Errorf("%s is named twice", name)
		}
		switch name {
		case "logits":
			if w.Logits, err = weightType(value); err != nil {
				return w, fmt.Errorf("logits: %w", err)
			}
		case "group":
			if w.Group, err = strconv.ParseInt(value, 10, 64); err != nil || !slices.Contains([]int64{32, 64, 128}, w.Group) {
				return w, fmt.Errorf("group is %q, needed is 32, 64 or 128", value)
			}
		case "activations":
			if w.Activations = Activations(value); !slices.Contains(
				[]Activations{Int8Activations, Int16Activations, Float32Activations}, w.Activations) {
				return w, fmt.Errorf("activations is %q, needed is int8, int16 or float32", value)
			}
		case "zero-points":
			if w.ZeroPoints = ZeroPoints(value); w.ZeroPoints != WithZeroPoints && w.ZeroPoints != WithoutZeroPoints {
				return w, fmt.Errorf("zero-points is %q, needed is true or false", value)
			}
		default:
			return w, fmt.Errorf("%q is not understood, needed is logits=TYPE, group=N, activations=TYPE or zero-points=true",
				part)
		}
	}
	if !w.Integers() && (w.Group != 0 || w.Activations != "" || w.ZeroPoints != "") {
		return w, fmt.Errorf("group, activations and zero-points are of weights that are stored as integers, and none of "+
			"%s are", text)
	}
	return w, nil
}

func weightType(text string) (WeightType, error) {
	t := WeightType(text)
	if !slices.Contains([]WeightType{Float32Weights, BFloat16Weights, Int8Weights, Int4Weights}, t) {
		return "", fmt.Errorf("%q is no type of weights, needed is float32, bf16, int8 or int4", text)
	}
	return t, nil
}
