package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/host/session/fold"
)

// Names of what the operators of linear layers have for integers: of the one that lays weights out its attributes,
// and of the one that multiplies an input and an attribute.
const (
	typeAttribute        = "type"
	groupAttribute       = "group"
	asymmetricAttribute  = "asymmetric"
	scaleInput           = "weight_scale"
	zeroInput            = "weight_zero_point"
	activationsAttribute = "activations"
)

// quantizable is a weight that is to be stored in fewer bits.
type quantizable struct {
	*matrix
	as         prepare.WeightType
	attributes []manifest.Attribute
	asymmetric bool
	packed     *tensor.Tensor // integers or bfloat16, in the plugin's layout
	scales     *tensor.Tensor // of integers; nil for bfloat16
	zeros      *tensor.Tensor // zero points of integers; nil where these are symmetric
}

// quantize stores those of a graph's weights in fewer bits that are to be, and lets their linear layers read them. It
// gives back those that stay float32: because they are to, or because the plugin refuses their shape.
func (p *panels) quantize(of *prepare.Graph, list []*matrix, o Options) (plain []*matrix, err error) {
	by, lays, err := laysOut(of, o)
	if err != nil {
		return nil, err
	}
	at, err := quantizes(by, o.Weights)
	if err != nil {
		return nil, err
	}
	last := lastLinear(of.Graph, of.Logits)
	var chosen []*quantizable
	for _, w := range list {
		as := o.Weights.OfWeight(prepare.Weight{File: filepath.Base(of.Model.Path()), Name: w.value.Name},
			slices.Contains(w.nodes, last))
		if as == prepare.Float32Weights {
			plain = append(plain, w)
			continue
		}
		q := quantizableOf(w, as, o.Weights)
		if why := q.infer(by, lays); why != nil {
			p.refused[w.value] = fmt.Sprintf("refused by %s: %s", by.Manifest.Name, reasonOf(why))
			plain = append(plain, w)
			continue
		}
		chosen = append(chosen, q)
	}
	if len(chosen) == 0 {
		return plain, nil
	}
	groups := beside(chosen, func(q *quantizable) *matrix { return q.matrix },
		func(q *quantizable) string { return string(q.as) })
	if err := p.store(of.Model, by, lays, groups, o); err != nil {
		return nil, err
	}
	for _, group := range groups {
		if err := p.multiply(of, group, at, o); err != nil {
			return nil, err
		}
	}
	counts := map[prepare.WeightType]*LinearWeights{}
	for _, q := range chosen {
		if counts[q.as] == nil {
			counts[q.as] = &LinearWeights{Type: string(q.as)}
		}
		counts[q.as].add(q.matrix, q.size())
	}
	for _, c := range counts {
		p.counts = append(p.counts, *c)
	}
	slices.SortFunc(p.counts, func(a, b LinearWeights) int { return cmp.Compare(b.Float32Bytes, a.Float32Bytes) })
	return plain, nil
}

// quantizableOf is a weight of a type.
func quantizableOf(m *matrix, as prepare.WeightType, w prepare.Weights) *quantizable {
	return &quantizable{matrix: m, as: as, attributes: PanelAttributes(as, w), asymmetric: w.Asymmetric(as)}
}

// Quantizes is an error of a plugin that stores weights as float32 alone, or that has no zero points where weights
// are to have them.
func Quantizes(p *plugin.Plugin, w prepare.Weights) error {
	_, err := quantizes(p, w)
	return err
}

// integerInputs is where an operator that multiplies takes scales and zero points.
type integerInputs struct{ scale, zero int }

// quantizes says where a plugin's operator takes scales and, where weights are to have them, zero points; a plugin
// that knows float32 alone is an error.
func quantizes(p *plugin.Plugin, w prepare.Weights) (at integerInputs, err error) {
	operator := func(name string) *signature.Operator {
		return signature.Find(p.Info.Operators, p.Manifest.Providing(name).Name)
	}
	lays, multiplies := operator(capability.PackPanels), operator(capability.LinearPanels)
	input := func(name string) int {
		return slices.IndexFunc(multiplies.Inputs, func(in signature.Parameter) bool { return in.Name == name })
	}
	at = integerInputs{scale: input(scaleInput), zero: input(zeroInput)}
	found, needed := "", ""
	switch {
	case at.scale < 0 || !lays.Has(typeAttribute):
		found, needed = "whose operators take weights of float32 alone", "a version that stores weights as integers"
	case w.ZeroPoints == prepare.WithZeroPoints && (at.zero < 0 || !lays.Has(asymmetricAttribute)):
		found, needed = "whose integers have no zero points", "a version that stores zero points"
	default:
		return at, nil
	}
	return at, refusal.Incompatible(p.Path, fmt.Sprintf("%s %s, %s", p.Manifest.Name, p.Manifest.Version, found), needed,
		"install a newer "+p.Manifest.Name)
}

// PanelAttributes are those of the operator that lays weights of a type out in panels.
func PanelAttributes(as prepare.WeightType, w prepare.Weights) []manifest.Attribute {
	if as == prepare.BFloat16Weights {
		return []manifest.Attribute{{Name: typeAttribute, Value: "bfloat16"}}
	}
	list := []manifest.Attribute{{Name: typeAttribute, Value: string(as)}, {Name: groupAttribute, Value: w.GroupSize()}}
	if w.Asymmetric(as) {
		list = append(list, manifest.Attribute{Name: asymmetricAttribute, Value: int64(1)})
	}
	return list
}

// size is the bytes that the weight takes, scales included.
func (q *quantizable) size() (n int64) {
	for _, t := range q.tensors() {
		n += int64(len(t.Bytes()))
	}
	return n
}

// tensors are the packed weight and, of integers, its scales and zero points.
func (q *quantizable) tensors() []*tensor.Tensor {
	list := []*tensor.Tensor{q.packed}
	for _, t := range []*tensor.Tensor{q.scales, q.zeros} {
		if t != nil {
			list = append(list, t)
		}
	}
	return list
}

// infer asks the plugin for types and shapes.
func (q *quantizable) infer(p *plugin.Plugin, operator string) error {
	k, in, err := q.kernel(p, operator, q.attributes)
	if err != nil {
		return err
	}
	defer k.Destroy()
	wanted := []bool{true, q.as.Integers()}
	if q.asymmetric { // an older plugin knows no such output
		wanted = append(wanted, true)
	}
	out, err := k.Infer([]*tensor.Tensor{in}, wanted)
	if err != nil {
		return err
	}
	for i, to := range []**tensor.Tensor{&q.packed, &q.scales, &q.zeros}[:len(out)] {
		*to = out[i]
	}
	for _, t := range q.tensors() {
		if n, err := tensor.Elements(t.Shape); err != nil || n == 0 {
			return fmt.Errorf("its shape is %v", t.Shape)
		}
	}
	return nil
}

// reasonOf is an error without the path of the plugin.
func reasonOf(err error) string {
	if d, ok := err.(*diagnostic.Error); ok {
		return d.Found
	}
	return err.Error()
}

// tensorsOf are the tensors of weights that lie side by side: those of panels, of scales and of zero points, as far
// as there are any.
func tensorsOf(group []*quantizable) [][]*tensor.Tensor {
	lists := make([][]*tensor.Tensor, len(group[0].tensors()))
	for _, q := range group {
		for k, t := range q.tensors() {
			lists[k] = append(lists[k], t)
		}
	}
	return lists
}

// store quantises weights, or has them from the cache. Weights of float32 are read one at a time.
func (p *panels) store(from *model.Model, by *plugin.Plugin, lays string, groups [][]*quantizable,
	o Options) error {
	var weights []*matrix
	var tensors []fold.Tensor
	parts := []string{"panels", by.SHA256, lays}
	for i, group := range groups {
		for k, list := range tensorsOf(group) {
			tensors = append(tensors,
				fold.Tensor{Name: fmt.Sprint(i, []string{"", " scales", " zero points"}[k]), DType: list[0].DType,
					Shape: shapeBeside(list)})
		}
		parts = append(parts, strconv.Itoa(len(group)))
		for _, q := range group {
			weights = append(weights, q.matrix)
			parts = append(parts, string(q.as), strconv.FormatInt(o.Weights.GroupSize(), 10), strconv.FormatBool(q.transposed),
				strconv.FormatBool(q.asymmetric))
		}
	}
	size := int64(0)
	for _, t := range tensors {
		n, _ := tensor.Elements(t.Shape) // infer looked at it
		size += n * t.DType.Size()
	}
	if left := memory.Available(); left > 0 && size > left {
		return &diagnostic.Error{Kind: model.ErrTooLarge,
			Found:  fmt.Sprintf("quantised weights need more memory than there is: found %d bytes", size),
			Needed: fmt.Sprintf("at most %d", left), Fix: "use a machine with more memory"}
	}
	content, err := contentOf(from, weights, o.Quantized)
	if err != nil {
		return err
	}
	key := fold.KeyOf(append(parts, content)...)
	p.quantized, p.stored, err = o.Quantized.Tensors(key, tensors, func(to []fold.Tensor) error {
		buffer, err := readingBuffer(weights)
		if err != nil {
			return err
		}
		defer buffer.Close()
		for _, group := range groups {
			to = lie(group, to)
			for _, q := range group {
				if err := q.pack(from, by, lays, buffer.Bytes(), q.tensors(), q.attributes, o.Threads); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	rest := p.quantized.Tensors()
	for _, group := range groups {
		rest = lie(group, rest)
	}
	return nil
}

// lie has the tensors of weights that lie side by side lie where the first of a list do, and gives the others.
func lie(group []*quantizable, in []fold.Tensor) (rest []fold.Tensor) {
	for _, list := range tensorsOf(group) {
		lieIn(in[0].Data, list)
		in = in[1:]
	}
	return in
}

// contentOf is a hash of all numbers of some weights. Where it is known which bytes of which files they are, and
// these cannot have changed, it is read from the cache, and the weights are not.
func contentOf(from *model.Model, list []*matrix, cache *fold.Cache) (string, error) {
	lasting, parts := true, []string{"content"}
	for _, w := range list {
		origin, lasts, err := from.Origin(w.value.Tensor)
		if err != nil {
			return "", err
		}
		lasting = lasting && lasts
		parts = append(parts, origin, fmt.Sprint(w.value.Tensor.Dims))
	}
	hash := func(to []byte) error {
		buffer, err := readingBuffer(list)
		if err != nil {
			return err
		}
		defer buffer.Close()
		h := sha256.New()
		for _, w := range list {
			data, err := from.DataIn(w.value.Tensor, buffer.Bytes())
			if err != nil {
				return err
			}
			for _, d := range w.value.Tensor.Dims {
				h.Write(binary.LittleEndian.AppendUint64(nil, uint64(d)))
			}
			h.Write(data)
		}
		copy(to, h.Sum(nil))
		return nil
	}
	if !lasting {
		sum := make([]byte, sha256.Size)
		return string(sum), hash(sum)
	}
	known, _, err := cache.Tensors(fold.KeyOf(parts...),
		[]fold.Tensor{{Name: "sha256", DType: tensor.Uint8, Shape: []int64{sha256.Size}}},
		func(to []fold.Tensor) error { return hash(to[0].Data) })
	if err != nil {
		return "", err
	}
	defer known.Close()
	return string(known.Tensors()[0].Data), nil
}

// multiply lets the linear layers of weights that lie side by side multiply with what is stored.
func (p *panels) multiply(of *prepare.Graph, group []*quantizable, at integerInputs, o Options) error {
	var weights []*matrix
	for _, q := range group {
		weights = append(weights, q.matrix)
	}
	var operands []operand
	places := []operand{{at: weightOperand, name: "graft.panels."}, {at: at.scale, name: "graft.scales."},
		{at: at.zero, name: "graft.zeros."}}
	for i, list := range tensorsOf(group) {
		operands = append(operands, operand{places[i].at, places[i].name, list})
	}
	if !group[0].as.Integers() {
		return p.stand(of, o.Library, weights, operands)
	}
	return p.stand(of, o.Library, weights, operands, words(activationsAttribute, string(o.Weights.Multiplied())))
}

// lastLinear is the linear layer that makes an output, with what changes its elements one by one after it; nil for
// none.
func lastLinear(g *graph.Graph, output string) *graph.Node {
	list := prepare.LastLinear(g, output,
		func(n *graph.Node) bool { return n.Provides(capability.LinearPanels) })
	if len(list) != 1 {
		return nil
	}
	return list[0]
}
