// Patcher: one session is patched, with options of its own; the process's others are not.
package main

import (
	"fmt"
	"log"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/opgraft/graft"
)

func main() {
	path, err := graft.RuntimePath()
	check(err)
	ort.SetSharedLibraryPath(path)
	check(ort.InitializeEnvironment())
	defer ort.DestroyEnvironment()
	p, err := graft.NewPatcher(graft.Options{Common: graft.Common{Force: true}})
	check(err)
	defer p.Close()
	options, err := ort.NewSessionOptions()
	check(err)
	defer options.Destroy()
	check(options.AddSessionConfigEntry(p.Entry()))
	for _, o := range []*ort.SessionOptions{nil, options} {
		session, err := ort.NewDynamicAdvancedSession("models/g2p/encoder_model.onnx",
			[]string{"input_ids", "attention_mask"}, []string{"last_hidden_state"}, o)
		check(err)
		defer session.Destroy()
	}
	fmt.Println(p.Patched(), "of 2 sessions patched")
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
