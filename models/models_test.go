package models_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

var update = flag.Bool("update", false, "rewrite testdata/golden.json")

const seed = models.DefaultSeed

// visit calls f for every tensor of a graph, its subgraphs included.
func visit(g *onnx.Graph, f func(*onnx.Tensor)) {
	for _, t := range g.GetInitializer() {
		f(t)
	}
	for _, n := range g.GetNode() {
		for _, a := range n.GetAttribute() {
			if a.GetT() != nil {
				f(a.GetT())
			}
			for _, t := range a.GetTensors() {
				f(t)
			}
			for _, inner := range append(a.GetGraphs(), a.GetG()) {
				visit(inner, f)
			}
		}
	}
}

func tiny(t *testing.T) []models.Fixture {
	t.Helper()
	var list []models.Fixture
	for _, f := range models.Fixtures() {
		if f.Exporter != "full" {
			list = append(list, f)
		}
	}
	if len(list) < 30 {
		t.Fatalf("found %d fixtures, need at least 30", len(list))
	}
	return list
}

func isSeeded(t *onnx.Tensor) bool {
	e := t.GetExternalData()
	return len(e) > 0 && e[0].GetKey() == "location" && e[0].GetValue() == "seed"
}

func TestFixturesFillToSoundModels(t *testing.T) {
	for _, f := range tiny(t) {
		t.Run(f.String(), func(t *testing.T) {
			b := must.Value(f.Bytes(seed))(t)
			var m onnx.Model
			must.Succeed(t, proto.Unmarshal(b, &m))
			if len(m.GetGraph().GetOutput()) == 0 || len(m.GetGraph().GetNode()) == 0 {
				t.Fatal("the graph has no nodes or no outputs")
			}
			visit(m.GetGraph(), func(x *onnx.Tensor) {
				if len(x.GetExternalData()) > 0 || x.GetDataLocation() != onnx.Tensor_DEFAULT {
					t.Errorf("tensor %s is still external", x.GetName())
				}
				checkTensor(t, x)
			})
		})
	}
}

// checkTensor sees that a float tensor with raw data has as many as its shape
// says, all finite.
func checkTensor(t *testing.T, x *onnx.Tensor) {
	t.Helper()
	raw := x.GetRawData()
	if x.GetDataType() != int32(onnx.Tensor_FLOAT) || len(raw) == 0 {
		return
	}
	want := 4
	for _, d := range x.GetDims() {
		want *= int(d)
	}
	must.Equal(t, len(raw), want, x.GetName(), x.GetDims())
	for i := 0; i+4 <= len(raw); i += 4 {
		v := math.Float32frombits(uint32(raw[i]) | uint32(raw[i+1])<<8 | uint32(raw[i+2])<<16 | uint32(raw[i+3])<<24)
		// Masks hold the lowest float32 and infinities; weights are small.
		if math.IsNaN(float64(v)) {
			t.Fatalf("tensor %s holds NaN", x.GetName())
		}
	}
}

func TestStoredGraphsHoldNoWeightsAndNoPaths(t *testing.T) {
	for _, f := range models.Fixtures() {
		b := must.Value(f.Graph())(t, f)
		var m onnx.Model
		must.Succeed(t, proto.Unmarshal(b, &m), f)
		seeded := 0
		visit(m.GetGraph(), func(x *onnx.Tensor) {
			if !isSeeded(x) {
				return
			}
			seeded++
			if len(x.GetRawData())+len(x.GetFloatData()) > 0 {
				t.Errorf("%s: tensor %s has data beside its instruction", f, x.GetName())
			}
		})
		if seeded < f.Parameters/2 {
			t.Errorf("%s: %d seeded tensors for %d parameters", f, seeded, f.Parameters)
		}
		for _, path := range []string{"/root/", "/tmp/", "/home/", "site-packages", ".py\""} {
			if bytes.Contains(b, []byte(path)) {
				t.Errorf("%s: names a place on the exporting machine: %s", f, path)
			}
		}
		must.Value(f.ConfigJSON())(t, f)
	}
}

func TestGoldenHashes(t *testing.T) {
	got := map[string]string{}
	for _, f := range tiny(t) {
		b := must.Value(f.Bytes(seed))(t, f)
		sum := sha256.Sum256(b)
		got[f.String()] = hex.EncodeToString(sum[:])
	}
	const golden = "testdata/golden.json"
	if *update {
		b, _ := json.MarshalIndent(got, "", "  ")
		must.Succeed(t, os.WriteFile(golden, append(b, '\n'), 0o644))
	}
	b := must.Value(os.ReadFile(golden))(t)
	var want map[string]string
	must.Succeed(t, json.Unmarshal(b, &want))
	must.Equal(t, len(want), len(got))
	for name, hash := range got {
		must.Equal(t, want[name], hash, name)
	}
}

func TestBuildGivesTheSameBytes(t *testing.T) {
	var hashes [2][]byte
	for i := range hashes {
		dir := filepath.Join(t.TempDir(), "sub", "folder")
		paths := must.Value(models.Build("optimum/gpt2", dir, seed))(t)
		h := sha256.New()
		for _, p := range paths {
			b := must.Value(os.ReadFile(p))(t)
			h.Write(b)
		}
		hashes[i] = h.Sum(nil)
		entries := must.Value(os.ReadDir(dir))(t)
		if len(entries) != 2 || entries[0].Name() != "config.json" || entries[1].Name() != "gpt2.onnx" {
			t.Errorf("the folder holds %v, need config.json and gpt2.onnx", entries)
		}
	}
	if !bytes.Equal(hashes[0], hashes[1]) {
		t.Error("two builds differ")
	}
}

func TestAnotherSeedGivesOtherWeights(t *testing.T) {
	f := must.Value(models.Lookup("optimum", "gpt2"))(t)
	a, errA := f.Bytes(1)
	b, errB := f.Bytes(2)
	if errA != nil || errB != nil || len(a) != len(b) || bytes.Equal(a, b) {
		t.Errorf("need two models of one size that differ: %d and %d bytes, %v, %v", len(a), len(b), errA, errB)
	}
}

func TestExternalDataHoldTheInlineBytes(t *testing.T) {
	f := must.Value(models.Lookup("genai", "llama"))(t)
	path := filepath.Join(t.TempDir(), "llama.onnx")
	must.Succeed(t, f.WriteExternal(path, seed))
	inline := must.Value(f.Bytes(seed))(t)
	var want, got onnx.Model
	outside := must.Value(os.ReadFile(path))(t)
	must.Succeed(t, proto.Unmarshal(inline, &want))
	must.Succeed(t, proto.Unmarshal(outside, &got))
	data := must.Value(os.ReadFile(path + ".data"))(t)
	count := 0
	for i, x := range got.GetGraph().GetInitializer() {
		if len(x.GetExternalData()) == 0 {
			continue
		}
		count++
		offset, length := span(t, x)
		if offset%4096 != 0 || offset+length > len(data) {
			t.Fatalf("tensor %s: offset %d and length %d in %d bytes", x.GetName(), offset, length, len(data))
		}
		if !bytes.Equal(data[offset:offset+length], want.GetGraph().GetInitializer()[i].GetRawData()) {
			t.Errorf("tensor %s differs from the inline one", x.GetName())
		}
	}
	if count < 15 {
		t.Errorf("%d tensors are external, need at least 15", count)
	}
}

func span(t *testing.T, x *onnx.Tensor) (offset, length int) {
	t.Helper()
	for _, e := range x.GetExternalData() {
		var err error
		switch e.GetKey() {
		case "location":
			must.Equal(t, e.GetValue(), "llama.onnx.data")
		case "offset":
			err = json.Unmarshal([]byte(e.GetValue()), &offset)
		case "length":
			err = json.Unmarshal([]byte(e.GetValue()), &length)
		}
		must.Succeed(t, err)
	}
	return offset, length
}

func TestNamesOfSubjects(t *testing.T) {
	names := strings.Join(models.Names(), " ")
	const want = "bart-large bert-base clip-text clip-vision deberta-v3-small gpt2-124m gpt2-124m-mha " +
		"gpt2-124m-runtime-scale llama-135m minilm-l12-reranker minilm-l6 minilm-l6-pooled modernbert-base t5-base " +
		"vit-b16 wav2vec2-base whisper-small whisper-tiny xlm-roberta-base"
	must.Equal(t, names, want)
	for _, name := range []string{"gpt3", "optimum/gpt3", ""} {
		dir := filepath.Join(t.TempDir(), "out")
		if _, err := models.Build(name, dir, seed); err == nil {
			t.Errorf("Build(%q) succeeded", name)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("Build(%q) made a folder", name)
		}
	}
}

func TestAFailedWriteLeavesNothing(t *testing.T) {
	f := must.Value(models.Lookup("optimum", "gpt2"))(t)
	dir := t.TempDir()
	target := filepath.Join(dir, "taken.onnx")
	must.Succeed(t, os.MkdirAll(filepath.Join(target, "inside"), 0o755))
	if err := f.Write(target, seed); err == nil {
		t.Error("writing over a folder succeeded")
	}
	entries := must.Value(os.ReadDir(dir))(t)
	must.Equal(t, len(entries), 1)
}
