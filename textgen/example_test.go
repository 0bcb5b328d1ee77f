package textgen_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"

	"github.com/opgraft/graft/textgen"
)

// Texts to texts with a model folder: here from the spelling of words to their pronunciation.
func ExampleNew() {
	ctx := context.Background()
	g, err := textgen.New(ctx, "../models/g2p", textgen.Options{Search: textgen.Search{Beams: 4, MaxNewTokens: 24}})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()

	words := []string{"soared", "moynahan", "bove"}
	for out, err := range g.Generate(ctx, slices.Values(words), textgen.Search{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n", words[out.Index], out.Hypotheses[0].Text)
	}
	// Output:
	// soared: S AO1 R D
	// moynahan: M OY1 N AH0 HH AE0 N
	// bove: B OW1 V
}

// Options of one call stand for those that the generator was opened with. Calls from several goroutines
// are computed together.
func ExampleGenerator_Hypotheses() {
	ctx := context.Background()
	g, err := textgen.New(ctx, "../models/g2p", textgen.Options{Search: textgen.Search{Beams: 4}})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()

	list, err := g.Hypotheses(ctx, "read", textgen.Search{ReturnSequences: 2,
		Set: map[string]any{"early_stopping": "never"}})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range list {
		fmt.Println(s.Text)
	}
	// Output:
	// R IY1 D
	// R EH1 D
}

// A model with weights of four bits, which any program on ONNX Runtime opens.
func ExampleQuantize() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	out := filepath.Join(folder, "g2p-int4")
	done, err := textgen.Quantize(context.Background(), "../models/g2p", out, textgen.QuantizeOptions{
		Weights: textgen.Weights{Type: textgen.Int4, ZeroPoints: true}, Calibrate: []string{"hello", "world"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(done.Weights)
	fmt.Println("fewer bytes:", done.BytesAfter < done.BytesBefore)
	// Output:
	// int4,logits=int8,group=32,activations=int8,zero-points=true
	// fewer bytes: true
}
