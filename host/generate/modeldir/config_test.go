package modeldir_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/internal/must"
)

func folder(t testing.TB, config string) string {
	t.Helper()
	dir := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644))
	return dir
}

// checkConfig refuses sizes that a model cannot have, from which memory would be reserved.
func checkConfig(t testing.TB, c *modeldir.Config) {
	t.Helper()
	if c.Vocab <= 0 || c.Vocab > limit.Tokens || c.Positions <= 0 || c.Positions > limit.Tokens ||
		c.EncoderPositions <= 0 || c.EncoderPositions > limit.Tokens {
		t.Errorf("found a vocabulary of %d, %d positions and %d of the encoder", c.Vocab, c.Positions, c.EncoderPositions)
	}
	n := int64(1)
	for _, d := range c.FeatureShape() {
		if n *= d; d <= 0 || n > 1<<26 {
			t.Errorf("found features of %v", c.FeatureShape())
		}
	}
}

// TestExtremeConfig: numbers of a configuration are within bounds or an error.
func TestExtremeConfig(t *testing.T) {
	for _, n := range []string{"-1", "0", "9223372036854775807", "1e18", "4611686018427387905", "1e400", `"1"`, "null",
		"[]"} {
		for _, name := range []string{"vocab_size", "max_position_embeddings", "n_positions", "max_source_positions",
			"max_target_positions", "max_encoder_position_embeddings", "max_decoder_position_embeddings", "num_mel_bins"} {
			config := fmt.Sprintf(`{"vocab_size": 10, "num_mel_bins": 80, "max_source_positions": 1500, %q: %s}`, name, n)
			if c, err := modeldir.ReadConfig(folder(t, config)); err == nil {
				checkConfig(t, c)
			}
		}
	}
}

// TestPositions: how long sequences may be is in different fields of different models.
func TestPositions(t *testing.T) {
	for _, c := range []struct {
		config           string
		decoder, encoder int64
	}{
		{`"model_type": "bart", "max_position_embeddings": 1024`, 1024, 1024},
		{`"model_type": "gpt2", "n_positions": 512`, 512, 512},
		{`"model_type": "mpt", "max_seq_len": 256`, 256, 256},
		{`"model_type": "whisper", "max_source_positions": 1500, "max_target_positions": 448`, 448, 1500},
		{`"model_type": "led", "max_encoder_position_embeddings": 16384, "max_decoder_position_embeddings": 1024`, 1024,
			16384},
		// the first is padding's, the last a placeholder's
		{`"model_type": "prophetnet", "max_position_embeddings": 512, "pad_token_id": 0`, 510, 511},
		{`"model_type": "prophetnet", "max_position_embeddings": 2, "pad_token_id": 9`, 1, 1},
		{`"model_type": "unilm", "max_position_embeddings": 512`, 511, 511},
		{`"model_type": "t5", "n_positions": 512, "relative_attention_num_buckets": 32`, 1 << 20, 1 << 20},
	} {
		found := must.Value(modeldir.ReadConfig(folder(t, `{"vocab_size": 10, `+c.config+`}`)))(t)
		if found.Positions != c.decoder || found.EncoderPositions != c.encoder {
			t.Errorf("%s: %d positions, %d of the encoder; want %d and %d", c.config, found.Positions, found.EncoderPositions,
				c.decoder, c.encoder)
		}
	}
}

// TestModelsOfTwo: sizes are those of the decoder, and of the encoder's images.
func TestModelsOfTwo(t *testing.T) {
	for _, c := range []struct {
		encoder   string
		shape     []int64 // nil: refused
		positions int64
	}{
		{`{"image_size": 384, "patch_size": 16}`, []int64{1, 3, 384, 384}, 24*24 + 2},
		{`{}`, []int64{1, 3, 224, 224}, 14*14 + 2},
		{`{"image_size": [2560, 1920], "patch_size": 4, "depths": [2, 2, 14, 2], "num_channels": 3}`,
			[]int64{1, 3, 2560, 1920}, 80*60 + 2},
		{`{"image_size": [1, 2, 3]}`, nil, 0},
		{`{"image_size": 100000}`, nil, 0},
		{`{"image_size": [16384, 16384]}`, nil, 0},
		{`{"image_size": "a"}`, nil, 0},
		{`{"num_channels": 0}`, nil, 0},
		{`{"patch_size": 0}`, nil, 0},
	} {
		found, err := modeldir.ReadConfig(
			folder(t,
				`{"model_type": "vision-encoder-decoder", "decoder": {"vocab_size": 10, "max_position_embeddings": 20}, "encoder": `+c.encoder+`}`))
		switch {
		case c.shape == nil:
			if err == nil || !strings.Contains(err.Error(),
				"config.json: its encoder has no sizes of images that a model may have") {
				t.Errorf("%s: %v", c.encoder, err)
			}
		case err != nil:
			t.Errorf("%s: %v", c.encoder, err)
		case !slices.Equal(found.FeatureShape(), c.shape) || found.EncoderPositions != c.positions || found.Vocab != 10 ||
			found.Positions != 20 || found.ModelType != modeldir.VisionEncoderDecoder:
			t.Errorf("%s: %+v, %v", c.encoder, found, found.FeatureShape())
		}
	}
}

// TestConfigIsAFile: nothing waits for a pipe, or reads what is far too large.
func TestConfigIsAFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.json")
	must.Succeed(t, syscall.Mkfifo(path, 0o600))
	must.Fail(t, must.Error(modeldir.ReadConfig(dir)), "needed a regular file")
	must.Succeed(t, os.Remove(path))
	must.Succeed(t, os.WriteFile(path, nil, 0o644))
	must.Succeed(t, os.Truncate(path, 16<<20+1))
	must.Fail(t, must.Error(modeldir.ReadConfig(dir)), "found more than 16777216 bytes")
}

// FuzzReadConfig: no config.json, and no genai_config.json, makes the reader panic, or asks for sizes that no model
// has.
func FuzzReadConfig(f *testing.F) {
	for _, config := range []string{`{"vocab_size": 10, "max_position_embeddings": 9}`,
		`{"model_type": "whisper", "vocab_size": 51865, "num_mel_bins": 80, "max_source_positions": 1500, "max_target_positions": 448}`,
		`{"model_type": "vision-encoder-decoder", "decoder": {"vocab_size": 10}, "encoder": {"image_size": [64, 48], "depths": [2, 2]}}`,
		`{"model_type": "t5", "vocab_size": 32128, "n_positions": 512, "relative_attention_num_buckets": 32}`,
		strings.Repeat("[", 20000)} {
		f.Add([]byte(config))
	}
	f.Add(
		[]byte(
			`{"model": {"type": "qwen3", "vocab_size": 320, "context_length": 192, "eos_token_id": [44], "decoder": {"filename": "model.onnx"}}, "search": {"max_length": 192, "top_k": 50}}`))
	dirs := map[string]string{modeldir.ConfigName: f.TempDir(), modeldir.GenaiConfigName: f.TempDir()}
	f.Fuzz(func(t *testing.T, data []byte) {
		for name, dir := range dirs {
			must.Succeed(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
			must.CostLittle(t, len(data), func() {
				if c, err := modeldir.ReadConfig(dir); err == nil {
					checkConfig(t, c)
				}
			})
		}
	})
}

// Python writes numbers that JSON has none for, and reads them again.
func TestConfigOfPython(t *testing.T) {
	dir := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, modeldir.ConfigName), []byte(
		`{"model_type": "mamba2", "vocab_size": 48, "time_step_limit": [0.0, Infinity], "low": -Infinity, "no": NaN}`), 0o600))
	must.Equal(t, must.Value(modeldir.ReadConfig(dir))(t).Vocab, 48)
}
