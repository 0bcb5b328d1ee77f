package generations

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/comparison/divergence"
	"github.com/opgraft/graft/host/measure/statistics"
)

// Versions of the JSON of results.
const (
	resultVersion   = 2 // of Result
	comparedVersion = 3 // of Compared
)

// Compared compares several ways with A end to end.
type Compared struct {
	SchemaVersion int `json:"schema_version"`
	Subject
	Rounds      int                    `json:"rounds"` // of A B C C B A
	A           Side                   `json:"a"`
	Sides       []Against              `json:"sides"`
	Environment comparison.Environment `json:"environment"`
}

// Subject is what is generated, from what.
type Subject struct {
	Model         string  `json:"model"` // its folder
	Batch         int     `json:"batch"`
	InputTokens   int     `json:"input_tokens"`             // of one input
	InputFeatures []int64 `json:"input_features,omitempty"` // shape of one input of a speech model
	// of all inputs: tokens or values, four bytes each, the lowest first
	InputsSHA256 string          `json:"inputs_sha256"`
	Search       json.RawMessage `json:"search,omitempty"` // Options.Search
	// nil without Options.Texts, or where no token of them can be predicted
	Forced *Forced `json:"teacher_forced,omitempty"`
}

func subject(folder string, inputs []*decode.Input, search []byte) Subject {
	s := Subject{Model: folder, Batch: len(inputs), InputTokens: len(inputs[0].Tokens), Search: search}
	h := sha256.New()
	word := make([]byte, 4)
	for _, in := range inputs {
		for _, t := range in.Tokens {
			binary.LittleEndian.PutUint32(word, uint32(t))
			h.Write(word)
		}
		if f := in.Features; f != nil {
			s.InputFeatures = f.Shape
			for _, x := range f.Values {
				binary.LittleEndian.PutUint32(word, math.Float32bits(x))
				h.Write(word)
			}
		}
	}
	s.InputsSHA256 = hex.EncodeToString(h.Sum(nil))
	return s
}

// Against is a side, compared with A.
type Against struct {
	Side
	Outcome
}

// Outcome is what comparing a side with A says.
type Outcome struct {
	NewTokens    int     `json:"new_tokens"` // of the best sequences, all inputs
	MinDistinct  int     `json:"min_distinct_tokens"`
	ReorderShare float64 `json:"reorder_share"` // of the steps of the side's requests
	// Equal sequences of all, the same number of tokens and the same tokens.
	Equal         int                `json:"equal"`
	Sequences     int                `json:"sequences"`
	Speedup       statistics.Speedup `json:"speedup"`
	DecodeSpeedup statistics.Speedup `json:"decode_speedup"`
	// StepFloor compares the side's steps with what the machine's memory allows; nil where it is not the engine, or
	// drafts.
	StepFloor *StepFloor `json:"step_floor,omitempty"`
	// Divergence is that of the side's distributions of the next token from A's; nil as Subject.Forced is.
	Divergence *divergence.Divergence `json:"divergence,omitempty"`
}

// OK says whether all sequences of all sides are A's.
func (c *Compared) OK() bool { return len(c.Differ()) == 0 }

// Differ lists the sides some of whose sequences are not A's.
func (c *Compared) Differ() (list []*Against) {
	for i := range c.Sides {
		if b := &c.Sides[i]; b.Equal != b.Sequences {
			list = append(list, b)
		}
	}
	return list
}

// Result is a comparison of two sides as it is without others; nil of more.
func (c *Compared) Result() *Result {
	if len(c.Sides) != 1 {
		return nil
	}
	b := &c.Sides[0]
	return &Result{SchemaVersion: resultVersion, Subject: c.Subject, Outcome: b.Outcome, A: c.A, B: b.Side,
		Environment: c.Environment}
}

// Compared is the result as one of a single side.
func (r *Result) Compared() *Compared {
	return &Compared{SchemaVersion: comparedVersion, Subject: r.Subject, Rounds: len(r.A.Seconds) / 2, A: r.A,
		Sides: []Against{{r.B, r.Outcome}}, Environment: r.Environment}
}

// Read reads the JSON of a Result or a Compared; path names it in errors.
func Read(path string, data []byte) (*Compared, error) {
	fail := func(found string) (*Compared, error) {
		return nil, &diagnostic.Error{Path: path, Found: found, Needed: "the JSON of a comparison of whole generations",
			Fix: "graft ab MODEL_DIR -o json writes it"}
	}
	var head struct {
		SchemaVersion int `json:"schema_version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fail(err.Error())
	}
	c := &Compared{}
	switch head.SchemaVersion {
	case comparedVersion:
		if err := json.Unmarshal(data, c); err != nil {
			return fail(err.Error())
		}
	case resultVersion:
		r := &Result{}
		if err := json.Unmarshal(data, r); err != nil {
			return fail(err.Error())
		}
		c = r.Compared()
	default:
		return fail(fmt.Sprintf("an object of schema_version %d", head.SchemaVersion))
	}
	if c.Batch < 1 || len(c.Sides) == 0 {
		return fail("a result without inputs or sides")
	}
	sides := []*Side{&c.A}
	for i := range c.Sides {
		sides = append(sides, &c.Sides[i].Side)
	}
	for _, s := range sides {
		if len(s.Seconds) == 0 || len(s.Seconds) != len(s.TTFTSeconds) {
			return fail(fmt.Sprintf("%d and %d times of %q", len(s.Seconds), len(s.TTFTSeconds), s.Name))
		}
	}
	return c, nil
}
