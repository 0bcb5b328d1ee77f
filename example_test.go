package graft_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"slices"

	onnx "github.com/yalue/onnxruntime_go"

	"github.com/opgraft/graft"
)

// A program on onnxruntime_go: the one line is graft.Enable. Here its sessions are compared with those of
// before.
func ExampleEnable() {
	path, err := graft.RuntimePath()
	if err != nil {
		log.Fatal(err)
	}
	onnx.SetSharedLibraryPath(path)
	if err := onnx.InitializeEnvironment(); err != nil {
		log.Fatal(err)
	}
	defer onnx.DestroyEnvironment()

	before, err := encode("models/g2p/encoder_model.onnx", []int64{0, 22, 18, 4, 21, 2})
	if err != nil {
		log.Fatal(err)
	}
	if err := graft.Enable(); err != nil {
		log.Fatal(err)
	}
	defer graft.Disable()
	after, err := encode("models/g2p/encoder_model.onnx", []int64{0, 22, 18, 4, 21, 2})
	if err != nil {
		log.Fatal(err)
	}

	equal := slices.EqualFunc(before, after, func(a, b float32) bool { return math.Abs(float64(a-b)) < 1e-4 })
	fmt.Println(len(after), "numbers, equal:", equal)
	// Output: 768 numbers, equal: true
}

// encode runs an encoder over the tokens of one text and returns its hidden states.
func encode(model string, tokens []int64) ([]float32, error) {
	session, err := onnx.NewDynamicAdvancedSession(model, []string{"input_ids", "attention_mask"},
		[]string{"last_hidden_state"}, nil)
	if err != nil {
		return nil, err
	}
	defer session.Destroy()
	shape := onnx.NewShape(1, int64(len(tokens)))
	ids, err := onnx.NewTensor(shape, tokens)
	if err != nil {
		return nil, err
	}
	defer ids.Destroy()
	mask, err := onnx.NewTensor(shape, slices.Repeat([]int64{1}, len(tokens)))
	if err != nil {
		return nil, err
	}
	defer mask.Destroy()
	outputs := []onnx.Value{nil}
	if err := session.Run([]onnx.Value{ids, mask}, outputs); err != nil {
		return nil, err
	}
	defer outputs[0].Destroy()
	return slices.Clone(outputs[0].(*onnx.Tensor[float32]).GetData()), nil
}

// A patched file is for programs in any language, which register the libraries that it needs.
func ExamplePatch() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)

	patched, err := graft.Patch(context.Background(), "models/tiny-gpt2/model.onnx", filepath.Join(folder, "patched.onnx"),
		graft.Options{Common: graft.Common{Plugins: []string{"flash-decode"}, Force: true}})
	if errors.Is(err, graft.ErrNothingReplaced) {
		fmt.Println("the model is best as it is:", err)
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(patched.Replaced, "of", patched.Blocks, "blocks replaced")
	for _, path := range patched.Libraries {
		fmt.Println("needs", filepath.Base(path))
	}
	// Output:
	// 5 of 5 blocks replaced
	// needs libflash_decode.so
}
