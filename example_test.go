package graft_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"

	onnx "github.com/yalue/onnxruntime_go"

	"github.com/opgraft/graft"
)

// A program on onnxruntime_go: the one line is graft.Enable. Here its sessions are compared with those of
// before.
func ExampleEnable() {
	path, err := graft.RuntimePath()
	if err != nil {
		log.Fatal(err)
	}
	onnx.SetSharedLibraryPath(path)
	if err := onnx.InitializeEnvironment(); err != nil {
		log.Fatal(err)
	}
	defer onnx.DestroyEnvironment()

	before, err := encode("models/g2p/encoder_model.onnx", []int64{0, 22, 18, 4, 21, 2})
	if err != nil {
		log.Fatal(err)
	}
	if err := graft.Enable(); err != nil {
		log.Fatal(err)
	}
	defer graft.Disable()
	after, err := encode("models/g2p/encoder_model.onnx", []int64{0, 22, 18, 4, 21, 2})
	if err != nil {
		log.Fatal(err)
	}

	equal := slices.EqualFunc(before, after, func(a, b float32) bool { return math.Abs(float64(a-b)) < 1e-4 })
	fmt.Println(len(after), "numbers, equal:", equal)
	// Output: 768 numbers, equal: true
}

// encode runs an encoder over the tokens of one text and returns its hidden states.
func encode(model string, tokens []int64) ([]float32, error) {
	session, err := onnx.NewDynamicAdvancedSession(model, []string{"input_ids", "attention_mask"},
		[]string{"last_hidden_state"}, nil)
	if err != nil {
		return nil, err
	}
	defer session.Destroy()
	shape := onnx.NewShape(1, int64(len(tokens)))
	ids, err := onnx.NewTensor(shape, tokens)
	if err != nil {
		return nil, err
	}
	defer ids.Destroy()
	mask, err := onnx.NewTensor(shape, slices.Repeat([]int64{1}, len(tokens)))
	if err != nil {
		return nil, err
	}
	defer mask.Destroy()
	outputs := []onnx.Value{nil}
	if err := session.Run([]onnx.Value{ids, mask}, outputs); err != nil {
		return nil, err
	}
	defer outputs[0].Destroy()
	return slices.Clone(outputs[0].(*onnx.Tensor[float32]).GetData()), nil
}

// A patched file is for programs in any language, which register the libraries that it needs.
func ExamplePatch() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)

	patched, err := graft.Patch(context.Background(), "models/tiny-gpt2/model.onnx", filepath.Join(folder, "patched.onnx"),
		graft.Plugins("flash-decode"), graft.Force())
	if errors.Is(err, graft.ErrNothingReplaced) {
		fmt.Println("the model is best as it is:", err)
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(patched.Replaced, "of", patched.Blocks, "blocks replaced")
	for _, path := range patched.Libraries {
		fmt.Println("needs", filepath.Base(path))
	}
	// Output:
	// 5 of 5 blocks replaced
	// needs libflash_decode.so
}

// Texts to texts with a model folder: here from the spelling of words to their pronunciation.
func ExampleNewGenerator() {
	ctx := context.Background()
	g, err := graft.NewGenerator(ctx, "models/g2p", graft.Beams(4), graft.MaxNewTokens(24))
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()

	words := []string{"soared", "moynahan", "bove"}
	for out, err := range g.Generate(ctx, slices.Values(words)) {
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

// Options of one call stand for those that the generator was opened with. Calls from several goroutines
// are computed together.
func ExampleGenerator_GenerateText() {
	ctx := context.Background()
	g, err := graft.NewGenerator(ctx, "models/g2p", graft.Beams(4))
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()

	out, err := g.GenerateText(ctx, "read", graft.ReturnSequences(2), graft.Set("early_stopping", "never"))
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range out.Sequences {
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
	done, err := graft.Quantize(context.Background(), "models/g2p", out, graft.Weights("int4,zero-points=true"),
		graft.Calibrate("hello", "world"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(done.Weights)
	fmt.Println("fewer bytes:", done.BytesAfter < done.BytesBefore)
	// Output:
	// int4,logits=int8,group=32,activations=int8,zero-points=true
	// fewer bytes: true
}

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
	session, err := onnx.NewDynamicAdvancedSession("models/encoders/embedder/onnx/model.onnx",
		[]string{"input_ids", "attention_mask", "token_type_ids"}, []string{"last_hidden_state"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Destroy()

	// One run of the session for rows of token ids: the hidden state of each row's first token.
	run := func(_ context.Context, rows [][]int64) ([][]float32, error) {
		ids, mask, shape := graft.Pad(rows, 0)
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
	b, err := graft.NewBatcher(run, func(row []int64) int { return len(row) }, graft.BatchTokens(2048),
		graft.BatchQueue(1000))
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
	e, err := graft.NewEmbedder(context.Background(), "models/encoders/embedder", graft.AcceptUnverified())
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
	r, err := graft.NewReranker(context.Background(), "models/encoders/reranker", graft.AcceptUnverified())
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
