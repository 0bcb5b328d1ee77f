// Generate: one text of a model folder for each argument.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"

	"github.com/opgraft/graft/textgen"
)

func main() {
	ctx := context.Background()
	g, err := textgen.New(ctx, "models/g2p", textgen.Options{Search: textgen.Search{Beams: 4}})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	for out, err := range g.Generate(ctx, slices.Values(os.Args[1:]), textgen.Search{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(out.Hypotheses[0].Text)
	}
}
