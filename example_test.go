package graft_test

import (
	"fmt"
	"log"

	onnx "github.com/yalue/onnxruntime_go"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/ort"
)

// A program on onnxruntime_go: the one line is graft.Enable.
func Example() {
	onnx.SetSharedLibraryPath(runtimePath())
	if err := onnx.InitializeEnvironment(); err != nil {
		log.Fatal(err)
	}
	defer onnx.DestroyEnvironment()

	if err := graft.Enable(); err != nil {
		log.Fatal(err)
	}
	defer graft.Disable()

	// From here on everything is as it was.
	token, err := firstToken("models/tiny-gpt2/model.onnx", []int64{40, 101, 12})
	if err != nil {
		log.Fatal(err)
	}

	graft.Disable()
	plain, err := firstToken("models/tiny-gpt2/model.onnx", []int64{40, 101, 12})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("same token:", token == plain)
	// Output: same token: true
}

// firstToken runs a prompt through a GPT-2 type model and returns the most
// probable next token.
func firstToken(model string, prompt []int64) (int64, error) {
	ins, outs, err := onnx.GetInputOutputInfo(model)
	if err != nil {
		return 0, err
	}
	var names, results []string
	var inputs []onnx.Value
	n := int64(len(prompt))
	for _, in := range ins {
		var v onnx.Value
		switch in.Name {
		case "input_ids":
			v, err = onnx.NewTensor(onnx.NewShape(1, n), prompt)
		case "attention_mask":
			// One position of padding stands in the past, hidden by the mask.
			v, err = onnx.NewTensor(onnx.NewShape(1, n+1), []int64{0, 1, 1, 1})
		case "position_ids":
			v, err = onnx.NewTensor(onnx.NewShape(1, n), []int64{0, 1, 2})
		default: // past_key_values.*
			v, err = onnx.NewTensor(onnx.NewShape(1, in.Dimensions[1], 1, in.Dimensions[3]), make([]float32, in.Dimensions[1]*in.Dimensions[3]))
		}
		if err != nil {
			return 0, err
		}
		defer v.Destroy()
		names, inputs = append(names, in.Name), append(inputs, v)
	}
	for _, out := range outs {
		results = append(results, out.Name)
	}
	s, err := onnx.NewDynamicAdvancedSession(model, names, results, nil)
	if err != nil {
		return 0, err
	}
	defer s.Destroy()
	outputs := make([]onnx.Value, len(results))
	if err := s.Run(inputs, outputs); err != nil {
		return 0, err
	}
	defer func() {
		for _, o := range outputs {
			o.Destroy()
		}
	}()
	logits := outputs[0].(*onnx.Tensor[float32])
	row := logits.GetData()[len(logits.GetData())-int(logits.GetShape()[2]):]
	best := 0
	for i, x := range row {
		if x > row[best] {
			best = i
		}
	}
	return int64(best), nil
}

// runtimePath finds libonnxruntime as the graft command does.
func runtimePath() string {
	at, err := ort.Find("")
	if err != nil {
		log.Fatal(err)
	}
	return at.Path
}
