// Embed: how near texts are to the first of them, by the cosine of their vectors.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/opgraft/graft/embed"
)

func main() {
	ctx := context.Background()
	e, err := embed.NewEmbedder(ctx, "models/encoders/embedder", embed.Options{Normalize: true})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	vectors, err := e.Embed(ctx, os.Args[1:]...)
	if err != nil {
		log.Fatal(err)
	}
	for i, v := range vectors {
		cosine := float32(0)
		for k := range v {
			cosine += v[k] * vectors[0][k]
		}
		fmt.Printf("%.3f %s\n", cosine, os.Args[1+i])
	}
}
