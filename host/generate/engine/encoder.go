package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/opgraft/graft/host/generate/cache"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Encode runs the encoder over one input that a number of beams will attend to, and stores
// what layers of cross attention read. Features are what the encoder takes: token
// ids, or float32 features of a given shape.
func (e *Engine) Encode(ctx context.Context, in Features, beams int) (*Encoded, error) {
	hidden, err := e.encode(ctx, in)
	if err != nil {
		return nil, err
	}
	defer hidden.Close()
	return e.Store(ctx, hidden, beams)
}

// encode runs the encoder.
func (e *Engine) encode(ctx context.Context, in Features) (*ort.Value, error) {
	if e.encoder == nil {
		return nil, errors.New("the model has no encoder")
	}
	f := &feeder{library: e.library, values: map[string]*ort.Value{}}
	defer f.close()
	for _, info := range e.encoder.Inputs() {
		switch {
		case info.Element == ort.Float32:
			add(f, info.Name, in.Values, in.Shape...)
		case slices.Contains(e.encoderMasks, info.Name):
			ones := make([]int64, in.length())
			for i := range ones {
				ones[i] = 1
			}
			add(f, info.Name, ones, 1, int64(len(ones)))
		default:
			add(f, info.Name, in.Tokens, 1, int64(len(in.Tokens)))
		}
	}
	if f.err != nil {
		return nil, f.err
	}
	hidden, err := e.encoder.Run(ctx, f.values, e.encoder.Outputs()[0].Name)
	if err != nil {
		return nil, err
	}
	return hidden[0], nil
}

// EncodeCopies is Encode of one input for as many sequences, of which each stores its own:
// for measuring what many sequences take.
func (e *Engine) EncodeCopies(ctx context.Context, in Features, beams, copies int, done func(*Encoded) error) error {
	hidden, err := e.encode(ctx, in)
	if err != nil {
		return err
	}
	defer hidden.Close()
	for range copies {
		s, err := e.Store(ctx, hidden, beams)
		if err != nil {
			return err
		}
		if err := done(s); err != nil {
			return err
		}
	}
	return nil
}

// Store is the second half of Encode: it stores what layers of cross attention read of
// an encoder's output (1, positions, width).
func (e *Engine) Store(ctx context.Context, hidden *ort.Value, beams int) (s *Encoded, err error) {
	s = &Encoded{}
	defer func() {
		if err != nil {
			s.Release()
			s = nil
		}
	}()
	shape := hidden.Shape()
	if len(shape) != 3 || shape[0] != 1 || shape[1] < 1 {
		return s, fmt.Errorf("the encoder's output has the shape %v, needed is one input of at least one position: (1, "+
			"positions, width)", shape)
	}
	length := int(shape[1])
	keys, output := e.stored(length, beams)
	if output {
		if err = e.storeOutput(s, hidden, length); err != nil {
			return s, err
		}
	}
	if !keys {
		return s, nil
	}
	s.keys = cache.NewSequence(e.cross.Pool)
	slots, err := s.keys.Extend(length)
	if err != nil {
		return s, err
	}
	return s, e.fillCross(ctx, hidden, slots)
}

// storeOutput stores an encoder's output (1, length, width) as it is.
func (e *Engine) storeOutput(s *Encoded, hidden *ort.Value, length int) error {
	s.output = cache.NewSequence(e.output.Pool)
	slots, err := s.output.Extend(length)
	if err != nil {
		return err
	}
	rows, err := ort.Data[float32](hidden)
	if err != nil {
		return err
	}
	width := int64(len(rows) / length)
	if need := e.graph.EncoderWidth; need != width {
		return fmt.Errorf("the encoder's output is %d wide, the decoder attends over %d", width, need)
	}
	if e.store == nil {
		if e.store, err = e.rowStore(width); err != nil {
			return err
		}
	}
	count := [1]int32{}
	floats := func(data []float32, shape ...int64) *tensor.Tensor {
		return &tensor.Tensor{DType: tensor.Float32, Shape: shape, Data: unsafe.Pointer(unsafe.SliceData(data))}
	}
	integers := func(data []int32) *tensor.Tensor {
		return &tensor.Tensor{DType: tensor.Int32, Shape: []int64{int64(len(data))},
			Data: unsafe.Pointer(unsafe.SliceData(data))}
	}
	return e.store.Run(&plugin.RunContext{Threads: e.threads},
		[]*tensor.Tensor{floats(rows, int64(length), width), floats(e.output.Floats(), e.output.Shape()...), integers(slots)},
		[]*tensor.Tensor{integers(count[:])})
}

// Features are one input of an encoder: tokens, or values of a shape (1, ..).
type Features struct {
	Tokens []int64
	Values []float32
	Shape  []int64
}

// length is what an encoder's mask is over.
func (f *Features) length() int64 {
	if n := len(f.Shape); n > 0 {
		return f.Shape[n-1]
	}
	return int64(len(f.Tokens))
}
