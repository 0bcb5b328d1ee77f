// Package bisect finds which replaced blocks of a model change its answers, fail or slow it down: it halves the set
// of blocks, with each probe in a child process, and writes what of the model shows it.
package bisect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/statistics"
)

// Job says what is searched.
type Job struct {
	Model   string
	Options comparison.Options // whose B does otherwise than A
	Slower  bool               // search for what takes longer, not for other answers
	Extract string             // the folder that extracts are written to; "" for none
	// the plan file of B without the culprits, which is written where there are some; "" for none
	Plan    string
	Runtime string   // path of ONNX Runtime's library; "" to find it
	Folders []string // of plugins, searched first
	// Deadline is how long a probe may take; 0 is ten times what A takes, from half a minute to
	// comparison.DefaultDeadline.
	Deadline time.Duration
	// Output gets what children print; nil for silence.
	Output io.Writer
	// Refused is told of plugins that were left out; nil for silence.
	Refused func(why string)
}

// Result is what was found.
type Result struct {
	SchemaVersion int       `json:"schema_version"`
	Model         string    `json:"model"`
	A             string    `json:"a"`
	B             string    `json:"b"`
	Searched      string    `json:"searched"`         // "answers" or "time"
	Rounds        int       `json:"rounds,omitempty"` // of A B B A of a probe, where times were searched
	Blocks        int       `json:"blocks"`           // that B has other operators for than A
	Probes        int       `json:"probes"`           // children that compared
	Whole         Outcome   `json:"whole"`            // of all of B's blocks together
	Culprits      []Culprit `json:"culprits"`         // empty where B does as A
}

// Culprit is a smallest set of blocks with which B does otherwise than A: of several, it takes all.
type Culprit struct {
	Blocks []Block `json:"blocks"`
	// Padding says that it takes the removal of padding, which stands in no block.
	Padding bool    `json:"padding,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Like is the number, from 1, of an earlier culprit of the same operators that does the same. What that has of a
	// first tensor and an extract is not done again; 0 for none.
	Like int `json:"like,omitempty"`
	// First is the first value, in the model's order, that leaves the tolerance; nil where the run failed, took longer,
	// or no value inside does.
	First   *Tensor  `json:"first_tensor,omitempty"`
	Extract *Extract `json:"extract,omitempty"`
}

// Block is a place that B has another operator for than A.
type Block struct {
	Node      string `json:"node"`
	Kind      string `json:"kind"`
	Plugin    string `json:"plugin,omitempty"`   // B's; "" where B leaves the block unchanged
	Operator  string `json:"operator,omitempty"` // B's
	OperatorA string `json:"operator_a,omitempty"`
}

// Tensor is a value of the model, compared.
type Tensor struct {
	comparison.OutputParity
	Node string `json:"node"` // that makes it in the model
	Op   string `json:"op"`
}

// How a probe ends.
const (
	Equal   = "equal"   // within the tolerance, or no slower
	Differs = "differs" // answers outside the tolerance
	Fails   = "fails"   // with an error
	Ends    = "ends"    // the process: a crash, or an exit
	Hangs   = "hangs"   // beyond the deadline
	Slower  = "slower"
)

// Outcome is how B with some blocks did, beside A.
type Outcome struct {
	How     string                    `json:"how"`
	Detail  string                    `json:"detail,omitempty"`  // what failed
	Outputs []comparison.OutputParity `json:"outputs,omitempty"` // of the model, that differ
	Speedup *statistics.Speedup       `json:"speedup,omitempty"` // over A, where times were searched
	// LongerMS is how much longer than A's a run takes, of the medians.
	LongerMS float64 `json:"longer_ms,omitempty"`
}

// run is a search under way.
type run struct {
	Job
	result *Result
	units  []unit
	placed map[string]string // A's choices: node -> operator
	folder *storage.Folder
	tried  map[string]Outcome // by the name of side B
}

// Apart searches, with everything that native code does in child processes: this executable, whose main calls
// worker.Main with Tasks and comparison.Tasks. That A itself fails or has other answers in each run is an error, and
// so is a B that replaces what A does.
func Apart(ctx context.Context, j Job) (*Result, error) {
	if j.Extract != "" {
		if err := vacant(j.Extract); err != nil {
			return nil, err
		}
	}
	folder, err := storage.Temporary("")
	if err != nil {
		return nil, err
	}
	defer folder.Remove()
	r := &run{Job: j, folder: folder, tried: map[string]Outcome{},
		result: &Result{SchemaVersion: 2, Model: j.Model, A: j.Options.A, B: j.Options.B, Searched: "answers",
			Culprits: []Culprit{}}}
	if j.Slower {
		r.result.Searched, r.result.Rounds = "time", cmp.Or(j.Options.Rounds, 15)
	}
	if err := r.plan(ctx); err != nil {
		return nil, err
	}
	if err := r.baseline(ctx); err != nil {
		return nil, err
	}
	if r.result.Whole, err = r.side(ctx, len(r.units), j.Options.B); err != nil || r.result.Whole.How == Equal {
		return r.result, err
	}
	sets, err := (&search{fails: func(parts []int) (bool, error) {
		o, err := r.probe(ctx, parts)
		return err == nil && o.How != Equal, err
	}}).culprits(len(r.units))
	if err != nil {
		return nil, err
	}
	if len(sets) == 0 { // the blocks by themselves do as A: what is left is what no block stands for
		r.result.Culprits = append(r.result.Culprits, Culprit{Blocks: []Block{}, Padding: true, Outcome: r.result.Whole})
	}
	for _, parts := range sets {
		c, err := r.culprit(ctx, parts)
		if err != nil {
			return nil, err
		}
		r.result.Culprits = append(r.result.Culprits, c)
	}
	if err := r.extract(ctx, sets); err != nil || j.Plan == "" {
		return r.result, err
	}
	var rest []int
	for i := range r.units {
		rest = append(rest, i)
	}
	return r.result, write(j.Plan, r.chosen(without(rest, slices.Concat(sets...))))
}

// plan asks which blocks B has other operators for.
func (r *run) plan(ctx context.Context) error {
	r.step("planning")
	a, err := r.choices(ctx, r.Options.A)
	if err != nil {
		return err
	}
	b, err := r.choices(ctx, r.Options.B)
	if err != nil {
		return err
	}
	r.placed = map[string]string{}
	for _, c := range a.Choices {
		r.placed[c.Node] = c.Operator
	}
	r.units = unitsOf(a, b)
	for _, u := range r.units {
		r.result.Blocks += len(u.choices)
	}
	if len(r.units) == 0 && !b.Unpadded {
		return &diagnostic.Error{Kind: comparison.ErrSame, Path: r.Model, Needed: "a side that replaces something else",
			Found: fmt.Sprintf("%s and %s replace the same blocks by the same operators", r.Options.A, r.Options.B),
			Fix:   "graft inspect shows what is replaced; --force uses operators whatever they are expected to gain"}
	}
	return nil
}

// baseline compares A with itself.
func (r *run) baseline(ctx context.Context) error {
	r.step("comparing " + r.Options.A + " with itself")
	o := r.Options
	o.B, o.Step, o.Progress = o.A, nil, nil
	start := time.Now()
	found, err := comparison.AnswersApart(ctx, r.comparison(o))
	r.result.Probes++
	switch {
	case err != nil:
		return err
	case found.Parity.Random != "":
		return &diagnostic.Error{Path: r.Model, Found: "its answers cannot be compared: " + found.Parity.Random,
			Fix: "give the node a seed"}
	case !found.Parity.OK && !r.Slower:
		return &diagnostic.Error{Path: r.Model, Found: fmt.Sprintf("the answers of %s differ from run to run", o.A),
			Needed: "a side whose answers are the same in each", Fix: "allow for it with --absolute and --relative"}
	}
	if r.Deadline <= 0 {
		r.Deadline = min(max(10*time.Since(start), 30*time.Second), comparison.DefaultDeadline)
	}
	return nil
}

// culprit says what a set of blocks does.
func (r *run) culprit(ctx context.Context, parts []int) (c Culprit, err error) {
	if c.Outcome, err = r.probe(ctx, parts); err != nil {
		return c, err
	}
	for _, i := range parts {
		for _, x := range r.units[i].choices {
			c.Blocks = append(c.Blocks,
				Block{Node: x.Node, Kind: x.Kind, Plugin: x.Plugin, Operator: x.Operator, OperatorA: r.placed[x.Node]})
		}
		c.Padding = c.Padding || r.units[i].padding
	}
	for i := range r.result.Culprits {
		if r.result.Culprits[i].alike(&c) && c.Like == 0 {
			c.Like = i + 1
		}
	}
	if c.Outcome.How == Differs && c.Like == 0 {
		c.First, err = r.trace(ctx, parts)
	}
	return c, err
}

// alike says of two culprits that the same operators do the same.
func (c *Culprit) alike(d *Culprit) bool {
	return c.Outcome.How == d.Outcome.How && c.Padding == d.Padding &&
		slices.EqualFunc(c.Blocks, d.Blocks, func(a, b Block) bool {
			return a.Plugin == b.Plugin && a.Operator == b.Operator && a.OperatorA == b.OperatorA
		})
}

func (r *run) step(what string) {
	if r.Options.Step != nil {
		r.Options.Step(what)
	}
}

// vacant refuses a folder for extracts that holds something.
func vacant(folder string) error {
	entries, err := os.ReadDir(folder)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return &diagnostic.Error{Path: folder, Found: "cannot write an extract there: " + diagnostic.Cause(err),
			Needed: "an empty folder or none", Cause: err}
	case len(entries) > 0:
		return &diagnostic.Error{Path: folder, Found: fmt.Sprintf("found a folder that holds %s", entries[0].Name()),
			Needed: "an empty folder or none", Fix: "name another for --extract"}
	}
	return nil
}

// blame is an error of side B without the name that this package gave it.
func blame(err error) string {
	_, text, ok := strings.Cut(err.Error(), "b (")
	if _, rest, more := strings.Cut(text, "): "); ok && more {
		return rest
	}
	return err.Error()
}
