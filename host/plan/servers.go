package plan

import (
	"github.com/opgraft/graft/host/plugin"
)

// Server is an operator that attends over what is kept, and its plugin.
type Server struct{ Plugin, Operator string }

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
