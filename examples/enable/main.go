// Enable: every session of the process is patched. The lines of graft aside, it is a program on onnxruntime_go.
package main

import (
	"log"
	"log/slog"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/opgraft/graft"
)

func main() {
	path, err := graft.RuntimePath()
	if err != nil {
		log.Fatal(err)
	}
	ort.SetSharedLibraryPath(path)
	if err := ort.InitializeEnvironment(); err != nil {
		log.Fatal(err)
	}
	defer ort.DestroyEnvironment()
	if err := graft.EnableWith(graft.Options{Logger: slog.Default()}); err != nil {
		log.Print(err) // sessions work without graft
	}
	session, err := ort.NewDynamicAdvancedSession("models/g2p/encoder_model.onnx",
		[]string{"input_ids", "attention_mask"}, []string{"last_hidden_state"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Destroy()
}
