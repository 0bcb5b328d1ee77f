package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// WeightReport says what the weights of a model are stored as, of all its sessions together.
type WeightReport struct {
	Requested string          `json:"requested"` // in the words of prepare.ParseWeights
	Linear    []LinearWeights `json:"linear"`    // weights of linear layers, by type
	// Float32 are all other weights of float32, the most bytes first.
	Float32 []Float32Weights `json:"float32"`
	// Stored says that all integers that were asked for were there already, from an earlier opening.
	Stored bool `json:"stored"`
	// Exported says that some linear layers multiply with integers that the model itself holds.
	Exported bool `json:"exported"`
}

// Quantized says whether any weights are stored in fewer bits.
func (r *WeightReport) Quantized() bool {
	return slices.ContainsFunc(r.Linear, func(w LinearWeights) bool { return w.Type != string(prepare.Float32Weights) })
}

// LinearWeights are weights of linear layers that are laid out as one type.
type LinearWeights struct {
	Type         string `json:"type"`
	Matrices     int    `json:"matrices"`
	Bytes        int64  `json:"bytes"`         // in memory, scales and padding included
	Float32Bytes int64  `json:"float32_bytes"` // as they were exported
}

// Float32Weights are weights that stay float32 for one reason.
type Float32Weights struct {
	Reason  string `json:"reason"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

func (w *LinearWeights) add(m *matrix, bytes int64) {
	w.Matrices++
	w.Bytes += bytes
	w.Float32Bytes += m.bytes()
}

// Why weights stay float32.
const (
	whyGathered = "tables of which rows are looked up, as those of embeddings"
	whyFolded   = "folded for a KV-cache strategy"
	whyLies     = "linear layers that are read as stored in the file"
	whyOther    = "biases, scales and other constants"
)

// report gathers what became of weights.
type report struct {
	WeightReport
	integers int
}

// session adds those of a session, before it is made.
func (r *report) session(g *graph.Graph, p *panels) {
	if p != nil {
		for _, c := range p.counts {
			r.linear(c)
		}
		r.Exported = r.Exported || p.given != nil
		if p.quantized != nil {
			r.integers++
			r.Stored = p.stored && (r.Stored || r.integers == 1)
		}
	}
	seen := map[*graph.Value]bool{}
	if p != nil {
		for v, why := range p.refused {
			seen[v] = true
			r.float32(why, 1, 4*v.Tensor.Dims[0]*v.Tensor.Dims[1])
		}
	}
	g.Walk(func(n *graph.Node) {
		for i, v := range n.In {
			if v == nil || v.Tensor == nil || v.Producer != nil || seen[v] ||
				onnx.Tensor_DataType(v.Tensor.GetDataType()) != onnx.Tensor_FLOAT {
				continue
			}
			seen[v] = true
			elements, err := tensor.Elements(v.Tensor.Dims)
			if err != nil {
				continue // the session says so
			}
			r.float32(whyFloat32(n, i), 1, 4*elements)
		}
	})
}

// whyFloat32 says why what a node reads at a position is no linear layer's weight.
func whyFloat32(n *graph.Node, at int) string {
	switch {
	case n.Is("Gather", "GatherND", "com.microsoft.EmbedLayerNormalization") && at == 0:
		return whyGathered
	case n.Provides(capability.LinearPanels) && at == weightOperand:
		return whyLies
	case n.Is("Conv", "ConvTranspose") && at == 1, n.Is("MatMul", "Gemm", "Einsum") && at < 2:
		return fmt.Sprintf("weights of %s, which no plugin takes as a linear layer", n.Op())
	}
	return whyOther
}

func (r *report) linear(c LinearWeights) {
	i := slices.IndexFunc(r.Linear, func(o LinearWeights) bool { return o.Type == c.Type })
	if i < 0 {
		r.Linear = append(r.Linear, c)
		return
	}
	o := &r.Linear[i]
	o.Matrices, o.Bytes, o.Float32Bytes = o.Matrices+c.Matrices, o.Bytes+c.Bytes, o.Float32Bytes+c.Float32Bytes
}

func (r *report) float32(reason string, tensors int, bytes int64) {
	i := slices.IndexFunc(r.Float32, func(o Float32Weights) bool { return o.Reason == reason })
	if i < 0 {
		r.Float32 = append(r.Float32, Float32Weights{Reason: reason})
		i = len(r.Float32) - 1
	}
	o := &r.Float32[i]
	o.Tensors, o.Bytes = o.Tensors+tensors, o.Bytes+bytes
}

// end is the whole report of an engine; where integers were asked for, and none are stored, it is an error.
func (r *report) end(path string, asked prepare.Weights, folded *weights) (*WeightReport, error) {
	if n := folded.size(); n > 0 {
		r.float32(whyFolded, len(folded.tensors), n)
	}
	slices.SortStableFunc(r.Float32, func(a, b Float32Weights) int { return cmp.Compare(b.Bytes, a.Bytes) })
	r.Requested = asked.String()
	if r.Linear == nil {
		r.Linear = []LinearWeights{}
	}
	if r.Float32 == nil {
		r.Float32 = []Float32Weights{}
	}
	if asked.Quantizes() && r.integers == 0 && !r.Exported {
		found := fmt.Sprintf("found no weights that could be stored as %s", asked)
		if len(r.Float32) > 0 {
			found += fmt.Sprintf("; most are %d tensors: %s", r.Float32[0].Tensors, r.Float32[0].Reason)
		}
		return nil, &diagnostic.Error{Path: path, Found: found,
			Needed: "linear layers with constant weights of float32, which a plugin takes that provides " +
				capability.LinearPanels,
			Fix: "leave the option out, and the model runs as it was exported"}
	}
	return &r.WeightReport, nil
}
