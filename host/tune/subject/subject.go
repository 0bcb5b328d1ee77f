// Package subject says what there is to measure of a model folder: the attention
// layers of its decoder, and the shapes that they meet.
package subject

import (
	"fmt"

	"github.com/opgraft/graft/host/blocks"
	"github.com/opgraft/graft/host/decode"
	"github.com/opgraft/graft/host/decode/engine"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/plan"
)

// Subject is one kind of attention with its shapes.
type Subject struct {
	Layers plan.Layers `json:"layers"`
	Range  plan.Range  `json:"range"`
}

// Options bound the shapes.
type Options struct {
	Beams, Batch, NewTokens int64 // the most of each
	MaxPositions            int64 // the most of a prompt and of an encoder's input, below what the model allows
}

// leastKeys is the shortest input that is worth a measurement of its own, decoderStart
// the most tokens that a decoder behind an encoder begins with.
const (
	leastKeys    = 16
	decoderStart = 4
)

// Find reads a model folder.
func Find(folder string, o Options) ([]Subject, error) {
	files, err := engine.Find(folder)
	if err != nil {
		return nil, err
	}
	config, err := decode.ReadConfig(folder)
	if err != nil {
		return nil, err
	}
	m, err := model.Open(files.Decoder)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	g, err := graph.New(m.Proto(), m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", files.Decoder, err)
	}
	list := plan.LayersOf(decoder(blocks.Find(g, graph.Infer(g)).Blocks))
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: found no attention that graft recognises; graft inspect says why", files.Decoder)
	}
	subjects := make([]Subject, len(list))
	for i, l := range list {
		subjects[i] = Subject{l, shapes(l, config, files.Encoder != "", o)}
	}
	return subjects, nil
}

// decoder are the blocks of one graph: of a merged decoder those of the branch that
// reads a past.
func decoder(list []*blocks.Block) []*blocks.Block {
	pasts := map[*graph.Graph]int{}
	var in *graph.Graph
	for _, b := range list {
		if b.Wiring == nil {
			continue
		}
		n := pasts[b.Wiring.Graph]
		if b.Wiring.PastKey != nil {
			n++
		}
		pasts[b.Wiring.Graph] = n
		if in == nil || n > pasts[in] {
			in = b.Wiring.Graph
		}
	}
	var one []*blocks.Block
	for _, b := range list {
		if b.Wiring != nil && b.Wiring.Graph == in {
			one = append(one, b)
		}
	}
	return one
}

// shapes are those that layers meet.
func shapes(l plan.Layers, config *decode.Config, encoder bool, o Options) plan.Range {
	r := plan.Range{Beams: [2]int64{1, o.Beams}, Batch: [2]int64{1, o.Batch}, Steps: o.NewTokens}
	if l.Type == "cross" {
		most := min(config.EncoderPositions, o.MaxPositions)
		r.Keys = [2]int64{min(leastKeys, most), most}
		if config.FeatureShape() != nil {
			r.Keys = [2]int64{config.EncoderPositions, config.EncoderPositions} // sound is cut and filled up to one length
		}
		return r
	}
	positions := min(config.Positions, o.MaxPositions)
	r.Own = [2]int64{0, min(o.NewTokens, max(positions-1, 1))}
	most := max(positions-r.Own[1], 1)
	if encoder {
		most = min(most, decoderStart)
	}
	r.Keys = [2]int64{min(leastKeys, most), most}
	if encoder {
		r.Keys[0] = 1
	}
	return r
}
