package manifest

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/formula"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// MaxCaseElements bounds a tensor of a case.
const MaxCaseElements = 1 << 26

// maxCaseValues bounds a list of values in a case.
const maxCaseValues = 4096

// cases reads the conformance cases; m holds the operators read before.
func (r *reader) cases(n *yaml.Node, m *Manifest) []Case {
	var out []Case
	names := map[string]int{}
	for i, item := range r.list(n, "cases", maxCases) {
		what := fmt.Sprintf("cases[%d]", i)
		f := r.fields(item, what, "name", "operator", "attributes", "inputs", "outputs", "fold", "expect", "tolerance")
		if f == nil {
			continue
		}
		for _, key := range neededOfCase(f) {
			if f[key] == nil {
				r.fail(item.Line, "%s.%s is missing; add it", what, key)
			}
		}
		c := Case{
			Name:     r.required(f["name"], what+".name"),
			Operator: r.match(f["operator"], what+".operator", operatorPattern, "the name of an operator of this file"),
			line:     item.Line,
		}
		if first, dup := names[c.Name]; dup && c.Name != "" {
			r.fail(item.Line, "case %q stands twice (first on line %d); rename one", diagnostic.Clip(c.Name), first)
		}
		names[c.Name] = item.Line
		if _, ok := m.Operator(c.Operator); !ok && c.Operator != "" {
			r.fail(f["operator"].Line, "%s.operator is %s, which this manifest does not have%s", what,
				diagnostic.Clip(c.Operator),
				suggestion(c.Operator, operatorNames(m)))
		}
		if f["attributes"] != nil {
			c.Attributes = r.attributes(f["attributes"], what+".attributes", false)
		}
		if f["inputs"] != nil {
			c.Inputs = r.caseInputs(f["inputs"], what+".inputs", "float32", tensor.TypeNames)
		}
		if f["outputs"] != nil {
			c.Outputs = r.names(f["outputs"], what+".outputs", false)
		}
		if f["fold"] != nil {
			c.Fold = r.caseFold(f, what)
		}
		if f["expect"] != nil {
			c.Expect = r.expect(f["expect"], what+".expect", c.Fold != nil)
		}
		if f["tolerance"] != nil {
			c.Tolerance = r.tolerance(f["tolerance"], what+".tolerance")
		}
		out = append(out, c)
	}
	return out
}

func operatorNames(m *Manifest) []string {
	names := make([]string, len(m.Operators))
	for i, op := range m.Operators {
		names[i] = op.Name
	}
	return names
}

// neededOfCase are the fields that a case must have: one of a fold has no inputs, and no tolerance where
// it is refused.
func neededOfCase(f map[string]*yaml.Node) []string {
	switch {
	case f["fold"] == nil:
		return []string{"name", "operator", "inputs", "expect", "tolerance"}
	case f["expect"] != nil && refuses(f["expect"]):
		return []string{"name", "operator", "expect"}
	}
	return []string{"name", "operator", "expect", "tolerance"}
}

// refuses reports an expectation with the key refused, well formed or not.
func refuses(n *yaml.Node) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Kind == yaml.MappingNode && n.Content[i].Value == "refused" {
			return true
		}
	}
	return false
}

// caseFold reads the constants of a case's fold; f are the case's fields.
func (r *reader) caseFold(f map[string]*yaml.Node, what string) *CaseFold {
	for _, key := range []string{"inputs", "outputs"} {
		if f[key] != nil {
			r.fail(f[key].Line, "%s has both fold and %s; a fold has constants alone", what, key)
		}
	}
	fold := &CaseFold{}
	inner := r.fields(f["fold"], what+".fold", "constants")
	if inner == nil {
		return fold
	}
	if inner["constants"] == nil {
		r.fail(f["fold"].Line, "%s.fold.constants is missing; add it", what)
		return fold
	}
	fold.Constants = r.caseInputs(inner["constants"], what+".fold.constants", string(tensor.Float64),
		[]string{string(tensor.Float64), string(tensor.Int64)})
	return fold
}

// caseInputs reads tensors of the given types; usual stands where none is named.
func (r *reader) caseInputs(n *yaml.Node, what, usual string, types []string) []CaseInput {
	entries, _ := r.entries(n, what)
	if len(entries) > maxValues {
		r.fail(n.Line, "%s has %d entries, needed at most %d", what, len(entries), maxValues)
		return nil
	}
	var out []CaseInput
	for _, e := range entries {
		name := what + "." + diagnostic.Clip(e.key)
		if !valuePattern.MatchString(e.key) {
			r.fail(e.line, "%s: %q is not the name of an input", what, diagnostic.Clip(e.key))
			continue
		}
		f := r.fields(e.value, name, "dtype", "shape", "seed", "values", "min", "max", "packed", "constant")
		if f == nil {
			continue
		}
		in := CaseInput{Name: e.key, DType: usual}
		if f["dtype"] != nil {
			in.DType = r.oneOf(f["dtype"], name+".dtype", types...)
		}
		if f["shape"] == nil {
			r.fail(e.value.Line, "%s.shape is missing; add it ([] for a scalar)", name)
			continue
		}
		elements := int64(1)
		in.Shape = []int64{}
		for i, item := range r.list(f["shape"], name+".shape", abi.MaxRank) {
			size := r.integer(item, fmt.Sprintf("%s.shape[%d]", name, i), 0, MaxCaseElements)
			in.Shape = append(in.Shape, size)
			if elements *= size; elements > MaxCaseElements {
				r.fail(f["shape"].Line, "%s.shape has more than %d elements, needed a smaller case", name, MaxCaseElements)
				elements = 0
			}
		}
		in.Seed = uint64(r.integer(f["seed"], name+".seed", 0, 1<<62))
		in.Min, in.Max = -1, 1
		if f["min"] != nil {
			in.Min = r.finite(f["min"], name+".min")
		}
		if f["max"] != nil {
			in.Max = r.finite(f["max"], name+".max")
		}
		if f["packed"] != nil {
			in.Packed = r.oneOf(f["packed"], name+".packed", string(tensor.Float16), string(tensor.BFloat16))
			if in.DType != string(tensor.Float32) || f["values"] != nil {
				r.fail(f["packed"].Line, "%s.packed needs dtype float32 and a seed", name)
			}
		}
		if f["constant"] != nil {
			in.Constant = r.flag(f["constant"], name+".constant")
		}
		if in.Min > in.Max {
			r.fail(e.value.Line, "%s has min %v above max %v; exchange them", name, in.Min, in.Max)
		}
		if f["values"] != nil {
			if f["seed"] != nil {
				r.fail(f["values"].Line, "%s has both values and seed, needed one", name)
			}
			in.Values = Floats{}
			for i, item := range r.list(f["values"], name+".values", maxCaseValues) {
				in.Values = append(in.Values, r.number(item, fmt.Sprintf("%s.values[%d]", name, i)))
			}
			if int64(len(in.Values)) != elements {
				r.fail(f["values"].Line, "%s has %d values, needed %d for its shape", name, len(in.Values), elements)
			}
		}
		out = append(out, in)
	}
	return out
}

func (r *reader) expect(n *yaml.Node, what string, fold bool) Expect {
	kinds, names, references := []string{"formula", "reference", "values"}, "formula, reference and values", References
	if fold {
		kinds, names, references = []string{"values", "reference", "refused"}, "values, reference and refused", FoldReferences
	}
	f := r.fields(n, what, kinds...)
	if f == nil {
		return Expect{}
	}
	e := Expect{}
	given := 0
	for _, key := range kinds {
		if f[key] != nil {
			given++
		}
	}
	if given != 1 {
		r.fail(n.Line, "%s has %d of %s, needed exactly one", what, given, names)
	}
	if f["refused"] != nil {
		e.Refused = r.required(f["refused"], what+".refused")
	}
	if f["reference"] != nil {
		e.Reference = r.oneOf(f["reference"], what+".reference", references...)
	}
	if f["formula"] != nil {
		e.Formula = map[string]string{}
		entries, _ := r.entries(f["formula"], what+".formula")
		for _, entry := range entries {
			text := r.text(entry.value, what+".formula."+diagnostic.Clip(entry.key))
			if _, err := formula.Parse(text); err != nil && text != "" {
				r.fail(entry.value.Line, "%s.formula.%s: %v", what, diagnostic.Clip(entry.key), err)
			}
			e.Formula[entry.key] = text
		}
	}
	if f["values"] != nil {
		entries, _ := r.entries(f["values"], what+".values")
		e.Values = map[string]Floats{}
		for _, entry := range entries {
			values := Floats{}
			name := what + ".values." + diagnostic.Clip(entry.key)
			for i, item := range r.list(entry.value, name, maxCaseValues) {
				values = append(values, r.number(item, fmt.Sprintf("%s[%d]", name, i)))
			}
			e.Values[entry.key] = values
		}
	}
	return e
}

func (r *reader) tolerance(n *yaml.Node, what string) Tolerance {
	f := r.fields(n, what, "absolute", "relative")
	t := Tolerance{Absolute: r.finite(f["absolute"], what+".absolute"),
		Relative: r.finite(f["relative"], what+".relative")}
	if slices.Min([]float64{t.Absolute, t.Relative}) < 0 {
		r.fail(n.Line, "%s has a negative bound, needed 0 or more", what)
	}
	return t
}
