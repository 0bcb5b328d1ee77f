package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
)

// agreeing is in how many cases at least ONNX Runtime 1.32 gives what ONNX expects.
const agreeing = 1720

// totals count what became of the cases.
type totals struct {
	mu                                                                sync.Mutex
	run, identical, replaced, refused, failed, unfed, onnx, explained int
}

func (n *totals) add(counter *int) {
	n.mu.Lock()
	*counter++
	n.mu.Unlock()
}

// TestNodes runs every case three times: in an unpatched session, in one patched as
// programs get it, made from bytes, and in one patched under Force, made from the
// file. A session in which nothing was replaced must give the same bits, one with
// operators of plugins the same answer, and what ONNX Runtime refuses it must
// refuse in the same words.
func TestNodes(t *testing.T) {
	cases := readCases(t)
	must.Equal(t, len(cases), caseCount)
	names := map[string]bool{}
	n := &totals{}
	t.Run("case", func(t *testing.T) {
		for _, c := range cases {
			names[c.name] = true
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				n.add(&n.run)
				err := n.check(c)
				if why := explained[c.name]; why != "" {
					if err == nil {
						t.Errorf("is explained (%s) but shows no difference", why)
					}
					n.add(&n.explained)
					err = underForce(c)
				}
				must.Succeed(t, err)
			})
		}
	})
	if n.run == caseCount && n.onnx < agreeing {
		t.Errorf("ONNX Runtime gives what ONNX expects in %d cases, at least %d are needed for this test to mean something",
			n.onnx, agreeing)
	}
	for name := range explained {
		if !names[name] {
			t.Errorf("%s is explained and no case of ONNX %s", name, version)
		}
	}
	t.Logf("%d cases run: %d identical in bits, %d with operators of plugins, %d refused by ONNX Runtime alike at "+
		"load, %d failing alike at run, %d made alike but not fed, %d explained; ONNX Runtime gives what ONNX expects in %d",
		n.run, n.identical, n.replaced, n.refused, n.failed, n.unfed, n.explained, n.onnx)
}

// result is what one session made of a case.
type result struct {
	load, run error
	outputs   map[string]*ort.Value
}

func (r result) close() { closeAll(r.outputs) }

// check runs a case and says how the patched sessions differ from the unpatched one.
func (n *totals) check(c testCase) error {
	inputs, err := c.inputs(library)
	if err != nil && !errors.Is(err, errNone) {
		return err
	}
	unfed := err != nil
	defer closeAll(inputs)
	model, err := os.ReadFile(c.path)
	if err != nil {
		return err
	}
	fromFile := func(o session.Options) (*session.Session, error) { return session.Open(library, c.path, o) }
	fromBytes := func(o session.Options) (*session.Session, error) { return session.FromBytes(library, model, o) }

	o := options()
	auto := try(fromBytes, o, inputs)
	defer auto.close()
	o.Config = map[string]string{configForce: "1"}
	force := try(fromFile, o, inputs)
	defer force.close()
	o.Unpatched = true
	unpatched := try(fromFile, o, inputs)
	defer unpatched.close()
	if unpatched.load != nil {
		// The texts of a refused file and of refused bytes differ.
		bytes := try(fromBytes, o, inputs)
		defer bytes.close()
		if err := errors.Join(same("load", bytes.load, auto.load),
			same("load under Force", unpatched.load, force.load)); err != nil {
			return err
		}
		n.add(&n.refused)
		return nil
	}
	replaced, err := operators(c)
	if err != nil {
		return err
	}
	if unfed {
		n.add(&n.unfed)
		return errors.Join(auto.load, force.load)
	}
	if unpatched.run != nil && replaced == 0 {
		if err := errors.Join(same("run", unpatched.run, auto.run),
			same("run under Force", unpatched.run, force.run)); err != nil {
			return err
		}
		n.add(&n.failed)
		return nil
	}
	if err := errors.Join(unpatched.run, auto.load, auto.run, force.load, force.run); err != nil {
		return err
	}
	return n.compare(c, unpatched, auto, force, replaced)
}

// compare compares answers with those of the unpatched session, and with those that
// ONNX expects where the unpatched session gives them.
func (n *totals) compare(c testCase, unpatched, auto, force result, replaced int) error {
	comparer := identical
	if replaced > 0 {
		comparer = comparison.CompareValues
	}
	if err := errors.Join(
		differences(c.model, unpatched.outputs, auto.outputs, comparer),
		differences(c.model, unpatched.outputs, force.outputs, comparer)); err != nil {
		return err
	}
	if replaced > 0 {
		n.add(&n.replaced)
	} else {
		n.add(&n.identical)
	}
	want, err := c.outputs(library)
	if err != nil {
		return err
	}
	defer closeAll(want)
	if differences(c.model, want, unpatched.outputs, comparison.CompareValues) != nil {
		return nil
	}
	n.add(&n.onnx)
	return errors.Join(
		differences(c.model, want, auto.outputs, comparison.CompareValues),
		differences(c.model, want, force.outputs, comparison.CompareValues))
}

// try makes a session and runs it once.
func try(session func(session.Options) (*session.Session, error), o session.Options,
	inputs map[string]*ort.Value) result {
	o.Config = maps.Clone(o.Config)
	s, err := session(o)
	if err != nil {
		return result{load: err}
	}
	defer s.Close()
	if inputs == nil {
		return result{}
	}
	outputs, err := run(s, inputs)
	return result{run: err, outputs: outputs}
}

// operators counts the operators of plugins that a case got under Force.
func operators(c testCase) (int, error) {
	stored, ok := analyses.Load(c.path)
	if !ok {
		return 0, errors.New("the session was not seen by the hook")
	}
	return stored.(*patch.Analysis).Plan.Replaced(), nil
}

// same compares errors by their texts.
func same(what string, unpatched, patched error) error {
	if unpatched == nil && patched == nil || unpatched != nil && patched != nil && unpatched.Error() == patched.Error() {
		return nil
	}
	return fmt.Errorf("%s: unpatched %q, patched %q", what, fmt.Sprint(unpatched), fmt.Sprint(patched))
}

// identical compares values bit by bit.
func identical(name string, a, b *ort.Value, _, _ float64) comparison.OutputParity {
	p := comparison.OutputParity{Name: name, Type: a.Kind().String(), Shape: a.Shape()}
	fail := func(format string, args ...any) comparison.OutputParity {
		p.Problem = fmt.Sprintf(format, args...)
		return p
	}
	switch {
	case a.Kind() != b.Kind():
		return fail("unpatched is a %s, patched a %s", a.Kind(), b.Kind())
	case a.Kind() == ort.KindSequence:
		x, errX := a.Items()
		y, errY := b.Items()
		if err := errors.Join(errX, errY); err != nil {
			return fail("%v", err)
		}
		if len(x) != len(y) {
			return fail("unpatched has %d items, patched %d", len(x), len(y))
		}
		for i := range x {
			if item := identical(fmt.Sprintf("%s[%d]", name, i), x[i], y[i], 0, 0); !item.OK {
				return item
			}
		}
		p.OK = true
		return p
	case a.Kind() == ort.KindOptional: // without content, as those with content are that
		p.OK = true
		return p
	case a.Kind() != ort.KindTensor:
		return fail("a %s is not compared", a.Kind())
	}
	p.Type = a.Element().String()
	if a.Element() != b.Element() || !slices.Equal(a.Shape(), b.Shape()) {
		return fail("unpatched is %s%v, patched %s%v", a.Element(), a.Shape(), b.Element(), b.Shape())
	}
	if a.Element() == ort.String {
		x, errX := a.Strings()
		y, errY := b.Strings()
		if err := errors.Join(errX, errY); err != nil {
			return fail("%v", err)
		}
		p.OK = slices.Equal(x, y)
		return p
	}
	x, errX := a.Bytes()
	y, errY := b.Bytes()
	if err := errors.Join(errX, errY); err != nil {
		return fail("%v", err)
	}
	if p.OK = bytes.Equal(x, y); !p.OK {
		p.Problem = "other bits;"
	}
	return p
}
