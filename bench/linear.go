package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/ab"
	"github.com/opgraft/graft/host/model/onnx"
)

// weightsFile holds the weights of the models that this figure makes.
const weightsFile = "weights.bin"

// product is y = x W + b as GPT-2 draws it; transposed is a W that lies as [N, K],
// as the embedding does, behind a Transpose.
type product struct {
	depth, columns int64
	transposed     bool
}

func (p product) String() string {
	if p.transposed {
		return fmt.Sprintf("%dx%d transposed", p.depth, p.columns)
	}
	return fmt.Sprintf("%dx%d", p.depth, p.columns)
}

// gpt2Layer and gpt2Head are GPT-2-124M's products.
var (
	gpt2Layer = []product{{768, 2304, false}, {768, 768, false}, {768, 3072, false}, {3072, 768, false}}
	gpt2Head  = product{768, 50257, true}
)

// linearDetail is the raw figures of one model.
type linearDetail struct {
	Products string             `json:"products"`
	Speedup  ab.Speedup         `json:"speedup"`
	PlainMS  []float64          `json:"plain_ms"`
	GraftMS  []float64          `json:"graft_ms"`
	Memory   map[string]resides `json:"memory,omitempty"`
}

// resides is what a process holds when a session is made.
type resides struct {
	AnonMB float64 `json:"anon_mb"` // memory of its own
	FileMB float64 `json:"file_mb"` // mapped files, shared with every process that maps them
}

// linear compares GPT-2-124M's products at four rows with ONNX Runtime's own.
func linear() figure {
	return figure{"linear", "GPT-2-124M's products at four rows, packed-linear against ONNX Runtime's", "at least 1.30x, no second copy of the weights",
		func(ctx context.Context, b *bench) (*outcome, error) {
			dir, err := os.MkdirTemp("", "graft-linear-")
			if err != nil {
				return nil, err
			}
			defer os.RemoveAll(dir)
			var whole []product
			for range 12 {
				whole = append(whole, gpt2Layer...)
			}
			whole = append(whole, gpt2Head)
			lists := [][]product{whole}
			for _, p := range append(gpt2Layer, gpt2Head) {
				var same []product
				for bytes := int64(0); bytes < 120e6; bytes += 4 * p.depth * p.columns {
					same = append(same, p)
				}
				lists = append(lists, same)
			}
			bytes, err := writeWeights(filepath.Join(dir, weightsFile), lists)
			if err != nil {
				return nil, err
			}
			var details []linearDetail
			out := &outcome{Met: true, Answers: "answers equal"}
			for i, list := range lists {
				name := "all"
				if i > 0 {
					name = list[0].String()
				}
				path := filepath.Join(dir, fmt.Sprintf("model-%d.onnx", i))
				if err := writeProducts(path, list, 4); err != nil {
					return nil, err
				}
				r, err := ab.Run(ctx, b.library, b.set, path, ab.Options{A: "none", B: "packed-linear", Force: true, Seed: 1, Rounds: b.rounds, Warmup: 3})
				if err != nil {
					return nil, err
				}
				if r.B.Replaced != len(list) {
					return nil, fmt.Errorf("%s: %d of %d products replaced", name, r.B.Replaced, len(list))
				}
				if !r.Parity.OK {
					out.Answers, out.Met = "answers DIFFER", false
				}
				d := linearDetail{Products: name, Speedup: r.Speedup, PlainMS: r.A.TimesMS, GraftMS: r.B.TimesMS}
				if i == 0 {
					d.Memory = map[string]resides{}
					for _, side := range []string{"none", "packed-linear"} {
						if d.Memory[side], err = residesIn(ctx, side, path); err != nil {
							return nil, err
						}
					}
					own := d.Memory["packed-linear"].AnonMB
					out.Met = out.Met && r.Speedup.Median >= 1.3 && own < float64(bytes)/2e6
					out.Got = fmt.Sprintf("%.2fx (95%% %.2f to %.2f): %.2f ms -> %.2f ms; memory of its own for %d MB of weights %.0f MB -> %.0f MB",
						r.Speedup.Median, r.Speedup.CI95[0], r.Speedup.CI95[1], r.A.MedianMS, r.B.MedianMS, bytes/1e6, d.Memory["none"].AnonMB, own)
				} else {
					out.Got += fmt.Sprintf("; %s %.2fx", name, r.Speedup.Median)
				}
				details = append(details, d)
			}
			out.Detail = details
			return out, nil
		}}
}

// writeWeights writes random numbers, as many bytes as the largest list of
// products needs, and returns those of the first.
func writeWeights(path string, lists [][]product) (int64, error) {
	need := func(list []product) (bytes int64) {
		for _, p := range list {
			bytes += 4 * (p.depth*p.columns + p.columns)
		}
		return bytes
	}
	most := int64(0)
	for _, list := range lists {
		most = max(most, need(list))
	}
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	random := rand.New(rand.NewPCG(1, 2))
	var four [4]byte
	for range most / 4 {
		binary.LittleEndian.PutUint32(four[:], math.Float32bits(random.Float32()*0.04-0.02))
		if _, err := w.Write(four[:]); err != nil {
			return 0, err
		}
	}
	return need(lists[0]), w.Flush()
}

// writeProducts writes a model of products side by side, each with an output of its
// own, over one input for each depth.
func writeProducts(path string, list []product, rows int64) error {
	g := &onnx.Graph{Name: proto.String("products")}
	offset := int64(0)
	weight := func(name string, dims ...int64) {
		bytes := int64(4)
		for _, d := range dims {
			bytes *= d
		}
		entry := func(key string, value any) *onnx.Entry {
			return &onnx.Entry{Key: proto.String(key), Value: proto.String(fmt.Sprint(value))}
		}
		g.Initializer = append(g.Initializer, &onnx.Tensor{Name: proto.String(name), Dims: dims, DataType: proto.Int32(int32(onnx.Tensor_FLOAT)),
			DataLocation: onnx.Tensor_EXTERNAL.Enum(), ExternalData: []*onnx.Entry{entry("location", weightsFile), entry("offset", offset), entry("length", bytes)}})
		offset += bytes
	}
	face := func(name string, dims ...int64) *onnx.ValueInfo {
		s := &onnx.Shape{}
		for _, d := range dims {
			s.Dim = append(s.Dim, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: d}})
		}
		return &onnx.ValueInfo{Name: proto.String(name), Type: &onnx.Type{Value: &onnx.Type_TensorType_{
			TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(int32(onnx.Tensor_FLOAT)), Shape: s}}}}
	}
	seen := map[int64]bool{}
	for i, p := range list {
		x, w, b, y := fmt.Sprintf("x%d", p.depth), fmt.Sprintf("w%d", i), fmt.Sprintf("b%d", i), fmt.Sprintf("y%d", i)
		if !seen[p.depth] {
			seen[p.depth] = true
			g.Input = append(g.Input, face(x, rows, p.depth))
		}
		if p.transposed {
			t := fmt.Sprintf("t%d", i)
			weight(w, p.columns, p.depth)
			g.Node = append(g.Node,
				&onnx.Node{OpType: proto.String("Transpose"), Input: []string{w}, Output: []string{t},
					Attribute: []*onnx.Attribute{{Name: proto.String("perm"), Type: onnx.Attribute_INTS.Enum(), Ints: []int64{1, 0}}}},
				&onnx.Node{OpType: proto.String("MatMul"), Input: []string{x, t}, Output: []string{y}})
		} else {
			weight(w, p.depth, p.columns)
			weight(b, p.columns)
			g.Node = append(g.Node, &onnx.Node{OpType: proto.String("Gemm"), Input: []string{x, w, b}, Output: []string{y}})
		}
		g.Output = append(g.Output, face(y, rows, p.columns))
	}
	data, err := proto.Marshal(&onnx.Model{IrVersion: proto.Int64(8), Graph: g,
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)}}})
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// residesIn asks a process of its own what it holds with the model loaded.
func residesIn(ctx context.Context, side, path string) (resides, error) {
	var m loaded
	self, err := os.Executable()
	if err != nil {
		return resides{}, err
	}
	cmd := exec.CommandContext(ctx, self, loadChild, side, path)
	cmd.Stderr = os.Stderr
	data, err := cmd.Output()
	if err != nil {
		return resides{}, fmt.Errorf("loading %s: %w", side, err)
	}
	err = json.Unmarshal(data, &m)
	return resides{AnonMB: m.AnonMB, FileMB: m.FileMB}, err
}
