package inputs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
)

// Kind is what a model is, by the facts of its graph.
type Kind string

// The kinds whose runs have sizes of their own.
const (
	Encoder         Kind = "encoder"           // tokens that all see each other
	Decoder         Kind = "decoder"           // tokens that see those before them, or an encoder's output
	DecoderWithPast Kind = "decoder with past" // that takes keys and values of earlier runs
	Image           Kind = "image model"
	Other           Kind = ""
)

// kindOf tells what a model is.
func kindOf(g *graph.Graph, shapes *graph.Shapes, r *roles.Roles, report *blocks.Report) Kind {
	if r.HasPast {
		return DecoderWithPast
	}
	if r.HasInput(roles.Tokens) {
		attention := false
		for _, b := range report.Blocks {
			if a := b.Attention; a != nil {
				attention = true
				if a.Causal || a.Type == "cross" {
					return Decoder
				}
			}
		}
		switch {
		case r.HasInput(roles.EncoderOutput):
			return Decoder
		case attention && r.HasInput(roles.Mask):
			return Encoder
		}
		return Other
	}
	for _, in := range g.Inputs {
		if r.Of(in) == roles.Image && shapes.Of(in).Rank == 4 {
			return Image
		}
	}
	return Other
}

// The lengths of a run where nothing else is asked for. An encoder gets a batch, as
// a service that embeds texts gives it; a decoder with a past gets one step.
const (
	defaultLength  = 128 // tokens without a past
	defaultPast    = 512 // positions of a past, or of an encoder's output
	defaultTexts   = 8   // rows of an encoder's batch
	spreadOfLength = 0.5 // standard deviation of the logarithm of a text's length
)

// defaults are the lengths of a run of a kind of model, within its positions: 0
// positions are no limit.
func (k Kind) defaults(positions int64) map[roles.Length]int64 {
	within := func(n, limit int64) int64 {
		if positions > 0 {
			n = min(n, limit)
		}
		return max(n, 0)
	}
	lengths := map[roles.Length]int64{roles.Batch: 1, roles.New: within(defaultLength, positions),
		roles.Cached: within(defaultPast, positions-1), roles.Encoder: defaultPast}
	switch k {
	case Encoder:
		lengths[roles.Batch] = defaultTexts
	case DecoderWithPast:
		lengths[roles.New] = 1
	}
	return lengths
}

// textLengths are the tokens of each text of an encoder's batch, the longest of them
// `longest`: log-normal, as the lengths of sentences and paragraphs are, and scaled
// so that one text fills its row. Of eight rows about two fifths are padding then.
func textLengths(seed uint64, rows, longest int64) []int64 {
	random := rand.New(rand.NewPCG(seed, 0x6c656e67))
	list, largest := make([]float64, rows), 0.0
	for i := range list {
		list[i] = math.Exp(spreadOfLength * random.NormFloat64())
		largest = max(largest, list[i])
	}
	lengths := make([]int64, rows)
	for i, x := range list {
		lengths[i] = min(int64(math.Ceil(x/largest*float64(longest))), longest)
	}
	return lengths
}

// Workload is the size of a run.
type Workload struct {
	Kind          Kind    `json:"kind"`
	Batch         int64   `json:"batch"`
	Tokens        int64   `json:"tokens,omitempty"`         // of a row, new in this run
	Past          int64   `json:"past,omitempty"`           // positions of a row before them
	EncoderTokens int64   `json:"encoder_tokens,omitempty"` // positions of the encoder's output
	Image         []int64 `json:"image,omitempty"`          // channels, height, width
	// Padding is the share of positions that the attention mask hides; nil without
	// such a mask.
	Padding *float64 `json:"padding,omitempty"`
}

func (w Workload) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: batch %d", w.Kind, w.Batch)
	switch w.Kind {
	case Other:
		return ""
	case Image:
		for _, n := range w.Image {
			fmt.Fprintf(&b, " x %d", n)
		}
		return b.String()
	case DecoderWithPast:
		fmt.Fprintf(&b, ", %s after %d", diagnostic.Counted(w.Tokens, "token"), w.Past)
	default:
		fmt.Fprintf(&b, " x %s", diagnostic.Counted(w.Tokens, "token"))
	}
	if w.EncoderTokens > 0 {
		fmt.Fprintf(&b, ", %d encoder positions", w.EncoderTokens)
	}
	switch {
	case w.Padding != nil && *w.Padding > 0:
		fmt.Fprintf(&b, ", %.1f%% padding", 100**w.Padding)
	case w.Padding != nil:
		b.WriteString(", no padding")
	}
	return b.String()
}
