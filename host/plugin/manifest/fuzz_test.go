package manifest

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/internal/must"
)

// FuzzManifest holds Parse to what Manifest promises.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(plugintest.Head + plugintest.Variants + geluOperator))
	f.Add([]byte(plugintest.Manifest + plugintest.Cases))
	plugins := must.Value(filepath.Glob("../../../plugins/*/" + FileName))(f)
	for _, path := range plugins {
		f.Add(plugintest.ReadFile(f, path))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m *Manifest
		var err error
		must.CostLittle(t, len(data), func() { m, err = Parse("p", data) })
		if err != nil {
			if !errors.Is(err, refusal.ErrManifest) || !strings.HasPrefix(err.Error(), "p:") {
				t.Fatalf("error %v, want one of kind ErrManifest that names the file", err)
			}
			return
		}
		must.Value(json.Marshal(m))(t, "no JSON")
		if len(m.Operators) == 0 || len(m.Variants) == 0 || !namePattern.MatchString(m.Name) {
			t.Fatalf("accepted %+v", m)
		}
		for _, v := range m.Variants {
			if filepath.Base(v.File) != v.File {
				t.Fatalf("accepted the file %q", v.File)
			}
		}
		for _, op := range m.Operators {
			if op.Replaces.Pattern == nil {
				if op.With != nil || op.Replaces.Block == "" && op.Where != nil {
					t.Fatalf("accepted %+v", op)
				}
				continue
			}
			promised(t, &op)
		}
		for _, c := range m.Cases {
			if _, ok := m.Operator(c.Operator); !ok {
				t.Fatalf("accepted the case %+v", c)
			}
		}
	})
}

// promised checks the graphs of an operator that replaces a pattern: values are defined before they are
// used, and the outputs are there.
func promised(t *testing.T, op *Operator) {
	for _, c := range op.Replaces.Pattern.Constants {
		if c.Any && (c.Value != nil || c.Values != nil || c.Min != nil || c.Max != nil || c.Capture != "") {
			t.Fatalf("accepted the constant %+v", c)
		}
	}
	for _, r := range op.Forms() {
		defined := append([]string{""}, r.Form.Inputs...)
		for _, c := range r.Form.Constants {
			defined = append(defined, c.Name)
		}
		outer := slices.Concat(defined, r.With.Fold)
		for _, n := range r.Form.Nodes {
			for _, in := range n.In {
				if !slices.Contains(defined, in) {
					t.Fatalf("pattern: %s uses %q before it is there", n.Op, in)
				}
			}
			defined = append(defined, n.Out...)
		}
		for _, n := range r.With.Nodes {
			for _, in := range n.In {
				if !slices.Contains(outer, in) {
					t.Fatalf("replacement: %s uses %q before it is there", n.Op, in)
				}
			}
			outer = append(outer, n.Out...)
		}
		for _, out := range r.Form.Outputs {
			if !slices.Contains(defined, out) || !slices.Contains(outer, out) {
				t.Fatalf("output %q is not made", out)
			}
		}
	}
}
