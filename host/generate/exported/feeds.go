package exported

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
)

// feeds are the inputs of a run.
type feeds struct {
	library *ort.Library
	values  map[string]*ort.Value
	made    []*ort.Value
}

func (b *batch) feeds() *feeds { return &feeds{library: b.library, values: map[string]*ort.Value{}} }

func (f *feeds) close() {
	for _, v := range f.made {
		v.Close()
	}
}

func add[T ort.Element](f *feeds, name string, list []T, shape ...int64) error {
	v, err := ort.NewTensor(f.library, shape, list)
	if err != nil {
		return fmt.Errorf("input %s: %w", name, err)
	}
	f.made = append(f.made, v)
	f.values[name] = v
	return nil
}

// encode runs the encoder over the batch.
func (b *batch) encode(ctx context.Context, inputs []request) error {
	f := b.feeds()
	defer f.close()
	n, length := int64(len(inputs)), inputs[0].read()
	var tokens []int64
	var values []float32
	var shape []int64
	for _, in := range inputs {
		for _, t := range in.encoder {
			tokens = append(tokens, int64(t))
		}
		if in.features != nil {
			values = append(values, in.features.Values...)
			shape = append([]int64{n}, in.features.Shape[1:]...)
		}
	}
	for _, info := range b.encoder.Inputs() {
		var err error
		switch {
		case info.Element == ort.Float32:
			err = add(f, info.Name, values, shape...)
		case b.Encoder.Inputs[info.Name].Is == roles.Mask:
			err = add(f, info.Name, ones(n*length), n, length)
		default:
			err = add(f, info.Name, tokens, n, length)
		}
		if err != nil {
			return err
		}
	}
	out, err := b.encoder.Run(ctx, f.values, b.encoder.Outputs()[0].Name)
	if err != nil {
		return err
	}
	b.hidden = out[0]
	b.owned = append(b.owned, b.hidden)
	return nil
}

func ones(n int64) []int64 {
	list := make([]int64, n)
	for i := range list {
		list[i] = 1
	}
	return list
}

// common feeds a decoder: n tokens for each of some rows, after the past.
func (b *batch) common(f *feeds, s *session.Session, tokens []int64, rows, n int64, past bool) error {
	ends := &b.Decoder
	if !past {
		ends = &b.First
	}
	for _, in := range s.Inputs() {
		var err error
		held := ends.Inputs[in.Name]
		switch is := held.Is; {
		case is == roles.Tokens:
			err = add(f, in.Name, tokens, rows, n)
		case is == roles.Mask && held.Encoder:
			err = add(f, in.Name, ones(rows*b.read), rows, b.read)
		case is == roles.Mask:
			err = add(f, in.Name, ones(rows*(int64(b.length)+n)), rows, int64(b.length)+n)
		case is == roles.Positions:
			list := make([]int64, rows*n)
			for i := range list {
				list[i] = int64(b.length) + int64(i)%n
			}
			err = add(f, in.Name, list, rows, n)
		case is == roles.UseCacheBranch:
			err = add(f, in.Name, []bool{past}, 1)
		case is == roles.EncoderOutput:
			f.values[in.Name] = b.hidden
			switch shape := b.hidden.Shape(); {
			case past && len(b.cross) > 0:
				// The branch with a past reads only its batch, which must be that of the rows.
				err = add(f, in.Name, make([]float32, rows*shape[2]), rows, 1, shape[2])
			case past: // it makes keys and values of it in every step
				f.values[in.Name], err = b.hiddenOfRows()
			}
		case isWindow(in) && b.window > 0:
			err = add(f, in.Name, []int64{b.window})
		case b.cross[in.Name] != nil:
			f.values[in.Name] = b.cross[in.Name]
		default:
			err = b.pastOf(f, in, rows)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isWindow reports the window of a layer, which the exporter of Transformers 5 has as a part of the cache: one number,
// read and handed on.
func isWindow(v ort.ValueInfo) bool {
	return strings.HasSuffix(v.Name, "._sliding_window_tensor") && len(v.Shape) == 0 && v.Element == ort.Int64
}

// pastOf feeds one tensor of the past, or a state: its buffer, or what there is before any token.
func (b *batch) pastOf(f *feeds, in ort.ValueInfo, rows int64) error {
	held := b.Decoder.Inputs[in.Name]
	kept := []roles.Input{roles.Past, roles.EncoderPast, roles.State, roles.Other}
	if in.Element != ort.Float32 || !slices.Contains(kept, held.Is) {
		return fmt.Errorf("input %s holds %s of type %s, needed are keys, values or states in float32", in.Name,
			cmp.Or(held.Is, "what the graph does not tell"), in.Element)
	}
	for _, l := range b.own {
		if l.input == in.Name {
			length := int64(b.length)
			return add(f, in.Name, l.past[:l.elements(rows, length)], l.shape(rows, length)...)
		}
	}
	row, err := b.rowOf(in)
	if err == nil && b.length > 0 {
		err = fmt.Errorf("input %s comes from no output that the graphs or a name tell", in.Name)
	}
	if err != nil {
		return err
	}
	l := layer{row: row}
	return add(f, in.Name, make([]float32, l.elements(rows, 0)), l.shape(rows, 0)...)
}

// rowOf are the axes of a row of a past, or of a state. What the input leaves open its present says, as in graphs whose
// exporter calls four heads "4", or what the graph for prompts hands out.
func (b *batch) rowOf(in ort.ValueInfo) ([]int64, error) {
	held := b.Decoder.Inputs[in.Name]
	var shapes [][]int64
	present := b.Decoder.Present(in.Name)
	for _, out := range b.decoder.Outputs() {
		if out.Name == present {
			shapes = append(shapes, out.Shape)
		}
	}
	if b.first != nil {
		for _, out := range b.first.Outputs() {
			if b.First.Next[out.Name] == in.Name {
				shapes = append(shapes, out.Shape)
			}
		}
	}
	var row []int64
	for i, d := range in.Shape {
		for _, shape := range shapes {
			if len(shape) == len(in.Shape) {
				d = max(d, shape[i])
			}
		}
		switch {
		case i == 0:
			continue
		case i == held.Axis:
			d = 0
		case d < 0 && i == len(in.Shape)-1 && held.Axis > 0:
			d = b.headSize
		}
		if d < 0 || d == 0 && i != held.Axis {
			return nil, fmt.Errorf("input %s is no past, and no state whose size the graphs tell", in.Name)
		}
		row = append(row, d)
	}
	return row, nil
}

// move copies row parents[r] of each present to row r of its past, on all cores.
func move(layers []*layer, parents []int, length int) {
	var wait sync.WaitGroup
	work := make(chan *layer)
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for l := range work {
				n := int(l.elements(1, int64(length)))
				for r, p := range parents {
					copy(l.past[r*n:(r+1)*n], l.present[p*n:(p+1)*n])
				}
			}
		})
	}
	for _, l := range layers {
		work <- l
	}
	close(work)
	wait.Wait()
}
