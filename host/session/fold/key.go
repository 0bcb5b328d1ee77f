package fold

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// version is part of every key and file: what another version wrote is not found.
const version = "graft fold 1"

// key names a fold by the content of everything that it depends on. Neither the order
// of constants nor that of attributes matters; those are told apart by their names.
func key(library, operator string, constants []tensor.Weight, attributes []manifest.Attribute, as elements) (string,
	error) {
	k := &keyHash{Hash: sha256.New()}
	k.text(version)
	k.text(library)
	k.text(operator)
	k.number(uint64(as))
	attributes = slices.SortedFunc(slices.Values(attributes),
		func(a, b manifest.Attribute) int { return strings.Compare(a.Name, b.Name) })
	k.number(uint64(len(attributes)))
	for _, a := range attributes {
		k.text(a.Name)
		if err := k.value(a.Value); err != nil {
			return "", fmt.Errorf("fold of %s: attribute %s: %w", operator, a.Name, err)
		}
	}
	constants = slices.SortedFunc(slices.Values(constants),
		func(a, b tensor.Weight) int { return strings.Compare(a.Name, b.Name) })
	k.number(uint64(len(constants)))
	for _, w := range constants {
		k.text(w.Name)
		k.integers(w.Shape)
		if w.Floats == nil && w.Ints != nil {
			k.text("ints")
			k.integers(w.Ints)
			continue
		}
		k.text("floats")
		k.floats(w.Floats)
	}
	return hex.EncodeToString(k.Sum(nil)), nil
}

// keyHash hashes values so that no two different lists of them run together.
type keyHash struct {
	hash.Hash
	buffer []byte
}

func (k *keyHash) number(n uint64) {
	k.Write(binary.LittleEndian.AppendUint64(k.buffer[:0], n))
}

func (k *keyHash) text(s string) {
	k.number(uint64(len(s)))
	k.Write([]byte(s))
}

// chunk is how many numbers are converted at once.
const chunk = 4096

func (k *keyHash) floats(list []float64) {
	k.number(uint64(len(list)))
	for part := range slices.Chunk(list, chunk) {
		k.buffer = k.buffer[:0]
		for _, x := range part {
			k.buffer = binary.LittleEndian.AppendUint64(k.buffer, math.Float64bits(x))
		}
		k.Write(k.buffer)
	}
}

func (k *keyHash) integers(list []int64) {
	k.number(uint64(len(list)))
	for part := range slices.Chunk(list, chunk) {
		k.buffer = k.buffer[:0]
		for _, n := range part {
			k.buffer = binary.LittleEndian.AppendUint64(k.buffer, uint64(n))
		}
		k.Write(k.buffer)
	}
}

// value hashes an attribute as the plugin sees it.
func (k *keyHash) value(v any) error {
	switch v := v.(type) {
	case int:
		return k.value(int64(v))
	case int64:
		k.text("int")
		k.number(uint64(v))
	case float64:
		k.text("float")
		k.number(math.Float64bits(v))
	case string:
		k.text("string")
		k.text(v)
	case []int64:
		k.text("ints")
		k.integers(v)
	case []float64:
		k.text("floats")
		k.floats(v)
	default:
		return fmt.Errorf("found a value of type %T, needed int64, float64, string, []int64 or []float64", v)
	}
	return nil
}
