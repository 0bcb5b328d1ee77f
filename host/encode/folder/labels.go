package folder

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Head is what a model's architecture was made for, by the end of its class's name.
type Head string

// The heads that give logits.
const (
	SequenceClassification Head = "ForSequenceClassification"
	TokenClassification    Head = "ForTokenClassification"
	CausalLM               Head = "ForCausalLM"
)

// labels are what config.json says of a classifier's outputs. They are checked where they are used: a reranker needs
// none.
type labels struct {
	path    string
	names   map[string]any // id2label
	numbers map[string]any // label2id
	number  int            // num_labels; 0 where it is not said
	problem string         // problem_type
}

// readLabels reads what concerns a classifier in config.json.
func (f *Folder) readLabels(o *object) {
	f.labels.path = o.path
	o.value("id2label", "labels by number", &f.labels.names)
	o.value("label2id", "numbers by label", &f.labels.numbers)
	f.labels.number = o.number("num_labels", 1, maxWidth)
	f.Labels = cmp.Or(len(f.labels.names), f.labels.number)
	f.labels.problem, _ = o.text("problem_type")
	var classes []string
	if o.value("architectures", "a list of names of classes", &classes) && len(classes) > 0 {
		f.Architecture = classes[0]
	}
}

// Is is whether the architecture has a head, or may have it where the folder does not say it.
func (f *Folder) Is(t Head) bool {
	return f.Architecture == "" || strings.HasSuffix(f.Architecture, string(t))
}

// LabelNames are the labels of a classifier with that many outputs, in their order.
func (f *Folder) LabelNames(outputs int) ([]string, error) {
	l := &f.labels
	names := make([]string, outputs)
	if n := l.number; n > 0 && (len(l.names) > 0 || n != outputs) && n != len(l.names) {
		e := &diagnostic.Error{Path: l.path, Found: fmt.Sprintf("num_labels is %d", n),
			Needed: fmt.Sprintf("%d, as many as the graph has outputs", outputs)}
		if len(l.names) > 0 {
			e.Found += fmt.Sprintf(", and id2label has %d labels", len(l.names))
		}
		return nil, e
	}
	if len(l.names) == 0 {
		n := f.Labels
		if n == 0 {
			n = 2 // what transformers takes, which leaves out names of its own where they are two
		}
		if n != outputs {
			return nil, &diagnostic.Error{Path: l.path, Found: "no id2label", Needed: fmt.Sprintf(
				"the labels of the graph's %d outputs", outputs), Fix: "copy the file from where the model comes from"}
		}
		for i := range names {
			names[i] = fmt.Sprintf("LABEL_%d", i)
		}
		return names, nil
	}
	if len(l.names) != outputs {
		return nil, &diagnostic.Error{Path: l.path, Found: fmt.Sprintf("id2label has %d labels", len(l.names)),
			Needed: fmt.Sprintf("%d, one for each output of the graph", outputs)}
	}
	for i := range names {
		value, ok := l.names[strconv.Itoa(i)]
		if !ok {
			return nil, &diagnostic.Error{Path: l.path, Found: fmt.Sprintf("id2label has %d labels, and none of %d",
				outputs, i), Needed: fmt.Sprintf("those of 0 to %d", outputs-1)}
		}
		if names[i], ok = value.(string); !ok {
			return nil, &diagnostic.Error{Path: l.path, Found: fmt.Sprintf("id2label.%d is %v", i, value), Needed: "a string"}
		}
	}
	return names, l.agree(names)
}

// agree refuses a label2id that gives a label of id2label another number. Labels that id2label does not have are passed
// over: whoever names labels in id2label alone gets the default ones in label2id.
func (l *labels) agree(names []string) error {
	for _, name := range slices.Sorted(maps.Keys(l.numbers)) {
		first := slices.Index(names, name)
		n, ok := l.numbers[name].(float64)
		if first < 0 || ok && n >= 0 && int(n) < len(names) && float64(int(n)) == n && names[int(n)] == name {
			continue
		}
		return &diagnostic.Error{Path: l.path, Found: fmt.Sprintf("label2id.%s is %v, and id2label.%d is %q",
			diagnostic.Clip(name), l.numbers[name], first, diagnostic.Clip(name)),
			Needed: "the number that id2label gives this label"}
	}
	return nil
}

// Entailment is the number of the label that says that a hypothesis follows, as transformers finds it: the one of
// label2id that begins with entail.
func (f *Folder) Entailment(names []string) (int, error) {
	l := &f.labels
	numbers := l.numbers
	if len(numbers) == 0 {
		numbers = map[string]any{}
		for i, name := range names {
			numbers[name] = float64(i)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if !strings.HasPrefix(strings.ToLower(name), "entail") {
			continue
		}
		n, ok := numbers[name].(float64)
		if i := int(n); !ok || float64(i) != n || i < 0 || i >= len(names) || names[i] != name {
			return 0, &diagnostic.Error{Path: l.path, Found: fmt.Sprintf("label2id.%s is %v", diagnostic.Clip(name),
				numbers[name]), Needed: "the number that id2label gives this label"}
		}
		return int(n), nil
	}
	return 0, &diagnostic.Error{Path: l.path, Found: "no label that begins with entail among " +
		diagnostic.Clip(strings.Join(names, ", ")), Needed: "a model of natural language inference, by whose entailment " +
		"labels of one's own are judged"}
}

// Function makes scores of a text's logits, in their place.
type Function func(logits []float64)

// Functions are those that a caller may ask for, by name.
var Functions = map[string]Function{
	"none":    func([]float64) {},
	"sigmoid": each(sigmoid),
	"softmax": Softmax,
}

func each(f Activation) Function {
	return func(logits []float64) {
		for i, x := range logits {
			logits[i] = f(x)
		}
	}
}

// FunctionOf is what makes scores of logits: the activation that a folder of sentence-transformers names, else what
// transformers' pipeline takes for the problem.
func (f *Folder) FunctionOf(outputs int) (Function, error) {
	if f.Activation == "torch.nn.modules.activation.Softmax" {
		return Softmax, nil // of no other's: an activation is a function of one number
	}
	if f.Activation != "" {
		a, err := f.ScoresBy()
		return each(a), err
	}
	switch p := f.labels.problem; {
	case p == "regression":
		return Functions["none"], nil
	case p == "multi_label_classification", (p == "" || p == "single_label_classification") && outputs == 1:
		return Functions["sigmoid"], nil
	case p == "", p == "single_label_classification":
		return Functions["softmax"], nil
	default:
		return nil, &diagnostic.Error{Path: f.labels.path, Found: fmt.Sprintf("problem_type is %q", diagnostic.Clip(p)),
			Needed: "regression, single_label_classification or multi_label_classification"}
	}
}
