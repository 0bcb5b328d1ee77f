package graft_test

import (
	"context"
	"fmt"
	"log"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/models"
)

func ExampleNewGenerator() {
	g, err := graft.NewGenerator("models/g2p", graft.WithBeams(4), graft.WithPlugins(graft.AcceptUnverified()))
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	words := []string{"soared", "moynahan", "bove"}
	for out, err := range g.Generate(context.Background(), slices.Values(words)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n", words[out.Index], out.Sequences[0].Text)
	}
	// Output:
	// soared: S AO1 R D
	// moynahan: M OY1 N AH0 HH AE0 N
	// bove: B OW1 V
}

// Leaving the loop ends the run, and the generator can be used again.
func TestGenerateLeftEarly(t *testing.T) {
	g, err := graft.NewGenerator("models/g2p", graft.WithBeams(2), graft.WithBatch(2), graft.WithPlugins(graft.AcceptUnverified()))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for range 3 {
		drawn := 0
		endless := func(yield func(string) bool) {
			for yield("word") {
				drawn++
			}
		}
		seen := 0
		for out, err := range g.Generate(t.Context(), endless) {
			if err != nil || out.Error != "" || out.Index != seen {
				t.Fatalf("result %d: %+v, %v", seen, out, err)
			}
			if seen++; seen == 3 {
				break
			}
		}
		if drawn > 2000 {
			t.Errorf("%d inputs were drawn for 3 results", drawn)
		}
	}
	var last error
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range g.Generate(ctx, slices.Values([]string{"word"})) {
		last = err
	}
	if last == nil {
		t.Error("a cancelled run ended without an error")
	}
}

// What a model folder lacks, and options that mean nothing, are one clear error.
func TestNewGeneratorErrors(t *testing.T) {
	accept := graft.WithPlugins(graft.AcceptUnverified())
	bare := t.TempDir() // a model without its tokenizer
	if err := models.Small("gpt2", bare); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		folder, want string
		option       graft.GeneratorOption
	}{
		{"nowhere", "nowhere", accept},
		{"docs", "found no model.onnx and no encoder_model.onnx", accept},
		{bare, "tokenizer", accept},
		{"models/g2p", "not supported", graft.With("penalty_alpha", "0.6")},
		{"models/g2p", "num_beams", graft.WithBeams(0)},
		{"models/g2p", "is no way of keeping a cache", graft.WithAttention("fast")},
		{"models/g2p", "needed", graft.With("num_beams", `"four"`)},
	} {
		_, err := graft.NewGenerator(c.folder, accept, c.option)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.folder, err, c.want)
		}
	}
}
