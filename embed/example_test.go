package embed_test

import (
	"context"
	"fmt"
	"log"
	"slices"
	"sync"

	onnx "github.com/yalue/onnxruntime_go"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/embed"
)

// A service whose goroutines have one text each, over a session of onnxruntime_go: a batcher makes batches of them.
func ExampleNewBatcher() {
	path, err := graft.RuntimePath()
	if err != nil {
		log.Fatal(err)
	}
	onnx.SetSharedLibraryPath(path)
	if err := onnx.InitializeEnvironment(); err != nil {
		log.Fatal(err)
	}
	defer onnx.DestroyEnvironment()
	session, err := onnx.NewDynamicAdvancedSession("../models/encoders/embedder/onnx/model.onnx",
		[]string{"input_ids", "attention_mask", "token_type_ids"}, []string{"last_hidden_state"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Destroy()

	// One run of the session for rows of token ids: the hidden state of each row's first token.
	run := func(_ context.Context, rows [][]int64) ([][]float32, error) {
		ids, mask, shape := embed.Pad(rows, 0)
		var inputs []onnx.Value
		for _, data := range [][]int64{ids, mask, make([]int64, len(ids))} {
			in, err := onnx.NewTensor(onnx.NewShape(shape[:]...), data)
			if err != nil {
				return nil, err
			}
			defer in.Destroy()
			inputs = append(inputs, in)
		}
		outputs := []onnx.Value{nil}
		if err := session.Run(inputs, outputs); err != nil {
			return nil, err
		}
		defer outputs[0].Destroy()
		states := outputs[0].(*onnx.Tensor[float32])
		width := int(states.GetShape()[2])
		results := make([][]float32, len(rows))
		for i := range results {
			at := i * int(shape[1]) * width
			results[i] = slices.Clone(states.GetData()[at : at+width])
		}
		return results, nil
	}
	b, err := embed.NewBatcher(run, func(row []int64) int { return len(row) },
		embed.BatchOptions{MaxTokens: 2048, MaxQueue: 1000})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			row := append(append([]int64{2}, slices.Repeat([]int64{int64(100 + i)}, i%20)...), 3)
			if v, err := b.Submit(context.Background(), row); err != nil || len(v) != 32 {
				log.Fatal(len(v), err)
			}
		})
	}
	callers.Wait()
	m := b.Metrics()
	fmt.Println(m.Computed, "texts,", m.Failed, "failed,", m.Waiting, "waiting")
	// Output: 64 texts, 0 failed, 0 waiting
}

// Vectors of texts, as sentence-transformers makes them of the same folder.
func ExampleNewEmbedder() {
	e, err := embed.NewEmbedder(context.Background(), "../models/encoders/embedder",
		embed.Options{Common: graft.Common{AcceptUnverified: true}})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	documents, err := e.Embed(context.Background(), "A text that is stored.", "Another one.")
	if err != nil {
		log.Fatal(err)
	}
	queries, err := e.EmbedAs(context.Background(), "query", "What is asked?")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(documents), "documents,", len(queries), "query,", e.Dimensions(), "dimensions")
	// Output: 2 documents, 1 query, 32 dimensions
}

// Documents by how well they answer a query.
func ExampleNewReranker() {
	r, err := embed.NewReranker(context.Background(), "../models/encoders/reranker",
		embed.Options{Common: graft.Common{AcceptUnverified: true}})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	ranked, err := r.Rank(context.Background(), "When will the budget be published?", "Short.",
		"A batch holds the texts that waited while the one before was computed.")
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range ranked {
		fmt.Printf("document %d: %.4f\n", d.Index, d.Score)
	}
	// Output:
	// document 1: 0.7028
	// document 0: 0.6862
}

// The label of two texts that are read together, with its score.
func ExampleNewClassifier() {
	c, err := embed.NewClassifier(context.Background(), "../models/encoders/reranker",
		embed.Options{Common: graft.Common{AcceptUnverified: true}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	labels, err := c.ClassifyPairs(context.Background(), embed.ClassifyOptions{},
		[2]string{"When will the budget be published?", "Short."})
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range labels[0] {
		fmt.Printf("%s: %.4f\n", l.Label, l.Score)
	}
	// Output:
	// LABEL_0: 0.6862
}
