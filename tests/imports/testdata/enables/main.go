// Enables does nothing but enabling graft, for a session of the model it is given.
package main

import (
	"log"
	"os"

	onnx "github.com/yalue/onnxruntime_go"

	"github.com/opgraft/graft"
)

func main() {
	if err := graft.Enable(); err != nil {
		log.Print(err)
	}
	s, err := onnx.NewDynamicAdvancedSession(os.Args[1], nil, nil, nil)
	log.Print(s, err)
}
