// Command seeds writes the cases of plugins' manifests as the fuzzer of operators reads them:
//
//	go run ./tests/driven/seeds OUT PLUGIN_DIR...
//
// OUT gets a file for each case but those of folds, which no model drives.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/conformance"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/signature"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: seeds OUT PLUGIN_DIR...")
		os.Exit(2)
	}
	for _, folder := range os.Args[2:] {
		if err := write(os.Args[1], folder); err != nil {
			fmt.Fprintln(os.Stderr, "seeds:", err)
			os.Exit(1)
		}
	}
}

// write writes the cases of one plugin.
func write(out, folder string) error {
	p, err := plugin.Open(folder, plugin.OpenOptions{AcceptUnverified: true})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for i := range p.Manifest.Cases {
		c := &p.Manifest.Cases[i]
		op, _, ok := p.Info.Operator(c.Operator)
		if c.Fold != nil || !ok {
			continue
		}
		text, err := seed(c, op)
		if err == nil {
			err = os.WriteFile(filepath.Join(out, fmt.Sprintf("%s-%02d.txt", p.Manifest.Name, i)), []byte(text), 0o644)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("%s: case %q", folder, c.Name), err)
		}
	}
	return nil
}

// seed is a case as text.
func seed(c *manifest.Case, op *signature.Operator) (string, error) {
	wanted, err := conformance.Wanted(c, op)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\noperator %s\n", c.Name, c.Operator)
	for _, a := range c.Attributes {
		kind, value := "", ""
		switch v := a.Value.(type) {
		case int64:
			kind, value = "int", strconv.FormatInt(v, 10)
		case float64:
			kind, value = "float", number(v)
		case string:
			kind, value = "string", v
		case []int64:
			kind, value = "ints", strings.Trim(fmt.Sprint(v), "[]")
		case []float64:
			kind, value = "floats", strings.Trim(fmt.Sprint(v), "[]")
		}
		fmt.Fprintf(&b, "%s %s %s\n", kind, a.Name, value)
	}
	// In the operator's order, which is the node's.
	at := func(in manifest.CaseInput) int {
		return slices.IndexFunc(op.Inputs, func(p signature.Parameter) bool { return p.Name == in.Name })
	}
	inputs := slices.SortedStableFunc(slices.Values(c.Inputs), func(a, b manifest.CaseInput) int { return at(a) - at(b) })
	for _, in := range inputs {
		dims := "-"
		if len(in.Shape) > 0 {
			dims = strings.ReplaceAll(strings.Trim(fmt.Sprint(in.Shape), "[]"), " ", ",")
		}
		fmt.Fprintf(&b, "input %s %s %s", in.Name, in.DType, dims)
		if len(in.Values) == 0 {
			fmt.Fprintf(&b, " random %d %s %s", in.Seed, number(in.Min), number(in.Max))
		} else {
			b.WriteString(" values")
			for _, v := range in.Values {
				b.WriteString(" " + number(v))
			}
		}
		b.WriteByte('\n')
	}
	for i, ok := range wanted {
		if ok {
			fmt.Fprintf(&b, "output %s\n", op.Outputs[i].Name)
		}
	}
	return b.String(), nil
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
