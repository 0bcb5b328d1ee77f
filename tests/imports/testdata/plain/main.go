// Plain is the program enables without graft.
package main

import (
	"log"
	"os"

	onnx "github.com/yalue/onnxruntime_go"
)

func main() {
	s, err := onnx.NewDynamicAdvancedSession(os.Args[1], nil, nil, nil)
	log.Print(s, err)
}
