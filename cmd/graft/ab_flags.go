package main

import (
	"math"
	"time"

	"github.com/spf13/pflag"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/plan"
)

// sideFlags are those of commands that compare sides of a model: ab and bisect.
type sideFlags struct {
	comparison.Options
	dims     []string
	padding  string
	deadline time.Duration
}

func (s *sideFlags) register(f *pflag.FlagSet) {
	f.StringVar(&s.A, "a", "none",
		"operators of the first side: none, auto, a plugin's name, a plan file, or for folders what generate --attention "+
			"takes")
	f.StringVar(&s.B, "b", "auto",
		"operators of the second side, or of several with commas between, each compared with the first")
	f.StringArrayVar(&s.dims, "dim", nil,
		"length of an axis: name=length, where the name may be cut short, or input.axis=length (input_ids.1=128); "+
			"name=length,length,... compares with each of them, several such with each combination; may be repeated")
	f.StringVar(&s.Inputs.File, "inputs", "", "a .npz file or an ONNX test-data folder; inputs not in it are synthetic")
	between(f, &s.Inputs.Seed, "seed", 1, 0, math.MaxUint64, "seed of synthetic inputs")
	between(f, &s.Rounds, "rounds", 15, 1, 1_000_000, "rounds of A B B A")
	between(f, &s.Warmup, "warmup", 3, 1, 1_000_000, "runs of each side before timing")
	between(f, &s.Threads, "threads", 0, 0, limit.Threads, "threads inside an operator (default: one a core)")
	f.BoolVar(&s.Force, "force", false, "use operators whatever they are expected to gain")
	between(f, &s.deadline, "deadline", comparison.DefaultDeadline, time.Second, 24*time.Hour,
		"how long opening all sides may take, or a round, or of a folder opening one side or generating once: then a "+
			"plugin hangs")
	f.BoolVar(&s.QuantizationNoise, "accept-quantization-noise", false, acceptNoise)
	f.StringVar(&s.padding, "padding", "exact", paddingHelp)
	between(f, &s.Absolute, "absolute", 0, 0, math.MaxFloat32, "absolute tolerance of answers (default: the data type's)")
	between(f, &s.Relative, "relative", 0, 0, math.MaxFloat32, "relative tolerance of answers (default: the data type's)")
}

// parse reads those whose values are text.
func (s *sideFlags) parse() error {
	mode, err := plan.ParsePadding(s.padding)
	if err != nil {
		return misused("--padding", err)
	}
	s.Padding = mode
	s.Inputs.Dims, s.Axes, err = lengths(s.dims)
	return err
}
