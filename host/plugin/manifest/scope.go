package manifest

import (
	"maps"
	"slices"
	"strings"
)

// definedAs says what gives a value of a pattern or of a replacement its meaning.
type definedAs struct {
	what string // an input, a constant, an output of node 3
	line int
}

// scope is the set of values that nodes may use.
type scope struct {
	r      *reader
	what   string
	values map[string]definedAs
	used   map[string]bool
}

func newScope(r *reader, what string) *scope {
	return &scope{r: r, what: what, values: map[string]definedAs{}, used: map[string]bool{}}
}

func (s *scope) define(name, as string, line int) {
	if name == "" {
		return
	}
	if first, dup := s.values[name]; dup {
		s.r.fail(line, "%s: value %s is %s, but already %s on line %d; rename one", s.what, name, as, first.what, first.line)
		return
	}
	s.values[name] = definedAs{as, line}
}

// node is what checking a graph needs of a pattern's or a replacement's node.
type node struct {
	op      string
	in, out []string
	line    int
}

// sort checks that every input is defined and orders the nodes topologically, else by the file.
func (s *scope) sort(nodes []node) (order []int, ok bool) {
	before := len(s.r.problems)
	maker := map[string]int{}
	for i, n := range nodes {
		for _, name := range n.out {
			if name != "" {
				maker[name] = i
			}
		}
	}
	waits := make([]int, len(nodes))
	users := make([][]int, len(nodes))
	for i, n := range nodes {
		for _, name := range n.in {
			if name == "" {
				continue
			}
			if _, defined := s.values[name]; !defined {
				s.r.fail(n.line, "%s: node %s uses %s, which is no input, constant or output of a node%s; define it",
					s.what, n.op, name, suggestion(name, s.known()))
				continue
			}
			s.used[name] = true
			if from, made := maker[name]; made {
				waits[i]++
				users[from] = append(users[from], i)
			}
		}
	}
	if len(s.r.problems) > before {
		return nil, false
	}
	placed := make([]bool, len(nodes))
	for len(order) < len(nodes) {
		next := -1
		for i := range nodes {
			if !placed[i] && waits[i] == 0 {
				next = i
				break
			}
		}
		if next < 0 {
			for i := range nodes {
				if !placed[i] {
					s.r.fail(nodes[i].line, "%s: node %s depends on its own output; break the cycle", s.what, nodes[i].op)
					break
				}
			}
			return nil, false
		}
		placed[next] = true
		order = append(order, next)
		for _, u := range users[next] {
			waits[u]--
		}
	}
	return order, true
}

// known lists the defined values, for suggestions.
func (s *scope) known() []string {
	names := make([]string, 0, len(s.values))
	for name := range s.values {
		if !strings.Contains(name, "#") { // the sign of repetitions, which no file has
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// outputs checks that each output comes from a node and counts it as used.
func (s *scope) outputs(names []string, line int, nodes []node) {
	for _, name := range names {
		made := slices.ContainsFunc(nodes, func(n node) bool { return slices.Contains(n.out, name) })
		if !made {
			s.r.fail(line, "%s: output %s is made by no node%s; let a node have it as an output", s.what, name,
				suggestion(name, s.known()))
		}
		s.used[name] = true
	}
}

// allUsed reports values that nothing uses: a pattern with one could match at any of several places.
func (s *scope) allUsed(what, noun string) {
	for _, name := range slices.Sorted(maps.Keys(s.values)) {
		if !s.used[name] {
			d := s.values[name]
			s.r.fail(d.line, "%s: %s %s is %s but nothing uses it; remove it or make it an output", what, noun, name, d.what)
		}
	}
}

// connected reports whether values other than constants hold the nodes together.
func (s *scope) connected(nodes []node) bool {
	if len(nodes) == 0 {
		return true
	}
	reached := map[int]bool{0: true}
	for queue := []int{0}; len(queue) > 0; {
		n := nodes[queue[0]]
		queue = queue[1:]
		for i, other := range nodes {
			if !reached[i] && s.share(n, other) {
				reached[i] = true
				queue = append(queue, i)
			}
		}
	}
	return len(reached) == len(nodes)
}

func (s *scope) share(a, b node) bool {
	for _, x := range slices.Concat(a.in, a.out) {
		if x != "" && s.values[x].what != "a constant" && (slices.Contains(b.in, x) || slices.Contains(b.out, x)) {
			return true
		}
	}
	return false
}
