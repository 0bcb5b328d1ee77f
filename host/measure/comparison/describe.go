package comparison

import "strings"

// What the names of sides stand for that are no plugins, of a model and of whole generations.
var (
	OfModel = Meanings{None: "ONNX Runtime as it is, without graft",
		Auto: "what graft chooses of the plugins it finds"}
	OfGenerations = Meanings{None: "the model as exported, in ONNX Runtime without graft",
		Auto: "graft's engine, with what it chooses of the plugins it finds"}
)

// Meanings are those of two names.
type Meanings struct{ None, Auto string }

// Describe says in words what runs in a side: what its name means, and which plugins in which versions.
func (m Meanings) Describe(name string, plugins, versions []string) string {
	var with []string
	for i, p := range plugins {
		if i < len(versions) && versions[i] != "" {
			p += " " + versions[i]
		}
		with = append(with, p)
	}
	what := ""
	switch name {
	case "none":
		return "none is " + m.None
	case "auto":
		what = m.Auto
	}
	if len(with) == 0 {
		with = []string{"no plugin"}
	}
	if what == "" {
		return name + " runs " + strings.Join(with, ", ")
	}
	return name + " is " + what + ": " + strings.Join(with, ", ")
}
