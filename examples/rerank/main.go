// Rerank: documents by how well they answer the first argument.
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
	r, err := embed.NewReranker(ctx, "models/encoders/reranker", embed.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	ranked, err := r.Rank(ctx, os.Args[1], os.Args[2:]...)
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range ranked {
		fmt.Printf("%.3f %s\n", d.Score, os.Args[2+d.Index])
	}
}
