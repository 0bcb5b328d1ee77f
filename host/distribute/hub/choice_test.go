package hub

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/distribute/hub/hubtest"
	"github.com/opgraft/graft/internal/must"
)

// listed makes a list of files of their names.
func listed(names string) *listing {
	var files []File
	for i, p := range strings.Fields(names) {
		files = append(files, File{p, int64(1000 * (i + 1)), hubtest.GitHash([]byte(p))})
	}
	return newListing(files)
}

// TestChoice: which files of a repository a model is, and by which names it has them.
func TestChoice(t *testing.T) {
	const (
		transformersJS = `README.md config.json generation_config.json tokenizer.json tokenizer_config.json special_tokens_map.json vocab.json merges.txt quantize_config.json
			onnx/model.onnx onnx/model.onnx_data onnx/model.onnx_data_1 onnx/model_fp16.onnx onnx/model_fp16.onnx_data onnx/model_q4.onnx onnx/model_q4f16.onnx onnx/model_quantized.onnx onnx/model_bnb4.onnx`
		sentences = `config.json config_sentence_transformers.json modules.json sentence_bert_config.json tokenizer.json vocab.txt model.safetensors pytorch_model.bin train_script.py data_config.json
			1_Pooling/config.json 2_Dense/config.json 2_Dense/model.safetensors 2_Dense/pytorch_model.bin
			onnx/model.onnx onnx/model_O1.onnx onnx/model_O4.onnx onnx/model_qint8_arm64.onnx onnx/model_qint8_avx512_vnni.onnx openvino/openvino_model.bin openvino/openvino_model.xml`
		sentencesBeside = `config.json config_sentence_transformers.json modules.json sentence_bert_config.json tokenizer.json 1_Pooling/config.json 2_Dense/config.json 2_Dense/model.safetensors`
		whisper         = `config.json preprocessor_config.json tokenizer.json vocab.json merges.txt normalizer.json model.safetensors.index.json flax_model.msgpack
			onnx/encoder_model.onnx onnx/decoder_model.onnx onnx/decoder_with_past_model.onnx onnx/decoder_model_merged.onnx
			onnx/encoder_model_fp16.onnx onnx/decoder_model_merged_fp16.onnx onnx/encoder_model_q4.onnx onnx/decoder_model_q4.onnx onnx/decoder_with_past_model_q4.onnx onnx/encoder_model_int8.onnx`
		marian  = `config.json source.spm target.spm vocab.json tokenizer_config.json encoder_model.onnx decoder_model.onnx decoder_with_past_model.onnx decoder_model.onnx_data`
		old     = `config.json spiece.model vocab.txt decoder_model.onnx decoder_with_past_model.onnx`
		builder = `README.md config.json cpu/int4-block-32/genai_config.json cpu/int4-block-32/phi3.onnx cpu/int4-block-32/phi3.onnx.data cpu/int4-block-32/tokenizer.json
			cuda/cuda-fp16/genai_config.json cuda/cuda-fp16/phi3.onnx cuda/cuda-fp16/phi3.onnx.data cuda/cuda-fp16/tokenizer.json`
		folders = `config.json tokenizer.json fp16/model.onnx fp16/model.onnx.data fp32/model.onnx int8/model.onnx`
		twice   = `config.json tokenizer.json model.onnx onnx/model.onnx onnx/config.json`
		single  = `config.json tokenizer.json bge-small.onnx bge-small.data`
		parts   = `config.json tokenizer.json onnx/decoder_model_merged.onnx onnx/embed_tokens.onnx onnx/vision_encoder.onnx`
	)
	for _, one := range []struct{ files, variant, label, want string }{
		{transformersJS, "", "float32",
			`config.json generation_config.json tokenizer.json tokenizer_config.json special_tokens_map.json vocab.json
			onnx/model.onnx onnx/model.onnx_data onnx/model.onnx_data_1`},
		{transformersJS, "fp32", "float32",
			`config.json generation_config.json tokenizer.json tokenizer_config.json special_tokens_map.json vocab.json
			onnx/model.onnx onnx/model.onnx_data onnx/model.onnx_data_1`},
		{transformersJS, "FP16", "fp16",
			`config.json generation_config.json tokenizer.json tokenizer_config.json special_tokens_map.json vocab.json
			onnx/model.onnx=onnx/model_fp16.onnx onnx/model_fp16.onnx_data`},
		{transformersJS, "int8", "quantized",
			`config.json generation_config.json tokenizer.json tokenizer_config.json special_tokens_map.json vocab.json onnx/model.onnx=onnx/model_quantized.onnx`},
		{transformersJS, "q4", "q4",
			`config.json generation_config.json tokenizer.json tokenizer_config.json special_tokens_map.json vocab.json onnx/model.onnx=onnx/model_q4.onnx`},
		{transformersJS, "q5", "", "found no variant q5, needed one of bnb4 (18 kB), float32 (33 kB), fp16 (27 kB), q4 " +
			"(15 kB), q4f16 (16 kB), quantized (17 kB)"},
		{sentences, "", "float32", sentencesBeside + " onnx/model.onnx"},
		{sentences, "O4", "O4", sentencesBeside + " onnx/model.onnx=onnx/model_O4.onnx"},
		{sentences, "qint8_avx512_vnni", "qint8_avx512_vnni",
			sentencesBeside + " onnx/model.onnx=onnx/model_qint8_avx512_vnni.onnx"},
		{whisper, "", "float32", "config.json preprocessor_config.json tokenizer.json vocab.json onnx/encoder_model.onnx " +
			"onnx/decoder_model_merged.onnx"},
		{whisper, "half", "fp16", "config.json preprocessor_config.json tokenizer.json vocab.json " +
			"onnx/encoder_model.onnx=onnx/encoder_model_fp16.onnx " +
			"onnx/decoder_model_merged.onnx=onnx/decoder_model_merged_fp16.onnx"},
		{whisper, "q4", "q4",
			`config.json preprocessor_config.json tokenizer.json vocab.json onnx/encoder_model.onnx=onnx/encoder_model_q4.onnx onnx/decoder_model.onnx=onnx/decoder_model_q4.onnx
			onnx/decoder_with_past_model.onnx=onnx/decoder_with_past_model_q4.onnx`},
		{whisper, "int8", "", "found no variant int8"}, // an encoder without a decoder
		{marian, "", "float32", marian},
		{old, "", "float32", "config.json spiece.model vocab.txt decoder_with_past_model.onnx"},
		{builder, "", "", "found no float32 model, but cpu/int4-block-32 (9 kB), cuda/cuda-fp16 (17 kB), needed one of " +
			"them; name it: --variant NAME"},
		{builder, "int4-block-32", "cpu/int4-block-32",
			`genai_config.json=cpu/int4-block-32/genai_config.json phi3.onnx=cpu/int4-block-32/phi3.onnx
			phi3.onnx.data=cpu/int4-block-32/phi3.onnx.data tokenizer.json=cpu/int4-block-32/tokenizer.json`},
		{builder, "cuda/cuda-fp16/", "cuda/cuda-fp16",
			`genai_config.json=cuda/cuda-fp16/genai_config.json phi3.onnx=cuda/cuda-fp16/phi3.onnx
			phi3.onnx.data=cuda/cuda-fp16/phi3.onnx.data tokenizer.json=cuda/cuda-fp16/tokenizer.json`},
		{folders, "", "fp32", "config.json tokenizer.json onnx/model.onnx=fp32/model.onnx"},
		{folders, "fp16", "fp16", "config.json tokenizer.json onnx/model.onnx=fp16/model.onnx " +
			"onnx/model.onnx.data=fp16/model.onnx.data"},
		{twice, "", "float32", "config.json tokenizer.json onnx/model.onnx"},
		{single, "", "bge-small", "config.json tokenizer.json onnx/model.onnx=bge-small.onnx " +
			"onnx/bge-small.data=bge-small.data"},
		{parts, "", "", "found graphs, but none by the names of a model that graft opens: onnx/decoder_model_merged.onnx, " +
			"onnx/embed_tokens.onnx, onnx/vision_encoder.onnx"},
		{"config.json model.safetensors", "", "",
			"found no .onnx file, only weights of another form (model.safetensors), needed an export of the model; make it: " +
				"optimum-cli export onnx --model org/model FOLDER"},
		{"README.md", "", "", "found no .onnx file among 1 files"},
	} {
		l := listed(one.files)
		m, err := l.choose(Reference{"org/model", "main"}, "https://host/org/model", one.variant)
		if one.label == "" {
			must.Fail(t, err, one.want)
			continue
		}
		if err != nil {
			t.Errorf("%q of %s: %v", one.variant, one.files, err)
			continue
		}
		var found []string
		for _, p := range l.besides(m) {
			found = append(found, m.asBeside(p)+"="+p)
		}
		for _, p := range l.graphFiles(m) {
			found = append(found, m.asGraph(p)+"="+p)
		}
		var want []string
		for p := range strings.FieldsSeq(one.want) {
			if !strings.Contains(p, "=") {
				p += "=" + p
			}
			want = append(want, p)
		}
		slices.Sort(found)
		slices.Sort(want)
		if !slices.Equal(found, want) || m.label() != one.label {
			t.Errorf("%q of %s is %s\nfound %q\nwant  %q", one.variant, one.files, m.label(), found, want)
		}
	}
}

// TestGlob: patterns as Python's fnmatch reads them.
func TestGlob(t *testing.T) {
	for pattern, want := range map[string]string{
		"*.json": "a.json b/c.json", "a*": "a.json a\nb", "onnx/": "onnx/x", "?.json": "a.json", "[ab].json": "a.json",
		"[!a]/*": "b/c.json", "a.json": "a.json",
		"[": "[", "[]]": "]", "b/[c-c].json": "b/c.json", "*[z-a]*": "", "é*": "é.x",
		"*": "a.json b/c.json a\nb onnx/x [ ] é.x",
	} {
		var found []string
		for _, p := range []string{"a.json", "b/c.json", "a\nb", "onnx/x", "[", "]", "é.x"} {
			if glob(pattern).MatchString(p) {
				found = append(found, p)
			}
		}
		must.Equal(t, strings.Join(found, " "), want, pattern)
	}
}

// A choice does not depend on the order of maps.
func TestChoiceIsStable(t *testing.T) {
	const names = "config.json a/model.onnx b/model.onnx model_q4.onnx q4/model.onnx model-q4.onnx onnx/model.onnx " +
		"model.onnx onnx/model_q4.onnx"
	label := func() string {
		models := listed(names).models()
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(models)) {
			b.WriteString(name + " " + models[name].graphs["model"] + "\n")
		}
		return b.String()
	}
	want := label()
	for range 50 {
		if got := label(); got != want {
			t.Fatalf("found\n%s, then\n%s", want, got)
		}
	}
}
