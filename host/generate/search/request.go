package search

import "fmt"

// ProcessorOp is what a Processor does to the logit of one token.
type ProcessorOp uint8

// The logits processors. Those of a row are applied in their order, in float32.
const (
	// Add adds Value to the logit.
	Add ProcessorOp = iota
	// Penalise multiplies a logit below zero by Value and divides any other by it (a
	// repetition penalty above 1 lowers both).
	Penalise
	// Ban makes the logit minus infinity.
	Ban
	// Only makes the logit Value and every other one of the row minus infinity.
	Only
)

// Processor is a logits processor: it changes the logit of one token in one row.
type Processor struct {
	Token int32
	Op    ProcessorOp
	Value float32
}

// Row is one row of logits: what is changed in it before candidates are taken.
type Row struct {
	// Bias is the running score of the row's beam. It is added to every logit after the
	// processors (0 in greedy search and in sampling).
	Bias float32
	// Processors are applied in order, after the log-softmax in mode LogProbs, to the raw
	// logits in the modes Raw and Sample.
	Processors []Processor
}

// Mode says how candidates are taken from a group of rows.
type Mode uint8

const (
	// LogProbs is beam search: log-softmax of each row, processors, bias, then the K best
	// (row, token) pairs over all rows of the group.
	LogProbs Mode = iota
	// Raw is greedy search: processors on the raw logits, bias, then the K best of the group.
	Raw
	// Sample samples. Without LogSoftmax the group has one row: processors
	// on the raw logits, warpers, softmax, and one token for each of Uniform, independently
	// (with replacement). With LogSoftmax it is beam sampling: log-softmax, processors, warpers
	// a row at a time, bias, softmax over all rows of the group together, and K pairs sampled
	// one after the other without replacement, one for each of Uniform.
	Sample
)

// Group is a run of rows that share their candidates: the beams of one group of one input.
type Group struct {
	First int // index of the first row in Request.Rows
	Count int // number of rows, at least 1
	K     int // candidates wanted; fewer are given when fewer are finite (mode Sample: possible)
	Mode  Mode

	// LogSoftmax, in mode Sample only, takes the log-softmax of a row before its processors (beam
	// sampling).
	LogSoftmax bool
	// Normalize takes the log-softmax of a row after its processors and warpers and before its
	// bias (renormalize_logits). In mode Raw the order stays that of the logits before it, and
	// only Candidate.Score changes: it is then the log-probability of the token, with the bias.
	Normalize bool

	// The warpers, in mode Sample only, applied in this order. A zero value leaves one out.
	Temperature float32 // logits are divided by it (0 and 1: not)
	TopK        int     // only the TopK best logits of a row remain (ties with the last stay)
	TopP        float32 // tokens go, worst first, while the probability gone is at most 1-TopP (0 and 1: not)
	MinP        float32 // tokens below MinP times the best probability go
	TypicalP    float32 // tokens nearest the expected information stay, up to this probability (0 and 1: not)
	MinKeep     int     // TopK, TopP, MinP and TypicalP leave at least this many tokens (0: 1)

	// Uniform are uniform random numbers in [0, 1), in mode Sample only, K of them. A number u takes the
	// first token, in order of Row*Vocab+Token, at which the running sum of exp(logit - best)
	// in float64 exceeds u times the whole sum (the last token that is possible, should
	// rounding leave none).
	Uniform []float32
}

// Request is one step of the search over a batch: logits as the model gave them and what is
// wanted of them. Logits are only read.
type Request struct {
	// Logits is [len(Rows), Vocab] in row-major order: the logit of token t in row r is
	// Logits[r*Vocab+t].
	Logits []float32
	Vocab  int
	Rows   []Row
	// Groups are runs of rows; a row may be in no group (it is then not looked at).
	Groups []Group
}

// Candidate is one way on: a row (index in Request.Rows), the token that follows, and the
// score of both (mode LogProbs: bias included; Raw: the processed logit with bias; Sample: the
// log-probability of the token after the warpers, or, when beam sampling, the warped logit with
// bias).
type Candidate struct {
	Row, Token int32
	Score      float32
}

// Selector is logits processing and top-k selection: it reads the logits and gives one list of candidates for each
// group, best first. Among equal ones the lower Row*Vocab+Token comes first (torch.topk
// leaves that order open). Sampled candidates come in the order of their random numbers.
//
// A NaN or a +Inf among the logits of a row that is looked at is a *RowError, and so is a group
// in which every logit is -Inf after the processors (the row named is the group's first). A logit of
// -Inf in the input is a ban that the model made itself; a row that is all -Inf among others that
// are not gives no candidates.
type Selector interface {
	Run(*Request) ([][]Candidate, error)
}

// RowError says that the logits of a row cannot be searched.
type RowError struct {
	Row   int    // index in Request.Rows
	Found string // what was found there, such as "the logit of token 7 is NaN"
}

func (e *RowError) Error() string { return fmt.Sprintf("logits of row %d: %s", e.Row, e.Found) }
