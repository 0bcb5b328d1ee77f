package quantization

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/measure/comparison/divergence"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/capability"
)

// Bound is how far a quantised model may be from the one that it was made of.
type Bound struct {
	// KL is the greatest mean divergence of a token, in nats: see divergence.Divergence.
	KL float64
	// Texts are tokens of texts: those of a decoder alone, or what an encoder reads, of which the model as exported
	// generates what is compared.
	Texts [][]int32
	// Tokens is the maximum that is predicted, of all texts together; 0 is 2,048. Logits of all of them are in memory at
	// once.
	Tokens int
	// Units is how many sets of weights are told apart at most, each of which is measured once; 0 is 64.
	Units int
}

// Chosen says how the types of weights were chosen.
type Chosen struct {
	Bound   float64                `json:"bound"`
	Reached *divergence.Divergence `json:"reached"` // of the types that were chosen
	// mean divergence where all weights have the type that was asked for
	Cheapest float64 `json:"cheapest"`
	Measured int     `json:"measured"` // models that were compared with the one as exported
	// of the model as exported, and of that with the types that were chosen
	Perplexity [2]float64 `json:"perplexity"`
}

// maxUnits is that of Bound where it says nothing.
const maxUnits = 64

// unit is a set of weights that have one type: one after the other in the graphs.
type unit struct {
	weights []prepare.Weight
	bytes   int64
	harm    float64 // what it alone does to the divergence where it has the cheapest type, for each byte that this saves
}

// chooser is the choice of types.
type chooser struct {
	*measure
	bound   float64
	usual   prepare.Weights
	units   []*unit
	last    map[prepare.Weight]bool
	numbers map[prepare.Weight][sha256.Size]byte
	o       Options
	counts  int
}

// FolderWithin is Folder with a type for each weight of the graphs of a model that generates: the one that was asked
// for where the bound allows that, else eight bits, else float32. What each set of weights alone does to the
// distributions of the next token is measured first, over a few tokens; those that harm most for the bytes that they
// save are then spared, as few of them as the bound needs. Other graphs of the folder follow by the weights' numbers.
// A model of which no choice is within the bound is an error.
func FolderWithin(ctx context.Context, folder, to string, o Options, m MeasureOptions, b Bound) (*Report, error) {
	if err := vacant(filepath.Clean(to)); err != nil { // before hours of work
		return nil, err
	}
	files, err := modeldir.Find(folder)
	if err != nil {
		return nil, err
	}
	s := &chooser{bound: b.KL, usual: o.Weights, o: o, last: map[prepare.Weight]bool{}}
	if err := s.find(ctx, files, cmp.Or(b.Units, maxUnits)); err != nil {
		return nil, err
	}
	o.step("measuring the model as exported")
	if s.measure, err = newMeasure(ctx, folder, m, b); err != nil {
		return nil, err
	}
	chosen, types, err := s.choose(ctx, files)
	if err != nil {
		return nil, err
	}
	r, err := Folder(ctx, folder, to, s.as(types))
	if err != nil {
		return nil, err
	}
	r.Chosen = chosen
	return r, nil
}

// as are the options of a folder whose weights have some types.
func (s *chooser) as(types map[prepare.Weight]prepare.WeightType) Options {
	byNumbers := map[[sha256.Size]byte]prepare.WeightType{}
	for w, t := range types {
		byNumbers[s.numbers[w]] = t
	}
	o := s.o
	o.of = func(sum [sha256.Size]byte, usual prepare.WeightType) prepare.WeightType {
		if t, ok := byNumbers[sum]; ok {
			return t
		}
		return usual
	}
	return o
}

// find looks for the weights of the graphs that generate, in the order in which they lie there, in units, and hashes
// their numbers.
func (s *chooser) find(ctx context.Context, files *modeldir.Files, units int) error {
	s.numbers = map[prepare.Weight][sha256.Size]byte{}
	numbers := s.numbers
	seen := map[[sha256.Size]byte]bool{}
	var list []*unit
	for _, path := range []string{files.Encoder, files.First, files.Decoder} {
		if path == "" {
			continue
		}
		x, err := read(path, filepath.Base(path), s.o)
		if err != nil {
			return err
		}
		defer x.close()
		for _, m := range x.chosen {
			if err := ctx.Err(); err != nil {
				return err
			}
			w := prepare.Weight{File: x.file, Name: m.value.Name}
			sum, err := x.sum(m)
			if err != nil {
				return modelError(path, err)
			}
			if _, twice := numbers[w]; twice {
				continue
			}
			numbers[w] = sum
			s.last[w] = m.last
			if i := slices.IndexFunc(list, func(u *unit) bool { return numbers[u.weights[0]] == sum }); seen[sum] && i >= 0 {
				list[i].weights = append(list[i].weights, w) // the same weight, in another file
				continue
			}
			seen[sum] = true
			list = append(list, &unit{weights: []prepare.Weight{w}, bytes: m.float32Bytes()})
		}
	}
	if len(list) == 0 {
		return &diagnostic.Error{Path: files.Decoder, Found: "found no weights that could be quantised",
			Needed: "MatMul or Gemm with constant weights of float32", Fix: "quantise the model as it was exported, in float32"}
	}
	each := (len(list) + units - 1) / units
	for part := range slices.Chunk(list, each) {
		u := &unit{}
		for _, one := range part {
			u.weights, u.bytes = append(u.weights, one.weights...), u.bytes+one.bytes
		}
		s.units = append(s.units, u)
	}
	return nil
}

// sum is a hash of a weight's shape and numbers.
func (x *export) sum(m *matrix) (sum [sha256.Size]byte, err error) {
	data, err := x.dataOf(m)
	if err != nil {
		return sum, err
	}
	h := sha256.New()
	for _, d := range m.value.Tensor.Dims {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(d)))
	}
	h.Write(data)
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// dearer is the type one dearer than another.
func dearer(t prepare.WeightType) prepare.WeightType {
	if t == prepare.Int4Weights {
		return prepare.Int8Weights
	}
	return prepare.Float32Weights
}

// types are those where the first n units have the type one dearer than the others, which are `steps` dearer than
// what was asked for.
func (s *chooser) types(steps, n int) map[prepare.Weight]prepare.WeightType {
	out := map[prepare.Weight]prepare.WeightType{}
	for i, u := range s.units {
		for _, w := range u.weights {
			t := s.usual.Of(s.last[w])
			for range steps {
				t = dearer(t)
			}
			if i < n {
				t = dearer(t)
			}
			out[w] = t
		}
	}
	return out
}

// harm measures what each unit alone does, and puts those that harm most first.
func (s *chooser) harm(ctx context.Context, files *modeldir.Files) error {
	by, _, err := plugin.Provider(s.o.Plugins, capability.PackPanels, nil)
	if err != nil {
		return err
	}
	p, err := newProbe(ctx, s.options.Library, by, files.Encoder, cmp.Or(files.First, files.Decoder), s.parts, s.vocab,
		s.o)
	switch {
	case err == nil:
		defer p.close()
	case !errors.Is(err, errOther):
		return err
	}
	for i, u := range s.units {
		s.o.step(fmt.Sprintf("measuring layers, %d of %d", i+1, len(s.units)))
		var kl float64
		if p != nil && p.covers(u, s.numbers) {
			kl, err = p.of(ctx, s.sums(u))
		} else {
			kl, err = s.alone(ctx, u)
		}
		if err != nil {
			return err
		}
		s.counts++
		u.harm = kl / float64(u.bytes)
	}
	slices.SortStableFunc(s.units, func(a, b *unit) int {
		switch {
		case a.harm > b.harm:
			return -1
		case a.harm < b.harm:
			return 1
		}
		return 0
	})
	return nil
}

// sums are hashes of a unit's numbers, each once.
func (s *chooser) sums(u *unit) (list [][sha256.Size]byte) {
	for _, w := range u.weights {
		if !slices.Contains(list, s.numbers[w]) {
			list = append(list, s.numbers[w])
		}
	}
	return list
}

// alone is what a unit alone does to an engine: of models of which no text can be read at once.
func (s *chooser) alone(ctx context.Context, u *unit) (float64, error) {
	types := map[prepare.Weight]prepare.WeightType{}
	for _, other := range s.units {
		for _, w := range other.weights {
			if types[w] = prepare.Float32Weights; other == u {
				types[w] = s.usual.Of(s.last[w])
			}
		}
	}
	d, _, err := s.of(ctx, s.folder, s.single(types))
	if err != nil {
		return 0, err
	}
	return d.KLMean, nil
}

// single are weights that have a type each.
func (s *chooser) single(types map[prepare.Weight]prepare.WeightType) prepare.Weights {
	w := s.usual
	w.Layers, w.Logits, w.Single = prepare.Float32Weights, prepare.Float32Weights, types
	return w
}

// attempt is a choice, and what it reaches.
type attempt struct {
	types      map[prepare.Weight]prepare.WeightType
	reached    *divergence.Divergence
	perplexity [2]float64
}

// try measures a choice. Calibrated, the integers are those of a folder that is written for it, since an engine makes
// others.
func (s *chooser) try(ctx context.Context, types map[prepare.Weight]prepare.WeightType) (*attempt, error) {
	folder, w := s.folder, s.single(types)
	if s.o.important != nil {
		temporary, err := storage.Temporary("")
		if err != nil {
			return nil, err
		}
		defer func() { _ = temporary.Remove() }() // the next run does it
		folder, w = filepath.Join(temporary.Path, "model"), prepare.Weights{}
		o := s.as(types)
		o.Step, o.Progress = nil, nil
		if _, err := Folder(ctx, s.folder, folder, o); err != nil {
			return nil, err
		}
	}
	d, perplexity, err := s.of(ctx, folder, w)
	if err != nil {
		return nil, err
	}
	s.counts++
	return &attempt{types, d, perplexity}, nil
}

// choose finds types within the bound.
func (s *chooser) choose(ctx context.Context, files *modeldir.Files) (*Chosen, map[prepare.Weight]prepare.WeightType,
	error) {
	s.o.step("measuring all layers as " + string(s.usual.Of(false)))
	best, err := s.try(ctx, s.types(0, 0))
	if err != nil {
		return nil, nil, err
	}
	cheapest := best.reached.KLMean
	if cheapest > s.bound {
		if err := s.harm(ctx, files); err != nil {
			return nil, nil, err
		}
		if best, err = s.spare(ctx); err != nil {
			return nil, nil, err
		}
	}
	return &Chosen{Bound: s.bound, Reached: best.reached, Cheapest: cheapest, Measured: s.counts,
		Perplexity: best.perplexity}, best.types, nil
}

// spare finds the fewest units, in their order, that have to have a dearer type.
func (s *chooser) spare(ctx context.Context) (*attempt, error) {
	for steps := range 2 {
		all := s.types(steps, len(s.units))
		if !(prepare.Weights{Single: all}).Integers() { // float32 is what the bound is measured from
			return s.fewest(ctx, steps, nil)
		}
		s.o.step("measuring all layers in a dearer type")
		a, err := s.try(ctx, all)
		if err != nil {
			return nil, err
		}
		if a.reached.KLMean <= s.bound {
			return s.fewest(ctx, steps, a)
		}
	}
	return nil, fmt.Errorf("no types of weights are within the bound: this is a bug")
}

// fewest halves the number of units that are dearer. all is the choice where each is; nil where nothing of it would
// be quantised.
func (s *chooser) fewest(ctx context.Context, steps int, all *attempt) (*attempt, error) {
	low, high, best := 0, len(s.units), all // low is out of the bound, high within
	for high-low > 1 {
		n := (low + high) / 2
		s.o.step(fmt.Sprintf("choosing, %d of %d sets of layers spared", n, len(s.units)))
		a, err := s.try(ctx, s.types(steps, n))
		if err != nil {
			return nil, err
		}
		if a.reached.KLMean <= s.bound {
			high, best = n, a
		} else {
			low = n
		}
	}
	if best == nil {
		return nil, &diagnostic.Error{Path: s.folder,
			Found:  fmt.Sprintf("no choice of types is within a mean divergence of %g but that of float32 alone", s.bound),
			Needed: "a bound that some quantised weights hold", Fix: "raise the bound, --max-kl"}
	}
	return best, nil
}
