// Package probe runs attention operators of plugins over caches that are made up, as
// a step of a decoder runs them over real ones, without a model and without ONNX
// Runtime: to measure how long they take.
package probe

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/base/threads"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Layers is attention of one kind and candidate, with memory for shapes up to a
// largest one. It is not for concurrent use.
type Layers struct {
	layers          plan.Layers
	candidate       plan.Candidate
	implementations plan.Implementations
	crew            *threads.Pool
	kernels         []*plugin.Kernel // a layer's
	first           *plugin.Kernel   // of the first layer, where another operator runs it
	pools           []*pool          // what is stored at shared positions, and where else at those generated since
	weights         *memory.Region
	workspace       []byte
}

// pool is a cache whose blocks hold an area for each layer, or one for all.
type pool struct {
	region *memory.Region
	shape  []int64 // blocks, floats of one
	area   int64   // floats from one layer's area to the next; 0 where they share one
}

func newPool(positions, area, areas int64) (*pool, error) {
	p := &pool{shape: []int64{abi.CacheBlocks(positions), area * areas}}
	if areas > 1 {
		p.area = area
	}
	var err error
	if p.region, err = memory.Reserve(4 * p.shape[0] * p.shape[1]); err != nil {
		return nil, err
	}
	fill(p.region.Floats())
	return p, nil
}

func (p *pool) tensor() *tensor.Tensor {
	return &tensor.Tensor{DType: tensor.Float32, Shape: p.shape, Data: unsafe.Pointer(unsafe.SliceData(p.region.Bytes()))}
}

// filling is a small number, and two ones where it is read as halves.
var filling = math.Float32frombits(0x3c003c00)

// fill writes small numbers everywhere, so that memory is there and nothing
// overflows.
func fill(list []float32) {
	for i := range list {
		list[i] = filling
	}
}

// New makes layers of a kind that a candidate runs, by the plugin p, with `layers` of them in
// memory, for shapes that need at most as much as the largest. The crew, which may be
// nil, stays the caller's.
func New(p *plugin.Plugin, implementations plan.Implementations, l plan.Layers, c plan.Candidate, layers int64,
	largest plan.Shape, crew *threads.Pool) (_ *Layers, err error) {
	x := &Layers{layers: l, candidate: c, implementations: implementations, crew: crew}
	defer func() {
		if err != nil {
			x.Close()
			err = fmt.Errorf("%s: %w", c, err)
		}
	}()
	f, err := callOf(l, c, implementations)
	if err != nil {
		return nil, err
	}
	areas := layers
	if f.one {
		areas = 1
	}
	shared, own := positions(l, c, largest)
	for i, n := range []int64{shared, own} {
		if n == 0 && i > 0 {
			continue
		}
		area := f.area
		if i > 0 {
			area = c.BesideArea(l)
		}
		made, err := newPool(max(n, 1), area, areas)
		if err != nil {
			return nil, err
		}
		x.pools = append(x.pools, made)
		areas = layers
	}
	if f.weights > 0 {
		if x.weights, err = memory.Reserve(4 * f.weights * layers); err != nil {
			return nil, err
		}
		fill(x.weights.Floats())
	}
	for i := range layers {
		attributes := append(f.attributes, manifest.Attribute{Name: "offset", Value: i * x.pools[0].area})
		if c.Inputs() == plan.PromptHiddenStates && len(x.pools) > 1 {
			attributes = append(attributes, manifest.Attribute{Name: "kv_offset", Value: i * x.pools[1].area})
		}
		k, err := p.Create(f.operator, attributes, nil, tensor.CPU)
		if err != nil {
			return nil, err
		}
		x.kernels = append(x.kernels, k)
	}
	if c.Inputs() == plan.FirstLayerKeys {
		keys, err := callOf(l, plan.Candidate{Strategy: plan.Keys, Storage: c.Storage}, implementations)
		if err != nil {
			return nil, err
		}
		if x.first, err = p.Create(keys.operator, keys.attributes, nil, tensor.CPU); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// Close frees kernels and memory.
func (x *Layers) Close() {
	for _, k := range x.kernels {
		k.Destroy()
	}
	if x.first != nil {
		x.first.Destroy()
	}
	for _, p := range x.pools {
		_ = p.region.Close() // nothing can be done about a mapping that stays
	}
	if x.weights != nil {
		_ = x.weights.Close()
	}
}
