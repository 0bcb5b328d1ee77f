package search

// EditOp is what an Edit does to the score of one token.
type EditOp uint8

// The edits. Those of a row are applied in their order, in float32.
const (
	// Add adds Value to the score.
	Add EditOp = iota
	// Penalise multiplies a score below zero by Value and divides any other by it (a
	// repetition penalty above 1 lowers both).
	Penalise
	// Ban makes the score minus infinity.
	Ban
	// Only makes the score Value and every other score of the row minus infinity.
	Only
)

// Edit changes the score of one token in one row.
type Edit struct {
	Token int32
	Op    EditOp
	Value float32
}

// Row is one row of scores: what is changed in it before candidates are taken.
type Row struct {
	// Bias is the running score of the row's beam. It is added to every score after the
	// edits (0 in greedy search and in sampling).
	Bias float32
	// Edits are applied in order, after the log-softmax in mode LogProbs, to the raw
	// scores in the modes Raw and Sample.
	Edits []Edit
}

// Mode says how candidates are taken from a group of rows.
type Mode uint8

const (
	// LogProbs is beam search: log-softmax of each row, edits, bias, then the K best
	// (row, token) pairs over all rows of the group.
	LogProbs Mode = iota
	// Raw is greedy search: edits on the raw scores, bias, then the K best of the group.
	Raw
	// Sample draws. A group of one row without LogSoftmax is plain sampling: edits on the
	// raw scores, warpers (temperature, top-k, min-p, top-p, ...), softmax, one token drawn
	// for each entry of Draws. With LogSoftmax it is beam sampling: log-softmax, edits,
	// bias, warpers a row at a time, and K pairs drawn without replacement over all rows
	// of the group.
	Sample
)

// Group is a run of rows that share their candidates: the beams of one group of one sample.
type Group struct {
	First int // index of the first row in Request.Rows
	Count int // number of rows, at least 1
	K     int // candidates wanted; fewer are given when fewer are finite
	Mode  Mode

	// LogSoftmax, in mode Sample only, takes the log-softmax of a row before its edits (beam
	// sampling).
	LogSoftmax bool

	// The warpers, in mode Sample only, applied in this order. A zero value leaves one out.
	Temperature float32 // scores are divided by it (0 and 1: not)
	TopK        int     // only the TopK best scores of a row remain (ties with the last stay)
	TopP        float32 // the smallest set of best tokens whose probability reaches TopP remains
	MinP        float32 // tokens below MinP times the best probability go
	TypicalP    float32 // tokens nearest the expected information, up to this probability
	MinKeep     int     // TopK, TopP, MinP and TypicalP leave at least this many tokens (0: 1)

	// Draws are uniform numbers in [0, 1), in mode Sample only, K of them.
	Draws []float32
}

// Request is one step of the search over a batch: scores as the model gave them and what is
// wanted of them. Scores are only read.
type Request struct {
	// Scores is [len(Rows), Vocab] in row-major order: the score of token t in row r is
	// Scores[r*Vocab+t].
	Scores []float32
	Vocab  int
	Rows   []Row
	// Groups are runs of rows; a row may be in no group (it is then not looked at).
	Groups []Group
}

// Candidate is one way on: a row (index in Request.Rows), the token that follows, and the
// score of both (mode LogProbs: bias included; Raw: the edited score; Sample: the log-probability
// of the token after the warpers, or, when beam sampling, the warped score with bias).
type Candidate struct {
	Row, Token int32
	Score      float32
}

// Tail is the end of a step: it reads the scores and gives one list of candidates for each
// group, best first. Among equal scores the lower Row*Vocab+Token comes first (torch.topk
// leaves that order open). Drawn candidates come in the order of the draws.
//
// A NaN or a +Inf among the scores of a row that is looked at is an error that names the row,
// and so is a group in which every score is -Inf after the edits. A score of -Inf in the input
// is a ban that the model made itself.
type Tail interface {
	Run(*Request) ([][]Candidate, error)
}
