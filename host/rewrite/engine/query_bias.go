package engine

import (
	"errors"
	"fmt"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
)

// queryBias is a term of a block's scores that each query makes for itself: it has a number for each bucket of
// distances, (B, H, S, buckets), of which a key gets that of its distance. ProphetNet has one (Qi et al. 2020, with
// the buckets of T5).
type queryBias struct {
	numbers *graph.Value // (B, H, S, buckets), made of the query's token
	buckets *graph.Value // (B, H, S, T), of lengths alone
	count   int64
	factor  float64
}

// queryBiasOf reads a term as one of its query's own: elements gathered by what lengths alone say from what a token
// says. It is nil for other terms.
func (d *Decoder) queryBiasOf(b blocks.Bias) *queryBias {
	n := b.Value.Producer
	if n == nil || !n.Is("GatherElements") || b.Joined || b.Windows || b.Later {
		return nil
	}
	q, known := d.own[b.Value]
	if !known {
		if q = d.readQueryBias(n); q != nil {
			q.factor = b.Factor
		}
		if d.own == nil {
			d.own = map[*graph.Value]*queryBias{}
		}
		d.own[b.Value] = q
	}
	return q
}

func (d *Decoder) readQueryBias(n *graph.Node) *queryBias {
	numbers, buckets := n.Input(0), n.Input(1)
	of := d.Shapes.Of(numbers)
	if axis := n.Int("axis", 0); of.Rank != 4 || axis != -1 && axis != 3 {
		return nil
	}
	count, known := of.Dim(3).Const()
	content := d.content()
	if !known || d.made(numbers, content, map[*graph.Value]bool{}) == nil ||
		d.made(buckets, content, map[*graph.Value]bool{}) != nil {
		return nil
	}
	return &queryBias{numbers: numbers, buckets: buckets, count: count}
}

// content are the inputs whose content lengths do not tell, tokens among them.
func (d *Decoder) content() map[*graph.Value]bool {
	list := d.data()
	r := roles.Find(d.Graph, d.Shapes, d.Report)
	for _, v := range d.Graph.Inputs {
		if r.Of(v) == roles.Tokens {
			list[v] = v.Tensor == nil
		}
	}
	return list
}

// hiding are the values that say what a block's queries see and what is added to scores, of a query's own biases the
// buckets.
func (d *Decoder) hiding(b *blocks.Block) (list []*graph.Value) {
	for _, term := range b.Wiring.Biases {
		v := term.Value
		if q := d.queryBiasOf(term); q != nil {
			v = q.buckets
		}
		list = append(list, v)
	}
	if v := b.Wiring.BoolMask; v != nil {
		list = append(list, v)
	}
	return list
}

// queryBiasOfBlock is the one term of a block that its queries make for themselves, or nil.
func (d *Decoder) queryBiasOfBlock(b *blocks.Block) *queryBias {
	for _, term := range b.Wiring.Biases {
		if q := d.queryBiasOf(term); q != nil {
			return q
		}
	}
	return nil
}

// buckets are the buckets of a block's distances, as its masks are evaluated.
type buckets struct {
	by    []int64 // distance
	count int64
}

// read notes the bucket of a distance, or checks that it is the one that was noted.
func (k *buckets) read(m *mask, h, i, j, distance int64) error {
	if m.own == nil {
		return nil
	}
	x := int64(m.own.at(h, i, j))
	switch {
	case x < 0 || x >= k.count:
		return fmt.Errorf("its queries have numbers for %d distances, and distance %d is to take number %d", k.count,
			distance, x)
	case distance == int64(len(k.by)):
		k.by = append(k.by, x)
	case k.by[distance] != x:
		return fmt.Errorf("at distance %d one query takes its number %d, and another its number %d: that is no function "+
			"of the distance", distance, k.by[distance], x)
	}
	return nil
}

// shortened are the buckets without those at the end that the one before them stands for.
func (k *buckets) shortened() []int64 {
	n := len(k.by)
	for n > 1 && k.by[n-1] == k.by[n-2] {
		n--
	}
	return k.by[:n]
}

// ownBias is what each row adds to its scores, (rows, heads, distances): of its numbers that of each distance.
func (s *builder) ownBias(q *queryBias, by []int64, heads int64) (*graph.Value, error) {
	if len(by) == 0 {
		return nil, errors.New("its queries add numbers of their own to scores that they do not see")
	}
	distances := int64(len(by))
	v := s.Current(q.numbers)
	for _, step := range []struct {
		op         string
		in         *graph.Value
		attributes []any
	}{
		{"Gather", s.Graph.AddInitializer(graph.Int64Tensor("", []int64{distances}, by...)), []any{"axis", int64(3)}},
		{"Reshape", s.Graph.AddInitializer(graph.Int64Tensor("", []int64{3}, -1, heads, distances)), nil},
		{"Mul", s.Graph.AddInitializer(graph.FloatTensor("", nil, float32(q.factor))), nil},
	} {
		if step.op == "Mul" && q.factor == 1 {
			continue
		}
		n, err := s.AddNode(s.Graph, "", step.op, []*graph.Value{v, step.in}, []string{s.Graph.FreshName("graft_query_bias")},
			step.attributes...)
		if err != nil {
			return nil, err
		}
		v = n.Out[0]
	}
	return v, nil
}
