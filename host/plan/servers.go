package plan

import (
	"slices"
	"strings"

	"github.com/opgraft/graft/host/plugin"
)

// Server is an operator that attends over what is kept, and its plugin.
type Server struct {
	Plugin   string `json:"plugin"`
	Operator string `json:"operator"`
}

// Servers say which operator serves each way of keeping. The zero value is graft's own.
type Servers [keeps]Server

// Of is the operator of a way of keeping.
func (s *Servers) Of(k Keep) Server {
	if k == KeepFirstKeys && s[KeepInputs] != (Server{}) {
		return s[KeepInputs] // which its layers are, but for the first
	}
	if s[k] != (Server{}) {
		return s[k]
	}
	return Server{k.Plugin(), k.Operator()}
}

// Among are the operators that run with the plugins of these manifests: where graft's own
// plugin is not among them, the first of another that keeps the same.
func (s Servers) Among(manifests []*plugin.Manifest) Servers {
	for k := KeepKeysAndValues; k < keeps; k++ {
		if s[k] != (Server{}) || slices.ContainsFunc(manifests, func(m *plugin.Manifest) bool { return m.Name == k.Plugin() }) {
			continue
		}
		for _, m := range manifests {
			i := slices.IndexFunc(m.Operators, func(op plugin.Operator) bool { return op.Keeps != "" && keepWords[op.Keeps] == k })
			if i >= 0 {
				s[k] = Server{m.Name, m.Operators[i].Name}
				break
			}
		}
	}
	return s
}

// Others names the plugins that are not graft's own, with dashes between; "" for none.
func (s Servers) Others() string {
	var names []string
	for _, x := range s {
		if x.Plugin != "" && !slices.Contains(names, x.Plugin) && !slices.ContainsFunc(Keeps(), func(k Keep) bool { return k.Plugin() == x.Plugin }) {
			names = append(names, x.Plugin)
		}
	}
	return strings.Join(names, "-")
}

// Plugins are those of all operators.
func (s *Servers) Plugins() (names []string) {
	for _, k := range Keeps() {
		if name := s.Of(k).Plugin; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// keepWords are the words of plugin.Kept.
var keepWords = map[string]Keep{"keys-and-values": KeepKeysAndValues, "latent": KeepLatent, "keys": KeepKeys, "inputs": KeepInputs}

// Take lets a plugin's operators serve what they say they keep, and returns what that
// is, in the order of its manifest.
func (s *Servers) Take(m *plugin.Manifest) (list []Keep) {
	for _, op := range m.Operators {
		if k, ok := keepWords[op.Keeps]; ok {
			s[k] = Server{m.Name, op.Name}
			list = append(list, k)
		}
	}
	return list
}
