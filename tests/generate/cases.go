package generate

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/opgraft/graft/models"
)

//go:embed testdata/*.json.gz
var testdata embed.FS

// Case is one prompt and what Hugging Face's generate answers, run alone.
type Case struct {
	// Model is the name of the weights; models.SmallFolders with this Model must
	// all give the same answer.
	Model string `json:"model"`
	// Kind of search: "greedy", "beam4", "beam8", "diverse4x2" or "diverse8x4";
	// Option names what is tried with it, "" for nothing.
	Kind   string `json:"kind"`
	Option string `json:"option"`
	// Options are the arguments of generate, in the words of Hugging Face's
	// generation configuration. What they leave out is as the folder's
	// generation_config.json says.
	Options json.RawMessage `json:"options"`
	// Prompt is the text that a decoder-only model continues, or that an encoder
	// reads.
	Prompt []int64 `json:"prompt"`
	// FeaturesSeed names the features that an encoder of sound or images reads (Features).
	FeaturesSeed int `json:"features"`
	// DecoderPrompt follows decoder_start_token_id in what the decoder begins with.
	DecoderPrompt []int64 `json:"decoder_prompt"`
	// Sequences are the answers, best first: what was generated, without prompt,
	// start or padding, with the token that ended it if one did.
	Sequences [][]int64 `json:"sequences"`
	// Scores of the sequences, log-probabilities over length to the power of the
	// length penalty; none for greedy search.
	Scores []float64 `json:"scores"`
	// Steps of the reference's beam search in which the cache was reordered, and
	// those among them in which a beam changed its row; 0 for greedy search.
	Steps    int `json:"steps"`
	Reorders int `json:"reorders"`
}

// String tells the case from the others of its model as far as a reader needs.
func (c Case) String() string {
	option := c.Option
	if option == "" {
		option = "plain"
	}
	return c.Kind + "/" + strings.ReplaceAll(option, " ", "_")
}

// Spread is the least and the median of a number of values.
type Spread struct {
	Least  float64 `json:"least"`
	Median float64 `json:"median"`
	Of     int     `json:"of"`
}

// Counts say how the cases of a model came about and how real they are.
type Counts struct {
	Cases int `json:"cases"`
	// ReplacedPrecision are prompts left out because float32 and float64 differed,
	// ReplacedNearTie those because noise on the scores changed the answer.
	ReplacedPrecision int `json:"replaced_precision"`
	ReplacedNearTie   int `json:"replaced_near_tie"`
	// ReplacedDull are prompts without options left out because their answer was of
	// few tokens or its beams kept their order.
	ReplacedDull int `json:"replaced_dull"`
	// WithoutEffect are cases whose option changes nothing on the prompts tried.
	WithoutEffect int `json:"without_effect"`
	// Plain cases have no option; PlainEnded of them ended before 64 tokens. The
	// others have DistinctTokens each, and of the steps of a beam search a share
	// Reorders changes the order of the beams.
	Plain          int     `json:"plain"`
	PlainEnded     int     `json:"plain_ended"`
	DistinctTokens *Spread `json:"distinct_tokens_of_64"`
	Reorders       *Spread `json:"share_of_steps_that_reorder"`
}

// Expected are the cases of one model.
type Expected struct {
	Model string `json:"model"`
	// Brief says that there are a few greedy and beam searches without options only: the
	// model stands for a family of architectures.
	Brief bool `json:"brief"`
	// Seed of the weights and of the features.
	Seed uint64 `json:"seed"`
	// Noise on the scores under which every answer stays, in deviations of a row.
	Noise float64 `json:"noise"`
	// FeatureShape is [mel bins, frames] of sound, or [channels, height, width] of images; nil for encoders of tokens.
	FeatureShape []int64           `json:"features"`
	MadeBy       map[string]string `json:"made_by"`
	Counts       Counts            `json:"counts"`
	Cases        []Case            `json:"cases"`
}

// Families lists the models that there are brief expectations for.
func Families() (names []string) {
	for _, f := range models.SmallFolders() {
		if f.Family && !slices.Contains(names, f.Model) {
			names = append(names, f.Model)
		}
	}
	return names
}

// Models lists the models that there are whole expectations for.
func Models() []string {
	families := Families()
	return slices.DeleteFunc(All(), func(name string) bool { return slices.Contains(families, name) })
}

// All lists the models that there are expectations for.
func All() []string {
	entries, err := testdata.ReadDir("testdata")
	if err != nil {
		panic(fmt.Sprintf("generate: the embedded expectations cannot be listed: this is a bug: %v", err))
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".json.gz"))
	}
	return names
}

// Load reads the expectations for a model.
func Load(model string) (*Expected, error) {
	if !slices.Contains(All(), model) {
		return nil, fmt.Errorf("no expected tokens for %q: there are those for %s", model, strings.Join(All(), ", "))
	}
	path := "testdata/" + model + ".json.gz"
	b, err := testdata.ReadFile(path)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var e Expected
	if err := json.NewDecoder(z).Decode(&e); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &e, nil
}

// Features are what an encoder of sound or images reads in the case, in the shape [1, ..] of FeatureShape.
func (e *Expected) Features(c Case) []float32 {
	n := int64(1)
	for _, d := range e.FeatureShape {
		n *= d
	}
	return models.Normal(e.Seed, fmt.Sprintf("features/%d", c.FeaturesSeed), int(n))
}

// Start is what the decoder begins with: the prompt of a decoder-only model, else
// its start token and what follows that.
func (c Case) Start(encoderDecoder bool, startToken int64) []int64 {
	if !encoderDecoder {
		return c.Prompt
	}
	return append([]int64{startToken}, c.DecoderPrompt...)
}
