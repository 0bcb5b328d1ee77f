package generate

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// recomputer continues sequences greedily the slow way: the whole sequence goes
// through ONNX Runtime for every token, with empty pasts. It owes nothing to a
// cache, so what it shows is that graphs, weights and expectations are of one model.
type recomputer struct {
	library          *ort.Library
	encoder, decoder *session.Session
	config           struct {
		IsEncoderDecoder bool  `json:"is_encoder_decoder"`
		StartToken       int64 `json:"decoder_start_token_id"`
	}
	generation struct {
		EOS           ids     `json:"eos_token_id"`
		ForcedBOS     *int64  `json:"forced_bos_token_id"`
		ForcedEOS     *int64  `json:"forced_eos_token_id"`
		BadWords      [][]int `json:"bad_words_ids"`
		Suppress      []int   `json:"suppress_tokens"`
		BeginSuppress []int   `json:"begin_suppress_tokens"`
	}
}

// ids is a token id or a list of them.
type ids []int64

func (l *ids) UnmarshalJSON(b []byte) error {
	var one int64
	if json.Unmarshal(b, &one) == nil {
		*l = ids{one}
		return nil
	}
	return json.Unmarshal(b, (*[]int64)(l))
}

func newRecomputer(t *testing.T, l *ort.Library, name string, patcher session.Patcher) *recomputer {
	t.Helper()
	dir := t.TempDir()
	must.Succeed(t, models.Small(name, dir))
	r := &recomputer{library: l}
	read(t, filepath.Join(dir, "config.json"), &r.config)
	read(t, filepath.Join(dir, "generation_config.json"), &r.generation)
	// Without past, merged, with past: the first that there is takes whole sequences.
	for _, file := range []string{"decoder_model", "decoder_model_merged", "model"} {
		if _, err := os.Stat(filepath.Join(dir, file+".onnx")); err == nil {
			r.decoder = newSession(t, l, filepath.Join(dir, file+".onnx"), patcher)
			break
		}
	}
	if r.config.IsEncoderDecoder {
		r.encoder = newSession(t, l, filepath.Join(dir, "encoder_model.onnx"), nil)
	}
	return r
}

func read(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	must.Succeed(t, err, path)
}

func newSession(t *testing.T, l *ort.Library, path string, patcher session.Patcher) *session.Session {
	t.Helper()
	s := must.Value(session.Open(l, path, session.Options{IntraOpThreads: 1, Patcher: patcher}))(t)
	t.Cleanup(s.Close)
	return s
}

// read is what the encoder's mask is over: tokens, or samples of sound.
func (e *Expected) read(c Case) int64 {
	if len(e.FeatureShape) == 1 {
		return e.FeatureShape[0]
	}
	return int64(len(c.Prompt))
}

// encode runs the encoder over the text or the features of a case.
func (r *recomputer) encode(ctx context.Context, e *Expected, c Case) (*ort.Value, error) {
	inputs := map[string]*ort.Value{}
	defer closeAll(inputs)
	for _, in := range r.encoder.Inputs() {
		var v *ort.Value
		var err error
		switch n := e.read(c); in.Name {
		case "input_ids":
			v, err = ort.NewTensor(r.library, []int64{1, n}, c.Prompt)
		case "attention_mask":
			v, err = ort.NewTensor(r.library, []int64{1, n}, ones(n))
		case "input_features", "pixel_values", "input_values":
			v, err = ort.NewTensor(r.library, append([]int64{1}, e.FeatureShape...), e.Features(c))
		default:
			err = fmt.Errorf("encoder input %s is not understood", in)
		}
		if err != nil {
			return nil, err
		}
		inputs[in.Name] = v
	}
	out, err := r.encoder.Run(ctx, inputs, "last_hidden_state")
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// logits are those after the last of tokens.
func (r *recomputer) logits(ctx context.Context, hidden *ort.Value, read int64, tokens []int64) ([]float32, error) {
	inputs := map[string]*ort.Value{}
	defer closeAll(inputs)
	n := int64(len(tokens))
	for _, in := range r.decoder.Inputs() {
		var v *ort.Value
		var err error
		switch {
		case in.Name == "input_ids" || in.Name == "decoder_input_ids":
			v, err = ort.NewTensor(r.library, []int64{1, n}, tokens)
		case in.Name == "attention_mask":
			v, err = ort.NewTensor(r.library, []int64{1, n}, ones(n))
		case in.Name == "encoder_attention_mask":
			v, err = ort.NewTensor(r.library, []int64{1, read}, ones(read))
		case in.Name == "position_ids":
			v, err = ort.NewTensor(r.library, []int64{1, n}, counting(n))
		case in.Name == "use_cache_branch":
			v, err = ort.NewTensor(r.library, []int64{1}, []bool{false})
		case in.Name == "encoder_hidden_states":
			continue
		case strings.HasPrefix(in.Name, "past_key_values."):
			// A merged decoder reads a past's shape even where it does not use it, and
			// refuses an empty one only with the cache on.
			shape := slices.Clone(in.Shape)
			for i := range shape {
				if shape[i] < 0 {
					shape[i] = 0
				}
			}
			shape[0] = 1
			v, err = ort.NewTensor(r.library, shape, []float32{})
		default:
			err = fmt.Errorf("decoder input %s is not understood", in)
		}
		if err != nil {
			return nil, err
		}
		inputs[in.Name] = v
	}
	given := inputs
	if hidden != nil {
		given = map[string]*ort.Value{"encoder_hidden_states": hidden}
		for name, v := range inputs {
			given[name] = v
		}
	}
	out, err := r.decoder.Run(ctx, given, "logits")
	if err != nil {
		return nil, err
	}
	defer out[0].Close()
	data, err := ort.Data[float32](out[0])
	if err != nil {
		return nil, err
	}
	vocabulary := out[0].Shape()[2]
	return slices.Clone(data[int64(len(data))-vocabulary:]), nil
}

// greedy continues a case until it ends or has limit tokens.
func (r *recomputer) greedy(ctx context.Context, e *Expected, c Case, limit int) ([]int64, error) {
	var hidden *ort.Value
	if r.encoder != nil {
		var err error
		if hidden, err = r.encode(ctx, e, c); err != nil {
			return nil, err
		}
		defer hidden.Close()
	}
	tokens := slices.Clone(c.Start(r.config.IsEncoderDecoder, r.config.StartToken))
	start := len(tokens)
	for len(tokens)-start < limit {
		logits, err := r.logits(ctx, hidden, e.read(c), tokens)
		if err != nil {
			return nil, err
		}
		next := r.choose(logits, len(tokens)-start, limit, len(tokens))
		tokens = append(tokens, next)
		if slices.Contains(r.generation.EOS, next) {
			break
		}
	}
	return tokens[start:], nil
}

// choose is the best token that the folder's generation_config.json allows.
func (r *recomputer) choose(logits []float32, made, limit, length int) int64 {
	banned := slices.Clone(r.generation.Suppress)
	for _, word := range r.generation.BadWords {
		banned = append(banned, word...) // all of one token
	}
	if made == 0 {
		banned = append(banned, r.generation.BeginSuppress...)
	}
	if g := r.generation.ForcedBOS; g != nil && length == 1 {
		return *g
	}
	if g := r.generation.ForcedEOS; g != nil && made == limit-1 {
		return *g
	}
	best := -1
	for i, x := range logits {
		if !slices.Contains(banned, i) && (best < 0 || x > logits[best]) {
			best = i
		}
	}
	return int64(best)
}

func closeAll(values map[string]*ort.Value) {
	for _, v := range values {
		v.Close()
	}
}

func ones(n int64) []int64 { return slices.Repeat([]int64{1}, int(n)) }

func counting(n int64) []int64 {
	list := make([]int64, n)
	for i := range list {
		list[i] = int64(i)
	}
	return list
}

// TestFoldersGenerateWhatIsExpected runs greedy cases of every folder of optimum's, whose graphs take whole sequences.
func TestFoldersGenerateWhatIsExpected(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	for _, name := range Models() {
		e := must.Value(Load(name))(t)
		for _, folder := range models.SmallFolders() {
			if folder.Model == name && !slices.Contains(folder.Files, "prefill") {
				t.Run(folder.Name, func(t *testing.T) { newRecomputer(t, l, folder.Name, nil).compare(t, e, 5) })
			}
		}
	}
}

// compare runs the first n greedy cases.
func (r *recomputer) compare(t *testing.T, e *Expected, n int) {
	t.Helper()
	ran := 0
	for _, c := range e.Cases {
		if c.Kind != "greedy" || c.Option != "" || ran == n {
			continue
		}
		ran++
		got := must.Value(r.greedy(context.Background(), e, c, 64))(t)
		must.Equal(t, got, c.Sequences[0], c.Prompt, c.FeaturesSeed)
	}
	if ran < n {
		t.Fatalf("%s has %d greedy cases, need %d", e.Model, ran, n)
	}
}
