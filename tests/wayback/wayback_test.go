// Package wayback has operators fail in the middle of a run: the program gets the answers of its model, one warning,
// and runs on.
package wayback

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/hook"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// number is how many sessions have a fault. GRAFT_WAYBACK_SESSIONS sets it.
func number(t *testing.T) int {
	text := os.Getenv("GRAFT_WAYBACK_SESSIONS")
	if text == "" {
		return 40
	}
	n := must.Value(strconv.Atoi(text))(t)
	return n
}

// fixtures are models that have, between them, a place for each operator that is placed in sessions.
var fixtures = []string{"optimum/bart-decoder-with-past", "optimum/gpt2", "optimum/bert", "optimum/llama",
	"optimum/t5-encoder", "optimum/whisper-encoder"}

// dims are the lengths of their inputs, of which each model has some.
var dims = map[string]int64{"batch_size": 2, "sequence_length": 5, "past_sequence_length": 6,
	"past_decoder_sequence_length": 6,
	"encoder_sequence_length":      7, "past_encoder_sequence_length": 7, "decoder_sequence_length": 1}

// runs is how many each session has.
const runs = 4

// subject is a model with inputs, and what it answers unpatched.
type subject struct {
	library    *ort.Library
	name, path string
	content    []byte
	inputs     *inputs.Batch
	want       []*ort.Value
	placed     []string // operators of a patched session
}

// TestFaults has every operator fail at some run of a session, or give a result of a wrong shape: no run is lost,
// its answers are those of the model without graft, and one warning is written.
func TestFaults(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	injector := newInjector(t, l)
	patcher := &sessions.Patcher{Plugins: set.Plugins, Options: set.Plan(plan.Options{Force: true})}
	var names []string
	must.Succeed(t, hook.Install(l, hook.Hook{Logger: logger, Patcher: func(r session.Request) (*session.Patch, error) {
		p, err := patcher.Patch(r)
		if p != nil {
			names = injector.take(p.Domains)
		}
		return p, err
	}}))
	t.Cleanup(func() { _ = hook.Uninstall(l) })

	var subjects []*subject
	add := func(name, path string) {
		s := open(t, l, name, path)
		x := s.session(t, l, false)
		s.placed = slices.Clone(names)
		names = nil
		x.Close()
		if len(s.placed) > 0 {
			subjects = append(subjects, s)
		}
	}
	add("search", search(t))
	for _, f := range models.Fixtures() {
		if slices.Contains(fixtures, f.String()) {
			path := filepath.Join(t.TempDir(), "model.onnx")
			must.Succeed(t, f.Write(path, 1))
			add(f.String(), path)
		}
	}
	type fault struct {
		subject  *subject
		operator string
		kind     kind
	}
	var faults []fault
	for _, s := range subjects {
		for _, o := range s.placed {
			faults = append(faults, fault{s, o, fails}, fault{s, o, wrongShape})
		}
	}
	var operators []string
	for _, f := range faults {
		operators = append(operators, f.operator)
	}
	slices.Sort(operators)
	// Those of our plugins that stand in sessions. All others are for engines.
	if operators = slices.Compact(operators); len(operators) < 5 {
		t.Errorf("only %v were placed", operators)
	}
	counts := map[string]int{}
	n := number(t)
	for i := range n {
		f := faults[i%len(faults)]
		at := i / len(faults) % runs
		log.Reset()
		before := graft.Reverted()
		x := f.subject.session(t, l, i%2 == 0)
		what := fmt.Sprintf("session %d of %s, %s of %s at run %d", i, f.subject.name, f.kind, f.operator, at)
		binding := i%3 == 0
		for k := range runs {
			if k == at {
				injector.arm(f.operator, f.kind)
			}
			out, err := f.subject.run(x, binding)
			fired := injector.disarm()
			if k == at && !fired {
				t.Fatalf("%s: the operator did not run", what)
			}
			if err != nil {
				counts["runs lost"]++
				t.Errorf("%s: run %d: %v", what, k, err)
				continue
			}
			counts["runs"]++
			f.subject.compare(t, fmt.Sprintf("%s: run %d", what, k), out, k >= at)
			for _, v := range out {
				v.Close()
			}
		}
		x.Close()
		counts["sessions"]++
		counts[string(f.kind)]++
		if warnings := strings.Count(log.String(), "level=WARN"); warnings != 1 || graft.Reverted() != before+1 {
			t.Errorf("%s: %d warnings, %d reverted:\n%s", what, warnings, graft.Reverted()-before, log.String())
		}
		counts["warnings"] += strings.Count(log.String(), "level=WARN")
	}
	text, _ := json.Marshal(counts)
	t.Logf("%s; operators %v", text, operators)
}

// open runs a model unpatched.
func open(t *testing.T, l *ort.Library, name, path string) *subject {
	t.Helper()
	s := &subject{library: l, name: name, path: path}
	var err error
	if s.content, err = os.ReadFile(s.path); err != nil {
		t.Fatal(err)
	}
	if s.inputs, err = inputs.Make(l, s.path, inputs.Options{Seed: 1, LooseDims: true, Dims: dims}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.inputs.Close)
	x := must.Value(session.Open(l, s.path, session.Options{IntraOpThreads: 1, Unpatched: true}))(t)
	defer x.Close()
	if s.want, err = x.Run(context.Background(), s.inputs.Values); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, v := range s.want {
			v.Close()
		}
	})
	return s
}

func (s *subject) session(t *testing.T, l *ort.Library, fromBytes bool) (x *session.Session) {
	t.Helper()
	var err error
	if fromBytes {
		gone := slices.Clone(s.content)
		x, err = session.FromBytes(l, gone, session.Options{IntraOpThreads: 1})
		clear(gone)
	} else {
		x, err = session.Open(l, s.path, session.Options{IntraOpThreads: 1})
	}
	must.Succeed(t, err)
	return x
}

func (s *subject) run(x *session.Session, binding bool) ([]*ort.Value, error) {
	if !binding {
		return x.Run(context.Background(), s.inputs.Values)
	}
	b, err := x.NewBinding()
	if err != nil {
		return nil, err
	}
	defer b.Close()
	for _, name := range slices.Sorted(maps.Keys(s.inputs.Values)) {
		if err := b.Input(name, s.inputs.Values[name]); err != nil {
			return nil, err
		}
	}
	memory, err := s.library.Memory("Cpu", 0)
	if err != nil {
		return nil, err
	}
	for _, o := range x.Outputs() {
		if err := b.OutputTo(o.Name, memory); err != nil {
			return nil, err
		}
	}
	if err := b.Run(context.Background()); err != nil {
		return nil, err
	}
	outputs, err := b.Outputs()
	if err != nil {
		return nil, err
	}
	var list []*ort.Value
	for _, o := range x.Outputs() {
		list = append(list, outputs[o.Name])
	}
	return list, nil
}

// compare compares answers with those of the model without graft: bit for bit once it runs so.
func (s *subject) compare(t *testing.T, what string, out []*ort.Value, unpatched bool) {
	t.Helper()
	for i, v := range out {
		if !unpatched {
			if p := comparison.CompareValues("", s.want[i], v, 0, 0); !p.OK {
				t.Errorf("%s: output %d: %+v", what, i, p)
			}
			continue
		}
		want, err := s.want[i].Bytes()
		got, failed := v.Bytes()
		if err := errors.Join(err, failed); err != nil || !slices.Equal(v.Shape(), s.want[i].Shape()) ||
			!bytes.Equal(got, want) {
			t.Errorf("%s: output %d is not that of the model without graft: %v", what, i, err)
		}
	}
}

// TestReplacedModel: of a model's file that was replaced since, nothing is made: a run that fails does, and never
// answers as another model.
func TestReplacedModel(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	var log bytes.Buffer
	injector := newInjector(t, l)
	patcher := &sessions.Patcher{Plugins: set.Plugins, Options: set.Plan(plan.Options{Force: true})}
	var names []string
	must.Succeed(t, hook.Install(l, hook.Hook{Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Patcher: func(r session.Request) (*session.Patch, error) {
			p, err := patcher.Patch(r)
			if p != nil {
				names = injector.take(p.Domains)
			}
			return p, err
		}}))
	t.Cleanup(func() { _ = hook.Uninstall(l) })
	s := open(t, l, "search", search(t))
	x := s.session(t, l, false)
	defer x.Close()
	must.Succeed(t, os.WriteFile(s.path+".new", s.content, 0o644))
	must.Succeed(t, os.Rename(s.path+".new", s.path))
	before := graft.Reverted()
	for range 2 {
		injector.arm(names[0], fails)
		must.Fail(t, must.Error(s.run(x, false)), "made to fail")
	}
	out := must.Value(s.run(x, false))(t)
	s.compare(t, "a run that does not fail", out, false)
	if text := log.String(); graft.Reverted() != before || strings.Count(text, "level=WARN") != 1 ||
		!strings.Contains(text, "is not what it was when the model was opened") {
		t.Errorf("%d reverted, logged %s", graft.Reverted()-before, text)
	}
}
