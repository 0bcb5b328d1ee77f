package engine

import (
	"errors"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/plan"
)

// crossing is what layers of cross attention share.
type crossing struct {
	*builder
	output int64 // where the encoder's output stands in its pool; -1 before it has a place
}

// layer is what is known of a block's layer, with its inputs checked.
func (c *crossing) layer(b *blocks.Block, strategy plan.Strategy) (CrossLayer, error) {
	a, w := b.Attention, b.Wiring
	key, value := w.Key, w.Value
	if key == nil {
		key, value = w.PastKey, w.PastValue
	}
	if key == nil || value == nil || !key.IsInput || !value.IsInput {
		return CrossLayer{}, errors.New(
			"its keys and values are not inputs of the model; take the decoder that is exported with past")
	}
	l := CrossLayer{Key: key.Name, Value: value.Name, Strategy: strategy, Inputs: c.signature(strategy),
		KVHeads: a.KVHeads, HeadSize: a.HeadSize, ValueSize: a.ValueSize}
	return l, c.nothingHidden(b)
}

// projected is a layer whose keys or values are computed from what its pool stores, with its weights and the pool.
func (c *crossing) projected(of *Layer, strategy plan.Strategy, in PoolInputs) (l CrossLayer,
	weights [2]*graph.Value, pool [3]*graph.Value, err error) {
	if l, err = c.layer(of.block, strategy); err == nil {
		weights, err = c.weights(of)
	}
	if err == nil {
		pool, err = c.pool(in)
	}
	return l, weights, pool, err
}

// keysValues stores keys and values a layer.
func (c *crossing) keysValues(of *Layer) error {
	b := of.block
	l, err := c.layer(b, of.Strategy)
	if err != nil {
		return err
	}
	p, err := c.pool(CrossPool)
	if err != nil {
		return err
	}
	l.Offset = c.area(&c.engine.Cross, of.Strategy, b.Attention, plan.WidthOf(b.Attention))
	c.engine.Layers = append(c.engine.Layers, l)
	return c.attend(b, of.Strategy, []*graph.Value{c.Current(b.Wiring.Query), nil, nil, p[0], p[1], p[2]},
		c.overKeysValues(of.Strategy, l.KVHeads, l.Offset)...)
}

// encoder stores the encoder's output, once for all layers; beside it, where that is
// decided for each request, keys and values.
func (c *crossing) encoder(of *Layer) error {
	b, key, value := of.block, of.from.key, of.from.value
	l, weights, p, err := c.projected(of, of.Strategy, EncoderPool)
	if err != nil {
		return err
	}
	if c.output < 0 {
		c.output = c.area(&c.engine.Encoder, of.Strategy, b.Attention, key.Inputs)
		c.engine.EncoderWidth = key.Inputs
	}
	l.Offset = c.output
	ins := []*graph.Value{c.Current(b.Wiring.Query), p[0], p[1], p[2], weights[0], weights[1], c.seenBias(b, key),
		c.row(value.Bias)}
	attributes := append(c.rows(l.Offset), "kv_num_heads", l.KVHeads, "width", key.Inputs)
	if c.Either {
		kv, err := c.pool(CrossPool)
		if err != nil {
			return err
		}
		l.Offset = c.engine.Cross
		ins = append(ins, nil, nil, nil, nil, nil, nil, kv[0], kv[1], kv[2])
		attributes = append(attributes, c.beside(&c.engine.Cross, b.Attention)...)
	}
	c.engine.Layers = append(c.engine.Layers, l)
	return c.attend(b, of.Strategy, ins, attributes...)
}

// keys stores keys a layer.
func (c *crossing) keys(of *Layer) error {
	b := of.block
	strategy := of.attending()
	l, weights, p, err := c.projected(of, strategy, CrossPool)
	if err != nil {
		return err
	}
	l.Rows = of.from.key.Rows
	l.Offset = c.area(&c.engine.Cross, strategy, b.Attention, of.from.key.Inputs)
	c.engine.Layers = append(c.engine.Layers, l)
	return c.attend(b, strategy, []*graph.Value{c.Current(b.Wiring.Query), p[0], p[1], p[2], weights[0], weights[1]},
		c.rows(l.Offset)...)
}

// hybrid lets a layer compute its keys from those of the first layer.
func (c *crossing) hybrid(of *Layer) error {
	b := of.block
	l, weights, p, err := c.projected(of, of.Strategy, CrossPool)
	if err != nil {
		return err
	}
	l.Offset = c.engine.Layers[0].Offset
	c.engine.Layers = append(c.engine.Layers, l)
	ins := []*graph.Value{c.Current(b.Wiring.Query), p[0], p[1], p[2], weights[0], weights[1], nil,
		c.row(of.from.value.Bias)}
	return c.attend(b, of.Strategy, ins, append(c.rows(l.Offset), "kv_num_heads", l.KVHeads, "width", of.base.Width)...)
}
