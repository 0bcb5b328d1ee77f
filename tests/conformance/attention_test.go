package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
)

// attentionCount is how many cases hold one Attention operator and nothing else.
const attentionCount = 93

// leftAlone are parts of the names of cases that no operator takes, with the reasons: ONNX Runtime answers such graphs
// otherwise than ONNX says, has no kernel for a type, or masks count otherwise than graft's operators do.
var leftAlone = []struct{ part, why string }{
	{"4d_gqa_with_past_and_present_fp16", "was left as it was: it rounds the sum of scores and mask to float16"},
	{"_bf16", "Could not find an implementation for "},
	{"causal_nonpad", "is not recognised: it is causal over as many keys as its nonpad_kv_seqlen says"},
	{"local_window_default", ""},
	{"_window", "is not recognised: its attribute left_window_size is "},
}

// TestAttention runs the base cases of ONNX's Attention under Force: the operator
// of a plugin runs each but those of leftAlone, and gives what ONNX expects.
func TestAttention(t *testing.T) {
	cases := attentionCases(t)
	must.Equal(t, len(cases), attentionCount)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			why := ""
			for _, left := range slices.Backward(leftAlone) {
				if strings.Contains(c.name, left.part) {
					why = left.why
				}
			}
			if err := underForce(c); (why != "") != (err != nil) || err != nil && !strings.Contains(err.Error(), why) {
				t.Errorf("found %v, needed %q", err, why)
			}
		})
	}
}

func attentionCases(t *testing.T) []testCase {
	var cases []testCase
	for _, c := range readCases(t) {
		if n := c.model.Graph.Node; len(n) == 1 && n[0].GetOpType() == "Attention" && n[0].GetDomain() == "" {
			cases = append(cases, c)
		}
	}
	return cases
}

// underForce runs a case under Force, from a file and from bytes.
func underForce(c testCase) error {
	inputs, err := c.inputs(library)
	if err != nil {
		return err
	}
	defer closeAll(inputs)
	want, err := c.outputs(library)
	if err != nil {
		return err
	}
	defer closeAll(want)
	o := options()
	o.Config = map[string]string{configForce: "1"}
	s, err := session.Open(library, c.path, o)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := replaced(c); err != nil {
		return err
	}
	found, err := run(s, inputs)
	if err != nil {
		return err
	}
	defer closeAll(found)
	return differences(c.model, want, found, comparison.CompareValues)
}

// replaced checks that the whole graph of a case became one operator of a plugin.
func replaced(c testCase) error {
	stored, ok := analyses.Load(c.path)
	if !ok {
		return errors.New("the session was not seen by the hook")
	}
	a := stored.(*patch.Analysis)
	for _, u := range a.Report.Unrecognised {
		return fmt.Errorf("%s is not recognised: %s", u.Node, u.Reason)
	}
	for _, choice := range a.Plan.Choices {
		if choice.Operator == nil {
			return fmt.Errorf("%s was left as it was: %s", choice.Node, choice.Reason)
		}
	}
	for _, n := range a.Model.Proto().Graph.Node {
		if n.GetOpType() == "Attention" && n.GetDomain() == "" {
			return errors.New("ONNX's Attention still stands in the patched graph")
		}
	}
	return nil
}

// options are those of every session here: one thread, as the cases are tiny.
func options() session.Options {
	return session.Options{IntraOpThreads: 1, LogSeverity: session.LogFatal}
}

// run computes all outputs, by name.
func run(s *session.Session, inputs map[string]*ort.Value) (map[string]*ort.Value, error) {
	list, err := s.Run(context.Background(), inputs)
	if err != nil {
		return nil, err
	}
	results := map[string]*ort.Value{}
	for i, o := range s.Outputs() {
		results[o.Name] = list[i]
	}
	return results, nil
}

// differences compares the outputs of a model.
func differences(m *onnx.Model, want, found map[string]*ort.Value,
	compare func(name string, a, b *ort.Value, absolute, relative float64) comparison.OutputParity) error {
	var failed []string
	for _, o := range m.Graph.Output {
		name := o.GetName()
		if want[name] == nil || found[name] == nil {
			if want[name] != found[name] {
				failed = append(failed, name+" is missing on one side")
			}
			continue
		}
		if p := compare(name, want[name], found[name], 0, 0); !p.OK {
			failed = append(failed, fmt.Sprintf("%s %s%v: %s %d differ, max %g absolute, %g relative", name, p.Type, p.Shape,
				p.Problem, p.Disagree, p.MaxAbsolute, p.MaxRelative))
		}
	}
	if len(failed) > 0 {
		return errors.New(strings.Join(failed, "; "))
	}
	return nil
}
