package manifest

import "slices"

// Emits lists the operators of graft's domain that stand in a model where this one replaces something.
func (op *Operator) Emits() []string {
	if op.With == nil {
		return []string{op.Name}
	}
	var names []string
	for _, w := range op.With {
		for _, n := range w.Nodes {
			if n.Domain == Domain && !slices.Contains(names, n.Op) {
				names = append(names, n.Op)
			}
		}
	}
	return names
}

// Emits lists the operators of graft's domain that replacements put into models.
func (m *Manifest) Emits() []string {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for i := range m.Operators {
		for _, name := range m.Operators[i].Emits() {
			add(name)
		}
	}
	return names
}

// Folds reports an operator one of whose replacements has constants that the plugin computes.
func (op *Operator) Folds() bool {
	return slices.ContainsFunc(op.With, func(w With) bool { return len(w.Fold) > 0 })
}
