package exported

import (
	"context"
	"fmt"
	"runtime"
	"slices"
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
		case roles.ByName(info.Name) == roles.Mask:
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
	for _, in := range s.Inputs() {
		var err error
		switch is := roles.ByName(in.Name); {
		case is == roles.Tokens:
			err = add(f, in.Name, tokens, rows, n)
		case is == roles.Mask && masksEncoder(s, in):
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

// masksEncoder reports a mask over what the encoder read: optimum says so in its name, and the exporter of
// Transformers 5 calls its length as that of the encoder's output, or of keys that were made of it.
func masksEncoder(s *session.Session, mask ort.ValueInfo) bool {
	if roles.Named(mask.Name) == roles.Encoder {
		return true
	}
	length := len(mask.Dimensions) - 1
	return length >= 0 && mask.Dimensions[length] != "" && slices.ContainsFunc(s.Inputs(), func(in ort.ValueInfo) bool {
		_, encoder := roles.Cache(in.Name)
		return (encoder || roles.ByName(in.Name) == roles.EncoderOutput) &&
			slices.Contains(in.Dimensions, mask.Dimensions[length])
	})
}

// pastOf feeds one tensor of the past: its buffer, or an empty one.
func (b *batch) pastOf(f *feeds, in ort.ValueInfo, rows int64) error {
	if len(in.Shape) != 4 || in.Element != ort.Float32 {
		return fmt.Errorf("input %s is not understood: it is no past of rank 4 in float32", in.Name)
	}
	for _, l := range b.own {
		if l.input == in.Name {
			n := rows * l.heads * int64(b.length) * l.size
			return add(f, in.Name, l.past[:n], rows, l.heads, int64(b.length), l.size)
		}
	}
	// What the input leaves open the present says, as in graphs whose exporter calls four heads "4".
	heads, size := in.Shape[1], in.Shape[3]
	present := b.presentOf(in.Name)
	for _, out := range b.decoder.Outputs() {
		if out.Name == present && len(out.Shape) == 4 {
			heads, size = max(heads, out.Shape[1]), max(size, out.Shape[3])
		}
	}
	if size < 0 {
		size = b.headSize
	}
	return add(f, in.Name, []float32{}, rows, heads, 0, size)
}

// move copies row parents[r] of each present to row r of its past, on all cores.
func move(layers []*layer, parents []int, length int) error {
	var wait sync.WaitGroup
	work := make(chan *layer)
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for l := range work {
				n := int(l.heads) * length * int(l.size)
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
	return nil
}
