// Command gosessions makes sessions as a program in Go does: gosessions MODEL SESSIONS [enable]. It prints the first
// output of the last one, a number a line.
package main

import (
	"fmt"
	"log"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/opgraft/graft"
)

func main() {
	count, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	path, err := graft.RuntimePath()
	if err != nil {
		log.Fatal(err)
	}
	ort.SetSharedLibraryPath(path)
	if err := ort.InitializeEnvironment(); err != nil {
		log.Fatal(err)
	}
	defer ort.DestroyEnvironment()
	if slices.Contains(os.Args[3:], "enable") {
		slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
		if err := graft.EnableWith(
			graft.Options{Common: graft.Common{AcceptUnverified: true}, Logger: slog.Default()}); err != nil {
			log.Fatal(err)
		}
	}
	var first []float32
	for i := range count {
		result, err := encode(os.Args[1])
		if err != nil {
			log.Fatal(err)
		}
		if i > 0 && !slices.Equal(first, result) {
			log.Fatalf("session %d gives other answers", i)
		}
		first = result
	}
	for _, x := range first {
		fmt.Println(x)
	}
}

// input is two rows of tokens, of which the last three are hidden.
func input(name string) []int64 {
	data := make([]int64, 16)
	for k := range data {
		hidden := k >= len(data)-3
		switch {
		case strings.Contains(name, "mask") && !hidden, !strings.Contains(name, "mask") && hidden:
			data[k] = 1
		case !strings.Contains(name, "mask"):
			data[k] = int64(4 + k*7%23)
		}
	}
	return data
}

func encode(model string) ([]float32, error) {
	names := []string{"input_ids", "attention_mask"}
	session, err := ort.NewDynamicAdvancedSession(model, names, []string{"last_hidden_state"}, nil)
	if err != nil {
		return nil, err
	}
	defer session.Destroy()
	var inputs []ort.Value
	for _, name := range names {
		tensor, err := ort.NewTensor(ort.NewShape(2, 8), input(name))
		if err != nil {
			return nil, err
		}
		defer tensor.Destroy()
		inputs = append(inputs, tensor)
	}
	outputs := []ort.Value{nil}
	if err := session.Run(inputs, outputs); err != nil {
		return nil, err
	}
	defer outputs[0].Destroy()
	return slices.Clone(outputs[0].(*ort.Tensor[float32]).GetData()), nil
}
