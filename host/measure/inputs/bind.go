package inputs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
)

// binder gives the lengths of a model's inputs numbers.
type binder struct {
	graph  *graph.Graph
	shapes *graph.Shapes
	roles  *roles.Roles
	kind   Kind
	at     map[string]int64 // by symbol
}

// bind gives every length of a model's inputs a number: what was asked for, what
// the given arrays have, what its operators need, or the default of its kind.
func bind(g *graph.Graph, shapes *graph.Shapes, r *roles.Roles, kind Kind, given map[string]array,
	o Options) (map[string]int64, error) {
	b := &binder{graph: g, shapes: shapes, roles: r, kind: kind, at: map[string]int64{}}
	if err := b.asked(o); err != nil {
		return nil, err
	}
	for _, in := range g.Inputs {
		if a, ok := given[in.Name]; ok {
			for i, d := range shapes.Of(in).Dims {
				if i < len(a.shape) {
					solve(d, a.shape[i], b.at)
				}
			}
		}
	}
	b.needs()
	b.rest(o)
	return b.at, nil
}

// asked sets what the caller asks for: axes first, which can be said of any, then
// names.
func (b *binder) asked(o Options) error {
	named := map[string]int64{}
	axes := map[string]int64{}
	names := b.names()
	for _, name := range slices.Sorted(maps.Keys(o.Dims)) {
		n := o.Dims[name]
		in, axis := b.axis(name)
		if in == nil {
			full, err := resolve(names, name)
			switch {
			case err != nil && o.LooseDims:
				continue
			case err != nil:
				return err
			}
			if before, ok := named[full]; ok && before != n {
				return fmt.Errorf("length %s is asked to be both %d and %d", full, before, n)
			}
			named[full] = n
		}
		if n < 0 {
			return fmt.Errorf("length %s is %d, needs zero or more", name, n)
		}
		if in == nil {
			continue
		}
		d := b.shapes.Of(in).Dims[axis]
		if solve(d, n, axes); !evaluates(d, axes, n) {
			return fmt.Errorf("length %s is %s, which cannot be %d beside what else is asked for", name, d, n)
		}
	}
	maps.Copy(b.at, axes)
	for _, name := range slices.Sorted(maps.Keys(named)) {
		for _, d := range b.called(name) {
			solve(d, named[name], b.at)
		}
	}
	// What a model calls a sum of lengths is that where nothing else says it.
	for _, in := range b.graph.Inputs {
		for i, claim := range in.Claims() {
			if n, ok := claim.Eval(named); ok && len(claim.Symbols()) > 1 {
				solve(b.shapes.Of(in).Dim(i), n, b.at)
			}
		}
	}
	return nil
}

func evaluates(d graph.Dim, at map[string]int64, n int64) bool {
	x, ok := d.Eval(at)
	return ok && x == n
}

// axis reads INPUT.AXIS; nil where there is no such axis.
func (b *binder) axis(name string) (in *graph.Value, axis int) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return nil, 0
	}
	axis, err := strconv.Atoi(name[i+1:])
	if err != nil {
		return nil, 0
	}
	for _, v := range b.graph.Inputs {
		if v.Name == name[:i] && axis >= 0 && axis < len(b.shapes.Of(v).Dims) {
			return v, axis
		}
	}
	return nil, 0
}

// names lists what the model calls the lengths of its inputs.
func (b *binder) names() []string {
	var names []string
	for _, in := range b.graph.Inputs {
		for i, d := range b.shapes.Of(in).Dims {
			var list []string
			if claims := in.Claims(); i < len(claims) && claims[i].Known() {
				list = claims[i].Symbols()
			} else if _, ok := d.Const(); !ok {
				list = []string{fmt.Sprintf("%s.%d", in.Name, i)}
			}
			for _, s := range list {
				if !slices.Contains(names, s) {
					names = append(names, s)
				}
			}
		}
	}
	return names
}

// called are the lengths that the model calls by a name. Of axes that count
// different things under one name, those that count what it says are meant.
func (b *binder) called(name string) []graph.Dim {
	var all, meant []graph.Dim
	means := roles.Named(name)
	if means == roles.Unknown {
		means = roles.New
	}
	for _, in := range b.graph.Inputs {
		claims := in.Claims()
		for i, d := range b.shapes.Of(in).Dims {
			if d.Equal(graph.DimSym(name)) || i < len(claims) && claims[i].Equal(graph.DimSym(name)) {
				all = append(all, d)
				if b.roles.Axis(in, i).Length == means {
					meant = append(meant, d)
				}
			}
		}
	}
	if len(meant) > 0 {
		return meant
	}
	if len(all) == 0 {
		all = append(all, graph.DimSym(name)) // a part of sums only
	}
	return all
}

// known are the lengths that the inputs have as far as they have any.
func (b *binder) known() map[roles.Length]int64 {
	list := map[roles.Length]int64{}
	for _, in := range b.graph.Inputs {
		for i, d := range b.shapes.Of(in).Dims {
			l := b.roles.Axis(in, i).Length
			if n, ok := d.Eval(b.at); ok && len(d.Symbols()) > 0 && l != roles.Unknown {
				if _, twice := list[l]; !twice {
					list[l] = n
				}
			}
		}
	}
	return list
}

// rest gives numbers to what is left.
func (b *binder) rest(o Options) {
	lengths := b.kind.defaults(b.roles.Positions)
	maps.Copy(lengths, o.Lengths)
	// What is known of a length counts for all inputs that have it.
	known := b.known()
	maps.Copy(lengths, known)
	_, past := known[roles.Cached]
	_, tokens := known[roles.New]
	if most := b.roles.Positions; most > 0 && b.kind == DecoderWithPast && !o.NoCache {
		switch {
		case !past:
			lengths[roles.Cached] = max(min(lengths[roles.Cached], most-lengths[roles.New]), 0)
		case !tokens:
			lengths[roles.New] = max(min(lengths[roles.New], most-lengths[roles.Cached]), 1)
		}
	}
	all, ok := known[roles.All]
	switch {
	case o.NoCache:
		lengths[roles.All] = lengths[roles.New]
	case !ok:
		lengths[roles.All] = lengths[roles.Cached] + lengths[roles.New]
	case !past && all >= lengths[roles.New]:
		lengths[roles.Cached] = all - lengths[roles.New]
	}
	for _, sums := range []bool{false, true} {
		for _, in := range b.graph.Inputs {
			for i, d := range b.shapes.Of(in).Dims {
				axis := b.roles.Axis(in, i)
				n, ok := lengths[axis.Length]
				if axis.Fixed > 0 {
					n, ok = axis.Fixed, true
				}
				if ok && sums == (axis.Length == roles.All || len(d.Symbols()) > 1) {
					solve(d, n, b.at)
				}
			}
		}
	}
	named := func(name string) int64 {
		if l := roles.Named(name); l != roles.Unknown {
			return lengths[l]
		}
		return lengths[roles.New]
	}
	for _, in := range b.graph.Inputs {
		dims := b.shapes.Of(in).Dims
		for i, d := range dims {
			for _, s := range d.Symbols() {
				if _, ok := b.at[s]; ok {
					continue
				}
				if i == 0 && rows(dims, b.shapes.Claimed(graph.DimSym(s))) {
					b.at[s] = lengths[roles.Batch]
					continue
				}
				// Its name may be a sum of names.
				claim, sum := b.shapes.Claimed(graph.DimSym(s)), map[string]int64{}
				for _, name := range claim.Symbols() {
					sum[name] = named(name)
				}
				n, ok := claim.Eval(sum)
				switch {
				case ok && n >= 0:
					b.at[s] = n
				case !claim.Known():
					b.at[s] = lengths[roles.New]
				}
			}
		}
	}
}

// rows reports an input whose first axis counts rows of one size, and is called by a name of its own, whatever that is.
func rows(dims []graph.Dim, claim graph.Dim) bool {
	list := claim.Symbols()
	fixed := !slices.ContainsFunc(dims[1:], func(d graph.Dim) bool { _, ok := d.Const(); return !ok })
	return len(dims) > 1 && fixed && (!claim.Known() || len(list) == 1 && claim.Equal(graph.DimSym(list[0])))
}

// solve finds the one length that d lacks from what d is to be; it leaves alone
// what it cannot find.
func solve(d graph.Dim, n int64, at map[string]int64) {
	missing := ""
	for _, s := range d.Symbols() {
		if _, ok := at[s]; ok {
			continue
		}
		if missing != "" {
			return
		}
		missing = s
	}
	if missing == "" {
		return
	}
	var y [3]int64 // d with the length at 0, 1, 2: on a line, or not found
	for x := range y {
		at[missing] = int64(x)
		v, ok := d.Eval(at)
		if !ok {
			delete(at, missing)
			return
		}
		y[x] = v
	}
	delete(at, missing)
	if slope := y[1] - y[0]; slope != 0 && y[2]-y[1] == slope && (n-y[0])%slope == 0 && (n-y[0])/slope >= 0 {
		at[missing] = (n - y[0]) / slope
	}
}

// resolve finds the length that a name means: itself, or the only one that
// begins with it ("batch" for batch_size).
func resolve(symbols []string, name string) (string, error) {
	if slices.Contains(symbols, name) {
		return name, nil
	}
	var like []string
	for _, s := range symbols {
		if strings.HasPrefix(s, name) {
			like = append(like, s)
		}
	}
	if len(like) == 1 {
		return like[0], nil
	}
	switch {
	case len(like) > 1:
		return "", fmt.Errorf("length %q may be %s; write more of it", name, strings.Join(like, " or "))
	case len(symbols) == 0:
		return "", fmt.Errorf("no length is called %q, all lengths of the inputs are fixed", name)
	}
	return "", fmt.Errorf("no length is called %q, the inputs have %s", name, strings.Join(symbols, ", "))
}
