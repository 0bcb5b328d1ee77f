package generations

import (
	"github.com/opgraft/graft/host/comparison"
	"github.com/opgraft/graft/host/statistics"
)

// Versions of the JSON of results.
const (
	resultVersion   = 2 // of Result
	comparedVersion = 3 // of Compared
)

// Compared compares several ways with A end to end.
type Compared struct {
	SchemaVersion int                    `json:"schema_version"`
	Model         string                 `json:"model"`
	Batch         int                    `json:"batch"`
	InputTokens   int                    `json:"input_tokens"`             // of one input
	InputFeatures []int64                `json:"input_features,omitempty"` // shape of one input of a speech model
	Rounds        int                    `json:"rounds"`                   // of A B C C B A
	A             Side                   `json:"a"`
	Sides         []Against              `json:"sides"`
	Environment   comparison.Environment `json:"environment"`
}

// Against is a side, compared with A. Its fields are as those of Result.
type Against struct {
	Side
	NewTokens     int                `json:"new_tokens"`
	MinDistinct   int                `json:"min_distinct_tokens"`
	ReorderShare  float64            `json:"reorder_share"`
	Equal         int                `json:"equal"`
	Sequences     int                `json:"sequences"`
	Speedup       statistics.Speedup `json:"speedup"`
	DecodeSpeedup statistics.Speedup `json:"decode_speedup"`
	StepFloor     *StepFloor         `json:"step_floor,omitempty"`
}

// OK says whether all sequences of all sides are A's.
func (c *Compared) OK() bool {
	for i := range c.Sides {
		if c.Sides[i].Equal != c.Sides[i].Sequences {
			return false
		}
	}
	return true
}

// Result is a comparison of two sides as it is without others; nil of more.
func (c *Compared) Result() *Result {
	if len(c.Sides) != 1 {
		return nil
	}
	b := &c.Sides[0]
	return &Result{SchemaVersion: resultVersion, Model: c.Model, Batch: c.Batch, InputTokens: c.InputTokens, InputFeatures: c.InputFeatures,
		NewTokens: b.NewTokens, MinDistinct: b.MinDistinct, ReorderShare: b.ReorderShare, Equal: b.Equal, Sequences: b.Sequences,
		A: c.A, B: b.Side, Speedup: b.Speedup, DecodeSpeedup: b.DecodeSpeedup, StepFloor: b.StepFloor, Environment: c.Environment}
}
