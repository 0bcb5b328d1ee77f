package inputs

import (
	"fmt"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/internal/must"
)

const (
	i64 = onnx.Tensor_INT64
	i32 = onnx.Tensor_INT32
)

// decoder has the inputs that decoders with past have, under the names that
// exporters give them; the graph only looks tokens up.
func decoder(t testing.TB) string {
	return write(t, []value{
		{name: "input_ids", dims: []any{"batch_size", "sequence_length"}, kind: i64},
		{name: "token_type_ids", dims: []any{"batch_size", "sequence_length"}, kind: i64},
		{name: "attention_mask", dims: []any{"batch_size", "past_sequence_length + sequence_length"}, kind: i64},
		{name: "position_ids", dims: []any{"batch_size", "sequence_length"}, kind: i64},
		{name: "past_key_values.0.key", dims: []any{"batch_size", 2, "past_sequence_length", 4}},
		{name: "use_cache_branch", dims: []any{1}, kind: onnx.Tensor_BOOL},
		{name: "seqlens_k", dims: []any{"batch_size"}, kind: i32},
		{name: "total_sequence_length", dims: []any{}, kind: i32},
		{name: "num_logits_to_keep", dims: []any{}, kind: i64},
		{name: "flags", dims: []any{50}, kind: onnx.Tensor_BOOL},
		{name: "half", dims: []any{1000}, kind: onnx.Tensor_FLOAT16},
	}, []value{{name: "y", dims: []any{"batch_size", "sequence_length", 3}},
		{name: "z", dims: []any{"batch_size", "sequence_length", 3}}},
		[]*onnx.Tensor{table("words", 11, 3), table("segments", 2, 3)},
		"y = Gather(words, input_ids)", "z = Gather(segments, token_type_ids)")
}

func made(t *testing.T, path string, o Options) (map[string]*ort.Value, map[string]Info) {
	t.Helper()
	b := must.Value(Make(library(t), path, o))(t)
	byName := map[string]Info{}
	for _, in := range b.Infos {
		byName[in.Name] = in
	}
	t.Cleanup(b.Close)
	return b.Values, byName
}

func data[T ort.Element](t *testing.T, v *ort.Value) []T {
	t.Helper()
	list := must.Value(ort.Data[T](v))(t)
	return list
}

// TestInputsMean: every input holds what its name says.
func TestInputsMean(t *testing.T) {
	path := decoder(t)
	values, infos := made(t, path,
		Options{Seed: 1, Dims: map[string]int64{"batch": 2, "past_sequence_length": 16, "sequence": 3}})
	shapes := map[string]string{
		"input_ids": "[2 3]", "attention_mask": "[2 19]", "position_ids": "[2 3]", "past_key_values.0.key": "[2 2 16 4]",
		"use_cache_branch": "[1]", "seqlens_k": "[2]", "total_sequence_length": "[]",
	}
	for name, want := range shapes {
		must.Equal(t, fmt.Sprint(infos[name].Shape), want, name)
	}
	tokens := data[int64](t, values["input_ids"])
	if slices.Min(tokens) < 0 || slices.Max(tokens) >= 11 || infos["input_ids"].From != "tokens below 11" {
		t.Errorf("tokens %v, %s, want them below 11", tokens, infos["input_ids"].From)
	}
	if segments := data[int64](t, values["token_type_ids"]); slices.Min(segments) < 0 || slices.Max(segments) > 1 {
		t.Errorf("segments %v, want 0 or 1", segments)
	}
	must.Equal(t, data[int64](t, values["position_ids"]), []int64{16, 17, 18, 16, 17, 18})
	mask := data[int64](t, values["attention_mask"])
	if slices.Contains(mask[:19], 0) {
		t.Errorf("row 0 of the mask %v hides keys", mask[:19])
	}
	if want := []int64{0, 0, 1, 1}; !slices.Equal(mask[19:23], want) || slices.Contains(mask[23:], 0) {
		t.Errorf("the last row of the mask %v has no padding of two at its left end", mask[19:])
	}
	if got := data[bool](t, values["use_cache_branch"]); !got[0] {
		t.Error("use_cache_branch is false")
	}
	must.Equal(t, data[int32](t, values["seqlens_k"]), []int32{18, 18})
	if got := data[int32](t, values["total_sequence_length"]); got[0] != 19 {
		t.Errorf("total_sequence_length %v, want 19", got)
	}
	if got := data[int64](t, values["num_logits_to_keep"]); got[0] != 1 {
		t.Errorf("num_logits_to_keep %v, want 1", got)
	}
	if got := data[bool](t, values["flags"]); !slices.Contains(got, true) || !slices.Contains(got, false) {
		t.Errorf("booleans %v, want both", got)
	}
	past := data[float32](t, values["past_key_values.0.key"])
	if slices.Max(past) < 1 || slices.Min(past) > -1 || slices.Max(past) > 6 {
		t.Errorf("past within %g and %g, want it normal", slices.Min(past), slices.Max(past))
	}
}

// TestInputsOfOneRow: one prompt has no padding.
func TestInputsOfOneRow(t *testing.T) {
	values, _ := made(t, decoder(t), Options{Seed: 1})
	if mask := data[int64](t, values["attention_mask"]); len(mask) != 513 || slices.Contains(mask, 0) {
		t.Errorf("mask %v, want 513 of 1", mask)
	}
}

// TestInputsFromSeed: the same seed makes the same inputs, another makes others.
func TestInputsFromSeed(t *testing.T) {
	path := decoder(t)
	of := func(seed uint64) string {
		values, _ := made(t, path, Options{Seed: seed})
		return fmt.Sprint(data[int64](t, values["input_ids"]), data[float32](t, values["past_key_values.0.key"]))
	}
	if first, again := of(5), of(5); first != again {
		t.Error("two inputs of seed 5 differ")
	}
	if of(5) == of(6) {
		t.Error("seeds 5 and 6 make the same")
	}
}

// TestDefaultLengths: one row; one token after 512, or 128 tokens where there is
// no past.
func TestDefaultLengths(t *testing.T) {
	cases := []struct {
		dims []any
		want string
	}{
		{[]any{"batch_size", "sequence_length"}, "[1 128]"},
		{[]any{"batch_size", "past_sequence_length", "sequence_length"}, "[1 512 1]"},
		{[]any{"encoder_sequence_length", "decoder_sequence_length", "past_decoder_sequence_length"}, "[512 1 512]"},
		{[]any{"past_sequence_length", "sequence_length", "total_sequence_length"}, "[512 1 513]"},
		{[]any{"rows + 1", 7}, "[129 7]"},
		{[]any{"unk__215", 7}, "[1 7]"}, // rows of one size, whatever they are called
	}
	for _, c := range cases {
		path := write(t, []value{{name: "x", dims: c.dims}}, []value{{name: "y", dims: c.dims}}, nil, "y = Identity(x)")
		_, infos := made(t, path, Options{})
		if got := fmt.Sprint(infos["x"].Shape); got != c.want {
			t.Errorf("%v becomes %s, want %s", c.dims, got, c.want)
		}
	}
}

func TestWrongLengths(t *testing.T) {
	fixed := write(t, []value{{name: "x", dims: []any{2, 3}}}, []value{{name: "y", dims: []any{2, 3}}}, nil,
		"y = Identity(x)")
	cases := []struct {
		name, path string
		dims       map[string]int64
		want       string
	}{
		{"unknown", decoder(t), map[string]int64{"btch": 4},
			`no length is called "btch", the inputs have batch_size, sequence_length, past_sequence_length`},
		{"fixed", fixed, map[string]int64{"batch": 4}, `no length is called "batch", all lengths of the inputs are fixed`},
		{"ambiguous", write(t, []value{{name: "x", dims: []any{"seq_a", "seq_b"}}},
			[]value{{name: "y", dims: []any{"seq_a", "seq_b"}}}, nil, "y = Identity(x)"),
			map[string]int64{"seq": 4}, `length "seq" may be seq_a or seq_b`},
		{"negative", decoder(t), map[string]int64{"batch": -1}, "length batch is -1, needs zero or more"},
		{"twice", decoder(t), map[string]int64{"batch": 1, "batch_size": 2}, "length batch_size is asked to be both 1 and 2"},
		{"huge", decoder(t), map[string]int64{"batch": 1 << 40}, "too large to make"},
		{"overflow", decoder(t), map[string]int64{"past": 1<<63 - 1, "sequence": 1<<63 - 1, "batch": 0},
			"axis 1 has no length"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Make(library(t), c.path, Options{Dims: c.dims})
			must.Fail(t, err, c.want, c.path)
		})
	}
	if _, infos := made(t, fixed,
		Options{Dims: map[string]int64{"batch": 4}, LooseDims: true}); fmt.Sprint(infos["x"].Shape) != "[2 3]" {
		t.Errorf("shape %v", infos["x"].Shape)
	}
}

// TestInputsNotMade: what cannot be made must be given.
func TestInputsNotMade(t *testing.T) {
	text := value{name: "x", dims: []any{1}, kind: onnx.Tensor_STRING}
	path := write(t, []value{text}, []value{{name: "y", dims: []any{1}, kind: onnx.Tensor_STRING}}, nil, "y = Identity(x)")
	_, err := Make(library(t), path, Options{})
	must.FailExactly(t, err, path+": input x: there are no synthetic inputs of type string; give it with --inputs")
}

// TestInputsWithDefaults: weights that a graph lists among its inputs, as exporters of old do, keep their values.
func TestInputsWithDefaults(t *testing.T) {
	path := write(t, []value{{name: "x", dims: []any{"batch_size", 3}}, {name: "w", dims: []any{3, 2}}},
		[]value{{name: "y", dims: []any{"batch_size", 2}}}, []*onnx.Tensor{table("w", 3, 2)}, "y = MatMul(x, w)")
	if values, _ := made(t, path, Options{}); len(values) != 1 || values["x"] == nil {
		t.Errorf("inputs %v, want x alone", values)
	}
}
