//go:build cgo

package provider

import (
	"fmt"
	"log/slog"
	"os"

	onnxruntime "github.com/yalue/onnxruntime_go"

	"github.com/opgraft/graft"
)

func init() { program = enabled }

// enabled is the program of docs/go.md: onnxruntime_go, the one line, and the CUDA provider.
func enabled(library string) error {
	onnxruntime.SetSharedLibraryPath(library)
	if err := onnxruntime.InitializeEnvironment(); err != nil {
		return err
	}
	err := graft.EnableWith(graft.Options{Common: graft.Common{Folders: []string{os.Getenv(folder)},
		AcceptUnverified: true, Force: true}, Strict: true, Logger: slog.New(slog.NewTextHandler(os.Stdout, nil))})
	if err != nil {
		return err
	}
	options, err := onnxruntime.NewSessionOptions()
	if err != nil {
		return err
	}
	defer options.Destroy()
	cuda, err := onnxruntime.NewCUDAProviderOptions()
	if err != nil {
		return err
	}
	defer cuda.Destroy()
	if err := cuda.Update(map[string]string{"device_id": "2"}); err != nil {
		return err
	}
	if err := options.AppendExecutionProviderCUDA(cuda); err != nil {
		return err
	}
	s, err := onnxruntime.NewDynamicAdvancedSessionWithONNXData(joining("Concat", ""), []string{"x"}, []string{"y"},
		options)
	if err != nil {
		return err
	}
	defer s.Destroy()
	x, err := onnxruntime.NewTensor(onnxruntime.NewShape(2, 3), []float32{1, 2, 3, 4, 5, 6})
	if err != nil {
		return err
	}
	defer x.Destroy()
	y, err := onnxruntime.NewEmptyTensor[float32](onnxruntime.NewShape(2, 6))
	if err != nil {
		return err
	}
	defer y.Destroy()
	if err := s.Run([]onnxruntime.Value{x}, []onnxruntime.Value{y}); err != nil {
		return err
	}
	fmt.Println("answer:", y.GetData())
	return nil
}
