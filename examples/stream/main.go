// Stream: each token as soon as it is chosen, until a clause ends.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/opgraft/graft/textgen"
)

func main() {
	ctx := context.Background()
	g, err := textgen.New(ctx, "models/tiny-gpt2", textgen.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	search := textgen.Search{MaxNewTokens: 60, StopStrings: []string{","}}
	for token, err := range g.Stream(ctx, os.Args[1], search) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	fmt.Println()
}
