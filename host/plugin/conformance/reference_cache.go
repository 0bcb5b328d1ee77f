package conformance

import (
	"fmt"
	"math"
	"slices"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// cached is attention over the host's cache, one loop a formula, whatever the strategy: strategies are told
// apart by their inputs.
type cached struct {
	inputs                  map[string]*tensor.Tensor
	heads, kvHeads          int64
	headSize, valueSize     int64
	width, offset, kvOffset int64
	scale, softcap, skip    float64
	window                  int64
	storage, kvStorage      tensor.DType // of the cache, and of keys and values after rows
	turn                    rotation
}

// referenceCached computes the outputs of one step, which writes nothing.
func referenceCached(inputs map[string]*tensor.Tensor, attributes []manifest.Attribute) (map[string][]float64, error) {
	integer := func(name string, otherwise int64) int64 {
		if n := attributeOr(attributes, name, int64(0)); n != 0 {
			return n
		}
		return otherwise
	}
	c := &cached{inputs: inputs, heads: integer("num_heads", 0), headSize: integer("head_size", 0)}
	c.kvHeads, c.valueSize = integer("kv_num_heads", c.heads), integer("value_size", c.headSize)
	c.width = integer("width", c.heads*c.headSize)
	c.offset, c.kvOffset, c.window = integer("offset", 0), integer("kv_offset", 0), integer("window", 0)
	c.scale, c.softcap, c.skip = attributeOr(attributes, "scale", 0.0), attributeOr(attributes, "softcap", 0.0),
		attributeOr(attributes, "skip", 0.0)
	for _, name := range []string{"query", "cache", "sequences", "shared_slots"} {
		if inputs[name] == nil {
			return nil, fmt.Errorf("found no input %s, needed it", name)
		}
	}
	for _, name := range []string{"slot_mapping", "kv_slot_mapping"} {
		if inputs[name] != nil {
			return nil, fmt.Errorf("found the input %s, needed a case without it", name)
		}
	}
	c.storage = tensor.DType(attributeOr(attributes, "storage", string(tensor.Float32)))
	c.kvStorage = tensor.DType(attributeOr(attributes, "kv_storage", string(tensor.Float32)))
	for _, storage := range []tensor.DType{c.storage, c.kvStorage} {
		if !slices.Contains([]tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16, tensor.Int8}, storage) {
			return nil, fmt.Errorf("found a cache in %s, needed float32, float16, bfloat16 or int8", storage)
		}
	}
	var err error
	if c.turn, err = rotationOf(inputs, attributes); err != nil {
		return nil, err
	}
	if c.heads < 1 || c.headSize < 1 || c.kvHeads < 1 || c.heads%c.kvHeads != 0 {
		return nil, fmt.Errorf("found %d heads of %d over %d, needed a multiple", c.heads, c.headSize, c.kvHeads)
	}
	if c.scale == 0 {
		c.scale = 1 / math.Sqrt(float64(c.headSize))
	}
	return c.output()
}

// floats are the elements of an input, nil where it is absent.
func (c *cached) floats(name string) []float64 {
	if c.inputs[name] == nil {
		return nil
	}
	return c.inputs[name].Floats()
}

// keyValue is a key and a value of one KV head.
type keyValue struct{ key, value []float64 }

// slotReader gives what a pool holds at a slot, of the key at a position, for a KV head.
type slotReader func(slot, position, head int64) keyValue

// keysAndValues reads a pool of keys and values.
func (c *cached) keysAndValues(pool string, offset int64, storage tensor.DType) slotReader {
	data, block := c.floats(pool), c.inputs[pool].Shape[1]
	numbers := data
	if storage != tensor.Float32 {
		numbers = packed(c.inputs[pool], storage).Floats()
	}
	bytes, scales := storage.Size(), int64(0)
	if storage == tensor.Int8 {
		scales = abi.CacheScales(c.kvHeads)
	}
	row := func(at, size, slot, group int64) []float64 {
		list := numbers[at/bytes:][:size]
		if scales == 0 {
			return list
		}
		return scaled(list, data[abi.CacheScaleOffset(slot, group, block, offset)])
	}
	return func(slot, _, head int64) keyValue {
		key := abi.CacheTypedKeyOffset(slot, head, block, offset, c.headSize, bytes, scales)
		value := abi.CacheTypedValueOffset(slot, head, block, offset, c.kvHeads, c.headSize, c.valueSize, bytes, scales)
		return keyValue{row(key, c.headSize, slot, head), row(value, c.valueSize, slot, c.kvHeads+head)}
	}
}

// scaled are numbers times their scale.
func scaled(list []float64, scale float64) []float64 {
	out := make([]float64, len(list))
	for i, x := range list {
		out[i] = scale * x
	}
	return out
}

// storedRows reads the rows of a pool by their slots.
func (c *cached) storedRows() func(slot int64) []float64 {
	block, bytes := c.inputs["cache"].Shape[1], c.storage.Size()
	data, numbers := c.floats("cache"), packed(c.inputs["cache"], c.storage).Floats()
	if c.storage != tensor.Int8 {
		return func(slot int64) []float64 {
			return numbers[abi.CacheRowOffset(slot, block, c.offset, c.width, bytes)/bytes:][:c.width]
		}
	}
	groups := (c.width + abi.CacheScaleGroup - 1) / abi.CacheScaleGroup
	return func(slot int64) (row []float64) {
		at := abi.CacheRowOffset(slot, block, c.offset, abi.CacheInt8Row(c.width), 1)
		list := numbers[at+4*groups:][:c.width]
		for g := range groups {
			begin := g * abi.CacheScaleGroup
			row = append(row, scaled(list[begin:min(begin+abi.CacheScaleGroup, c.width)], data[at/4+g])...)
		}
		return row
	}
}

// rows reads a pool of rows, from which values, and of hidden states keys, are computed.
func (c *cached) rows() slotReader {
	stored := c.storedRows()
	keyWeight, valueWeight := c.floats("key_weight"), c.floats("value_weight")
	keyBias, valueBias := c.floats("key_bias"), c.floats("value_bias")
	added := func(bias []float64, head, size, i int64) float64 {
		if bias == nil {
			return 0
		}
		return bias[head*size+i]
	}
	return func(slot, position, head int64) keyValue {
		row := stored(slot)
		key := row
		if c.turn.rotated {
			row = c.turn.by(row, c.headSize, position, -1)
		} else {
			key = c.turn.by(row, c.headSize, position, 1)
		}
		p := keyValue{make([]float64, c.headSize), make([]float64, c.valueSize)}
		for i := range p.value {
			p.value[i] = added(valueBias, head, c.valueSize, int64(i))
			weight := valueWeight[head*abi.Panels(c.valueSize)*c.width*abi.PanelColumns:]
			for f, x := range row {
				p.value[i] += x * weight[abi.PanelOffset(int64(i), int64(f), c.width)]
			}
		}
		if keyWeight == nil {
			copy(p.key, key[head*c.headSize:])
			return p
		}
		for i := range p.key {
			p.key[i] = added(keyBias, head, c.headSize, int64(i))
			weight := keyWeight[head*abi.Panels(c.width)*c.headSize*abi.PanelColumns:]
			for f, x := range row {
				p.key[i] += x * weight[abi.PanelOffset(int64(f), int64(i), c.headSize)]
			}
		}
		return p
	}
}

// part is one pool with its lists.
type part struct {
	read                       slotReader
	sequences, shared, private []float64
}

// slots are those of a token of a group, and whether the group is causal.
func (p part) slots(group, token int64) (slots []float64, causal bool) {
	d := p.sequences[group*abi.SequenceColumns:][:abi.SequenceColumns]
	slots = append(slots, p.shared[int64(d[abi.SequenceSharedOffset]):][:int64(d[abi.SequenceShared])]...)
	if m := int64(d[abi.SequencePrivate]); m > 0 {
		slots = append(slots, p.private[int64(d[abi.SequencePrivateOffset])+token*m:][:m]...)
	}
	return slots, d[abi.SequenceCausal] != 0
}

// output computes all tokens of all groups.
func (c *cached) output() (map[string][]float64, error) {
	first := part{sequences: c.floats("sequences"), shared: c.floats("shared_slots"), private: c.floats("private_slots")}
	if c.inputs["value_weight"] == nil {
		first.read = c.keysAndValues("cache", c.offset, c.storage)
	} else {
		first.read = c.rows()
	}
	parts := []part{first}
	if c.inputs["kv_cache"] != nil {
		parts = append(parts, part{c.keysAndValues("kv_cache", c.kvOffset, c.kvStorage), c.floats("kv_sequences"),
			c.floats("kv_shared_slots"), c.floats("kv_private_slots")})
	}
	query, bias, sinks := c.floats("query"), c.floats("bias"), c.floats("sinks")
	if sinks != nil && int64(len(sinks)) != c.heads {
		return nil, fmt.Errorf("found %d sinks, needed one a query head, %d", len(sinks), c.heads)
	}
	out := make([]float64, int64(len(query))/c.headSize*c.valueSize)
	skipped := make([]float64, int64(len(query))/c.headSize)
	for g := range int64(len(first.sequences)) / abi.SequenceColumns {
		d := first.sequences[g*abi.SequenceColumns:][:abi.SequenceColumns]
		n := int64(d[abi.SequenceTokens])
		for i := range n {
			token := int64(d[abi.SequenceFirstToken]) + i
			for h := range c.heads {
				var positions []keyValue
				at := int64(-1)
				for _, p := range parts {
					slots, causal := p.slots(g, i)
					at += int64(len(slots))
					if causal {
						at -= n - 1 - i
						slots = slots[:at+1]
					}
					for _, slot := range slots {
						positions = append(positions, p.read(int64(slot), int64(len(positions)), h/(c.heads/c.kvHeads)))
					}
				}
				row := token*c.heads + h
				var distances []float64
				if bias != nil {
					size := c.inputs["bias"].Shape[1]
					distances = bias[h*size:][:size]
				}
				skipped[row] = c.attend(query[row*c.headSize:][:c.headSize], distances, positions, sinkOf(sinks, h),
					out[row*c.valueSize:][:c.valueSize])
			}
		}
	}
	return map[string][]float64{"output": out, "skipped": skipped}, nil
}

// attend computes one token and head, which stands at the last of its positions. What it returns is the
// probability of the keys that are skipped: those of less than skip times the probability of the best one.
func (c *cached) attend(query, distances []float64, positions []keyValue, sink float64,
	out []float64) (skipped float64) {
	weights := make([]float64, len(positions))
	for j, p := range positions {
		d := len(positions) - 1 - j
		for f, x := range query {
			weights[j] += x * p.key[f]
		}
		weights[j] *= c.scale
		if c.softcap > 0 {
			weights[j] = c.softcap * math.Tanh(weights[j]/c.softcap)
		}
		if distances != nil {
			weights[j] += distances[min(d, len(distances)-1)]
		}
		if c.window > 0 && int64(d) >= c.window {
			weights[j] = math.Inf(-1)
		}
	}
	softmax(weights, sink, false)
	least := 0.0
	if c.skip > 0 && len(weights) > 0 {
		least = c.skip * slices.Max(weights)
	}
	for j, p := range positions {
		if weights[j] < least {
			skipped += weights[j]
			continue
		}
		for f := range out {
			if weights[j] != 0 {
				out[f] += weights[j] * p.value[f]
			}
		}
	}
	return skipped
}
