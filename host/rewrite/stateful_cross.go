package rewrite

import (
	"errors"

	"github.com/opgraft/graft/host/blocks"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/plan"
)

// crossKeeper serves blocks of cross attention.
func (s *stateful) crossKeeper() keeper {
	c := &crossing{stateful: s, output: -1}
	ways := keepers{
		plan.KeepKeysAndValues: {put: c.keysValues},
		plan.KeepLatent:        {c.encoder, plan.KeepKeysAndValues},
		plan.KeepKeys:          {c.keys, plan.KeepLatent},
		plan.KeepFirstKeys:     {c.hybrid, plan.KeepLatent},
	}
	return func(b *blocks.Block) error { return s.serve(b, s.options.Cross, ways) }
}

// crossing is what layers of cross attention share.
type crossing struct {
	*stateful
	output int64       // where the encoder's output stands in its pool; -1 before it has a place
	base   *Projection // of the keys of the first layer, for the others
}

// layer is what is known of a block's layer, with its inputs checked.
func (c *crossing) layer(b *blocks.Block, keep plan.Keep) (CrossLayer, error) {
	a, w := b.Attention, b.Wiring
	key, value := w.Key, w.Value
	if key == nil {
		key, value = w.PastKey, w.PastValue
	}
	if key == nil || value == nil || !key.IsInput || !value.IsInput {
		return CrossLayer{}, errors.New("its keys and values are not inputs of the model; take the decoder that is exported with past")
	}
	l := CrossLayer{Key: key.Name, Value: value.Name, Keep: keep, KVHeads: a.KVHeads, HeadSize: a.HeadSize, ValueSize: a.ValueSize}
	return l, c.nothingHidden(b)
}

// keysValues keeps keys and values a layer.
func (c *crossing) keysValues(b *blocks.Block) error {
	l, err := c.layer(b, plan.KeepKeysAndValues)
	if err != nil {
		return err
	}
	p, err := c.pool(CrossPool)
	if err != nil {
		return err
	}
	l.Offset = area(&c.engine.Cross, keysValuesFloats(b.Attention))
	c.engine.Layers = append(c.engine.Layers, l)
	return c.attend(b, plan.KeepKeysAndValues, []*graph.Value{c.now(b.Wiring.Query), nil, nil, p[0], p[1], p[2]},
		"kv_num_heads", l.KVHeads, "offset", l.Offset)
}

// weightsOf are the projections of keys and values of an encoder's output.
func (c *crossing) weightsOf(b *blocks.Block) (key, value *Projection, err error) {
	if c.options.Encoder == nil {
		return nil, nil, refuse("the weights of its keys and values are not at hand")
	}
	key, value, err = c.options.Encoder(b)
	if err == nil && (key.From != value.From || key.Inputs != value.Inputs) {
		err = refuse("its keys and values are not projected from one value")
	}
	return key, value, err
}

// encoder keeps the encoder's output, once for all layers; beside it, where that is
// decided for each sample, keys and values.
func (c *crossing) encoder(b *blocks.Block) error {
	l, err := c.layer(b, plan.KeepLatent)
	if err != nil {
		return err
	}
	key, value, err := c.weightsOf(b)
	if err != nil {
		return err
	}
	if !key.From.IsInput {
		return refuse("its keys and values are projected from %s, which is not the encoder's output", key.From.Name)
	}
	weights, err := c.fold(plan.KeepLatent, b, key, value, nil)
	if err != nil {
		return err
	}
	p, err := c.pool(EncoderPool)
	if err != nil {
		return err
	}
	if c.output < 0 {
		c.output = area(&c.engine.Encoder, c.rowFloats(key.Inputs))
	}
	l.Offset = c.output
	ins := []*graph.Value{c.now(b.Wiring.Query), p[0], p[1], p[2], weights[0], weights[1], c.seenBias(b, key), c.row(value.Bias)}
	attributes := append(c.rows(l.Offset), "kv_num_heads", l.KVHeads, "width", key.Inputs)
	if c.options.Either {
		kv, err := c.pool(CrossPool)
		if err != nil {
			return err
		}
		l.Offset = area(&c.engine.Cross, keysValuesFloats(b.Attention))
		ins = append(ins, nil, nil, nil, nil, nil, nil, kv[0], kv[1], kv[2])
		attributes = append(attributes, "kv_offset", l.Offset)
	}
	c.engine.Layers = append(c.engine.Layers, l)
	return c.attend(b, plan.KeepLatent, ins, attributes...)
}

// keys keeps keys a layer.
func (c *crossing) keys(b *blocks.Block) error {
	l, err := c.layer(b, plan.KeepKeys)
	if err != nil {
		return err
	}
	if b.Attention.Heads != b.Attention.KVHeads {
		return refuse("its %d heads share %d of keys and values", b.Attention.Heads, b.Attention.KVHeads)
	}
	key, value, err := c.weightsOf(b)
	if err != nil {
		return err
	}
	if b.Attention.Softcap != 0 && key.Bias != nil {
		return refuse("its scores are bent after the bias of keys is in them")
	}
	if l.Rows = key.Rows; l.Rows == "" {
		return refuse("its keys are no product of their own")
	}
	weights, err := c.fold(plan.KeepKeys, b, key, value, nil)
	if err != nil {
		return err
	}
	p, err := c.pool(CrossPool)
	if err != nil {
		return err
	}
	l.Offset = area(&c.engine.Cross, c.rowFloats(l.KVHeads*l.HeadSize))
	if c.base == nil && len(c.engine.Layers) == 0 {
		c.base = key
	}
	c.engine.Layers = append(c.engine.Layers, l)
	return c.attend(b, plan.KeepKeys, []*graph.Value{c.now(b.Wiring.Query), p[0], p[1], p[2], weights[0], weights[1]},
		c.rows(l.Offset)...)
}

// hybrid keeps keys of the first layer, and lets the others compute theirs from them.
func (c *crossing) hybrid(b *blocks.Block) error {
	if len(c.engine.Layers) == 0 {
		return c.keys(b)
	}
	if c.base == nil {
		return refuse("the first layer keeps no keys")
	}
	l, err := c.layer(b, plan.KeepFirstKeys)
	if err != nil {
		return err
	}
	key, value, err := c.weightsOf(b)
	if err != nil {
		return err
	}
	if b.Attention.Softcap != 0 && key.Bias != nil {
		return refuse("its scores are bent after the bias of keys is in them")
	}
	if key.From != c.base.From {
		return refuse("its keys are projected from %s, those of the first layer from %s", key.From.Name, c.base.From.Name)
	}
	weights, err := c.foldFrom(plan.KeepFirstKeys, b, key, value, c.base)
	if err != nil {
		return err
	}
	p, err := c.pool(CrossPool)
	if err != nil {
		return err
	}
	l.Offset = c.engine.Layers[0].Offset
	c.engine.Layers = append(c.engine.Layers, l)
	ins := []*graph.Value{c.now(b.Wiring.Query), p[0], p[1], p[2], weights[0], weights[1], nil, c.row(value.Bias)}
	return c.attend(b, plan.KeepFirstKeys, ins, append(c.rows(l.Offset), "kv_num_heads", l.KVHeads, "width", c.base.Width())...)
}
