package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
)

// weightsFile holds the weights of the models that this figure makes.
const weightsFile = "weights.bin"

// linearLayer is y = x W + b as GPT-2 has it; transposed is a W that lies as [N, K],
// as the embedding does, after a Transpose.
type linearLayer struct {
	depth, columns int64
	transposed     bool
}

func (p linearLayer) String() string {
	if p.transposed {
		return fmt.Sprintf("%dx%d transposed", p.depth, p.columns)
	}
	return fmt.Sprintf("%dx%d", p.depth, p.columns)
}

// gpt2Layer and gpt2Head are GPT-2-124M's linear layers.
var (
	gpt2Layer = []linearLayer{{768, 2304, false}, {768, 768, false}, {768, 3072, false}, {3072, 768, false}}
	gpt2Head  = linearLayer{768, 50257, true}
)

// linearDetail is the raw figures of one model.
type linearDetail struct {
	Layers      string             `json:"linear_layers"`
	Speedup     statistics.Speedup `json:"speedup"`
	UnpatchedMS []float64          `json:"unpatched_ms"`
	GraftMS     []float64          `json:"graft_ms"`
	Memory      map[string]resides `json:"memory,omitempty"`
}

// resides is what a process holds when a session is made.
type resides struct {
	AnonMB float64 `json:"anon_mb"` // memory of its own
	FileMB float64 `json:"file_mb"` // mapped files, shared with every process that maps them
}

// linear compares GPT-2-124M's linear layers at four rows with ONNX Runtime's own: in a
// session that is patched, whose weights stay as stored in the model's file, and
// in one such as the generation engine opens, whose weights lie in panels.
func linear(panels bool) figure {
	name, side, what := "linear", "packed-linear",
		"GPT-2-124M's linear layers at four rows, packed-linear against ONNX Runtime's"
	if panels {
		name, side, what = "linear-panels", panelsSide, what+", weights in panels"
	}
	return figure{name, what, "at least 1.30x, no second copy of the weights",
		func(ctx context.Context, b *bench) (*outcome, error) {
			temp, err := storage.Temporary("")
			if err != nil {
				return nil, err
			}
			defer temp.Remove()
			dir := temp.Path
			var whole []linearLayer
			for range 12 {
				whole = append(whole, gpt2Layer...)
			}
			whole = append(whole, gpt2Head)
			lists := [][]linearLayer{whole}
			for _, p := range append(gpt2Layer, gpt2Head) {
				var same []linearLayer
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
				if err := writeLayers(path, list, 4); err != nil {
					return nil, err
				}
				compare := comparePatched
				if panels {
					compare = comparePanels
				}
				d, equal, err := compare(ctx, b, path, len(list))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				if !equal {
					out.Answers, out.Met = "answers DIFFER", false
				}
				d.Layers = name
				if i == 0 {
					d.Memory = map[string]resides{}
					for _, side := range []string{"none", side} {
						if d.Memory[side], err = residesIn(ctx, side, path); err != nil {
							return nil, err
						}
					}
					// One copy, in the process or in the file that it maps.
					held := d.Memory[side].AnonMB + d.Memory[side].FileMB
					out.Met = out.Met && d.Speedup.Median >= 1.3 && held < 1.5*float64(bytes)/1e6
					out.Got = fmt.Sprintf("%.2fx (95%% %.2f to %.2f): %.2f ms -> %.2f ms; memory of its own for %d MB of weights "+
						"%.0f MB -> %.0f MB, mapped %.0f MB -> %.0f MB",
						d.Speedup.Median, d.Speedup.CI95[0], d.Speedup.CI95[1], statistics.Median(d.UnpatchedMS),
						statistics.Median(d.GraftMS), bytes/1e6,
						d.Memory["none"].AnonMB, d.Memory[side].AnonMB, d.Memory["none"].FileMB, d.Memory[side].FileMB)
				} else {
					out.Got += fmt.Sprintf("; %s %.2fx", name, d.Speedup.Median)
				}
				details = append(details, *d)
			}
			out.Detail = details
			return out, nil
		}}
}

// comparePatched times the model as it is against a patched session.
func comparePatched(ctx context.Context, b *bench, path string, count int) (*linearDetail, bool, error) {
	r, err := comparison.Run(ctx, b.library, b.set, path,
		comparison.Options{A: "none", B: "packed-linear", Force: true, Inputs: inputs.Options{Seed: 1}, Rounds: b.rounds,
			Warmup: 3})
	if err != nil {
		return nil, false, err
	}
	if r.B.Replaced != count {
		return nil, false, fmt.Errorf("%d of %d linear layers replaced", r.B.Replaced, count)
	}
	return &linearDetail{Speedup: r.Speedup, UnpatchedMS: r.A.TimesMS, GraftMS: r.B.TimesMS}, r.Parity.OK, nil
}

// comparePanels times the model as it is against a session as the engine opens it.
func comparePanels(ctx context.Context, b *bench, path string, _ int) (*linearDetail, bool, error) {
	// A side's threads rest while the other is timed.
	resting := map[string]string{"session.force_spinning_stop": "1"}
	unpatched, err := session.Open(b.library, path, session.Options{Unpatched: true, Config: resting})
	if err != nil {
		return nil, false, err
	}
	defer unpatched.Close()
	packed, err := openPanels(ctx, path, b.library, b.set)
	if err != nil {
		return nil, false, err
	}
	defer packed.Close()
	inputs := map[string]*ort.Value{}
	random := rand.New(rand.NewPCG(3, 4))
	for _, in := range unpatched.Inputs() {
		x := make([]float32, in.Shape[0]*in.Shape[1])
		for i := range x {
			x[i] = random.Float32()*2 - 1
		}
		v, err := ort.NewTensor(b.library, in.Shape, x)
		if err != nil {
			return nil, false, err
		}
		defer v.Close()
		inputs[in.Name] = v
	}
	run := func(s runner) ([]*ort.Value, float64, error) {
		start := time.Now()
		results, err := s.Run(ctx, maps.Clone(inputs))
		return results, 1e3 * time.Since(start).Seconds(), err
	}
	d, equal := &linearDetail{}, true
	for round := range b.rounds + 3 {
		var made [2][]*ort.Value
		for _, i := range []int{0, 1, 1, 0} {
			s, times := runner(unpatched), &d.UnpatchedMS
			if i == 1 {
				s, times = packed, &d.GraftMS
			}
			results, ms, err := run(s)
			if err != nil {
				return nil, false, err
			}
			if round >= 3 { // the first warm up
				*times = append(*times, ms)
			}
			closeAll(made[i])
			made[i] = results
		}
		if round == 0 {
			if equal, err = close32(made[0], made[1]); err != nil {
				return nil, false, err
			}
		}
		closeAll(made[0])
		closeAll(made[1])
	}
	d.Speedup = statistics.SpeedupOf(d.UnpatchedMS, d.GraftMS)
	return d, equal, nil
}

// runner is a session of either kind.
type runner interface {
	Run(ctx context.Context, inputs map[string]*ort.Value, outputs ...string) ([]*ort.Value, error)
}

// panelsSide is the side of a process that opens a model as the engine does.
const panelsSide = "panels"

// openPanels opens a model as an engine does.
func openPanels(ctx context.Context, path string, l *ort.Library, set *loaded.Set) (*engine.Session, error) {
	g, err := prepare.Single(ctx, path, set, plan.Options{Plugins: []string{"packed-linear"}})
	if err != nil {
		return nil, err
	}
	defer g.Close()
	return engine.OpenSession(ctx, g,
		engine.Options{Library: l, Plugins: set, PanelBytes: memory.Half(),
			Config: map[string]string{"session.force_spinning_stop": "1"}})
}

func closeAll(list []*ort.Value) {
	for _, v := range list {
		v.Close()
	}
}

// close32 says whether two lists of float32 tensors agree within 1e-5 and 1e-4 of
// each element.
func close32(a, b []*ort.Value) (bool, error) {
	for i := range a {
		x, err := ort.Data[float32](a[i])
		if err != nil {
			return false, err
		}
		y, err := ort.Data[float32](b[i])
		if err != nil {
			return false, err
		}
		if len(x) != len(y) {
			return false, nil
		}
		for j := range x {
			if off := math.Abs(float64(x[j] - y[j])); !(off <= 1e-5+1e-4*math.Abs(float64(x[j]))) {
				return false, nil
			}
		}
	}
	return true, nil
}

// writeWeights writes random numbers, as many bytes as the largest list of
// linear layers needs, and returns those of the first.
func writeWeights(path string, lists [][]linearLayer) (int64, error) {
	need := func(list []linearLayer) (bytes int64) {
		for _, p := range list {
			bytes += 4 * (p.depth*p.columns + p.columns)
		}
		return bytes
	}
	largest := int64(0)
	for _, list := range lists {
		largest = max(largest, need(list))
	}
	f, err := storage.Create(path, storage.Shared)
	if err != nil {
		return 0, err
	}
	defer f.Discard()
	w := bufio.NewWriterSize(f, 1<<20)
	random := rand.New(rand.NewPCG(1, 2))
	var four [4]byte
	for range largest / 4 {
		binary.LittleEndian.PutUint32(four[:], math.Float32bits(random.Float32()*0.04-0.02))
		if _, err := w.Write(four[:]); err != nil {
			return 0, err
		}
	}
	if err = w.Flush(); err == nil {
		err = f.Commit()
	}
	return need(lists[0]), err
}

// writeLayers writes a model of linear layers side by side, each with an output of its
// own, over one input for each depth.
func writeLayers(path string, list []linearLayer, rows int64) error {
	g := &onnx.Graph{Name: proto.String("linear_layers")}
	offset := int64(0)
	weight := func(name string, dims ...int64) {
		bytes := int64(4)
		for _, d := range dims {
			bytes *= d
		}
		entry := func(key string, value any) *onnx.Entry {
			return &onnx.Entry{Key: proto.String(key), Value: proto.String(fmt.Sprint(value))}
		}
		g.Initializer = append(g.Initializer,
			&onnx.Tensor{Name: proto.String(name), Dims: dims, DataType: proto.Int32(int32(onnx.Tensor_FLOAT)),
				DataLocation: onnx.Tensor_EXTERNAL.Enum(),
				ExternalData: []*onnx.Entry{entry("location", weightsFile), entry("offset", offset), entry("length", bytes)}})
		offset += bytes
	}
	info := func(name string, dims ...int64) *onnx.ValueInfo {
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
			g.Input = append(g.Input, info(x, rows, p.depth))
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
		g.Output = append(g.Output, info(y, rows, p.columns))
	}
	data, err := proto.Marshal(&onnx.Model{IrVersion: proto.Int64(8), Graph: g,
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)}}})
	if err != nil {
		return err
	}
	return storage.Write(path, data, storage.Shared)
}

// residesIn asks a process of its own what it holds with the model loaded.
func residesIn(ctx context.Context, side, path string) (resides, error) {
	var m loading
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
