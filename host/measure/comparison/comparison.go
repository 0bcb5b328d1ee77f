// Package comparison compares a model with itself under two sets of operators: first the
// answers, output by output, then the time, in interleaved runs.
package comparison

import (
	"context"
	"fmt"

	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
)

// Options say what is compared and how long.
type Options struct {
	A, B   string // "none", "auto", a plugin's name, or the path of a plan file
	ModelB string // another model with the same inputs for side B; "" is the same
	// Others are sides beside B, each of which is compared with A, and Axes what is swept; both are for Sweep and
	// SweepApart.
	Others []string
	Axes   []Axis
	Inputs inputs.Options
	// Force uses operators whatever they are expected to gain.
	Force bool
	// QuantizationNoise uses them before what rounds to integers, too.
	QuantizationNoise bool
	Padding           plan.Padding // of hidden tokens, where a side has operators
	Threads           int          // intra-op threads; 0 is one a core
	Warmup            int          // runs of each side before timing
	Rounds            int          // ABBA rounds: each times both sides twice
	// Unoptimized also compares B with the model as ONNX Runtime runs it without its graph optimisations: A and B can be
	// wrong in the same way.
	Unoptimized bool
	// Tolerance of answers; zero fields take the data type's default.
	Absolute, Relative float64
	// Step is told what begins; nil for silence.
	Step func(what string) `json:"-"`
	// Progress is told the rounds done and their number; nil for silence.
	Progress func(done, total int64) `json:"-"`
}

// Opened is what is known of a side when its session is open.
type Opened struct {
	Name     string   `json:"name"`
	Plugins  []string `json:"plugins"`
	Versions []string `json:"plugin_versions"` // in the order of Plugins
	Replaced int      `json:"replaced"`
	Blocks   int      `json:"blocks"`
	// whether the graph is another than the model's, as where padding is left out and no block is replaced
	Changed bool `json:"changed"`
	// outputs that are zeros in rows of hidden tokens, which are not compared
	Zeros  []string `json:"hidden_rows_zero,omitempty"`
	LoadMS float64  `json:"load_ms"`
	Plan   []Choice `json:"plan,omitempty"` // in the order of the model's nodes; nil for none
	// Footprint is measured where that is asked for.
	Footprint *Footprint `json:"memory,omitempty"`
}

// Choice is what became of a block, and why.
type Choice struct {
	Node     string `json:"node"`
	Kind     string `json:"kind"`
	Plugin   string `json:"plugin,omitempty"` // "" where the block is left unchanged
	Operator string `json:"operator,omitempty"`
	Reason   string `json:"reason"`
}

// Footprint is the memory of a process that opened a side and ran it once with each size of inputs. Resident bytes
// count what is mapped from files too.
type Footprint struct {
	OpenedRSSBytes int64 `json:"opened_rss_bytes"` // when the model was open
	PeakRSSBytes   int64 `json:"peak_rss_bytes"`
}

// Timed are the runs of a side.
type Timed struct {
	MedianMS float64   `json:"median_ms"`
	TimesMS  []float64 `json:"times_ms"` // every timed run, in order; none is left out
}

// Side is one of the two.
type Side struct {
	Opened
	Timed
}

// Result is the whole comparison. Speed-ups are time of A over time of B.
type Result struct {
	SchemaVersion int                `json:"schema_version"`
	Model         string             `json:"model"`
	ModelB        string             `json:"model_b,omitempty"` // when B is another model
	Seed          uint64             `json:"seed"`
	Warmup        int                `json:"warmup"` // runs of each side before timing
	Rounds        int                `json:"rounds"` // of A B B A
	A             Side               `json:"a"`
	B             Side               `json:"b"`
	Inputs        []inputs.Info      `json:"inputs"`
	Workload      inputs.Workload    `json:"workload"`
	Parity        Parity             `json:"parity"`
	Speedup       statistics.Speedup `json:"speedup"`
	NodeTimes     *NodeTimes         `json:"node_times,omitempty"` // measured where that is asked for
	Environment   Environment        `json:"environment"`
}

// Run compares answers and times. The plugins of set are those that "auto" and
// names refer to. Sides of two names that replace nothing are an error of kind ErrSame.
func Run(ctx context.Context, l *ort.Library, set *loaded.Set, path string, o Options) (*Result, error) {
	o.Others, o.Axes = nil, nil
	s, err := Sweep(ctx, l, set, path, o)
	if err != nil {
		return nil, err
	}
	return s.Result(), nil
}

// Sweep is Run with several sides, and with several sizes of inputs.
func Sweep(ctx context.Context, l *ort.Library, set *loaded.Set, path string, o Options) (*Swept, error) {
	h := &here{library: l, set: set, path: path, options: o}
	defer h.close()
	return run(ctx, h, path, o)
}

// Answers compares answers only.
func Answers(ctx context.Context, l *ort.Library, set *loaded.Set, path string, o Options) (*Result, error) {
	o.Others, o.Axes = nil, nil
	h := &here{library: l, set: set, path: path, options: o}
	defer h.close()
	opened, err := h.sides(ctx)
	if err != nil {
		return nil, err
	}
	c, err := h.cell(ctx, 0)
	if err != nil {
		return nil, err
	}
	return newSwept(path, o, opened, []Cell{*c}).Result(), nil
}

func (o *Options) step(what string) {
	if o.Step != nil {
		o.Step(what)
	}
}

// names are those of the sides, A first.
func (o *Options) names() []string { return append([]string{o.A, o.B}, o.Others...) }

// label is what a side is called in errors and steps.
func (o *Options) label(side int) string {
	switch {
	case side == 0:
		return "a"
	case len(o.Others) == 0:
		return "b"
	}
	return fmt.Sprintf("b%d", side)
}
