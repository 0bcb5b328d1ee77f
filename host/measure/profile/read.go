package profile

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
)

// What a profile may hold. ONNX Runtime itself stops at a million events.
const (
	maxBytes      = 2 << 30
	maxEventBytes = 1 << 20
	maxEvents     = 2 << 20
	maxTimes      = 1 << 24 // nodes times runs
	maxShapes     = 4096    // of a node
	maxTime       = 1 << 53 // microseconds
)

// Profile is what a session did.
type Profile struct {
	Runs  []float64 // milliseconds of each run, as the runtime timed them, in order
	Nodes []*Node   // in the order in which they first ran
}

// Node is a node of the graph that the runtime ran, which is what its optimisations made of the model.
type Node struct {
	Name     string // of a node without one, its operator, an underscore and its index
	Operator string // without its domain
	Provider string
	Index    int   // in its graph, as the runtime counts
	Parent   *Node // the node whose subgraph it is of; nil in the main graph
	Calls    int   // in all runs; a loop calls the nodes of its body several times a run

	// Self is the milliseconds of each run without those of subgraphs' nodes; a run that did not reach the node has 0.
	Self []float64
	// Fastest is the shortest call, in milliseconds, with those of subgraphs.
	Fastest float64

	Inputs, Outputs []Tensor // of the last call; weights that the runtime has packed are not among Inputs
	// Bytes of the last call: of inputs that are computed, of inputs that are constants and not packed, of outputs.
	Activations, Parameters, Results int64
}

// Tensor is an input or output as it was in a call.
type Tensor struct {
	Type  string  `json:"type"` // "float", "int64", "float16" ...
	Shape []int64 `json:"shape"`
}

// Elements is the number of a tensor's elements.
func (t Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		if d > 0 && n > math.MaxInt64/d {
			return math.MaxInt64
		}
		n *= d
	}
	return n
}

// ReadFile reads the profile that a session with a prefix for it wrote and closed. It waits for no pipe and follows
// no link.
func ReadFile(path string) (*Profile, error) {
	f, err := storage.OpenOwn(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > maxBytes {
		return nil, fault(path, fmt.Sprintf("found %d bytes", info.Size()), fmt.Sprintf("at most %d", int64(maxBytes)), fewer)
	}
	return Read(f, path)
}

const fewer = "profile fewer runs"

func fault(path, found, needed, fix string) error {
	return &diagnostic.Error{Path: path, Found: "not a profile of ONNX Runtime that can be read: " + found, Needed: needed,
		Fix: fix}
}

// Read reads a profile; path is that of errors.
func Read(from io.Reader, path string) (*Profile, error) {
	r := &reader{path: path, nodes: map[key]int32{}}
	if err := r.events(from); err != nil {
		return nil, err
	}
	return r.profile()
}

// event is one of a profile's as it stands there.
type event struct {
	Category string          `json:"cat"`
	Thread   json.Number     `json:"tid"`
	Name     string          `json:"name"`
	Start    json.Number     `json:"ts"`
	Duration json.Number     `json:"dur"`
	Args     json.RawMessage `json:"args"`
}

// details are the arguments of a node's event. Numbers stand in them as strings.
type details struct {
	Operator    string               `json:"op_name"`
	Provider    string               `json:"provider"`
	Index       string               `json:"node_index"`
	Inputs      []map[string][]int64 `json:"input_type_shape"`
	Outputs     []map[string][]int64 `json:"output_type_shape"`
	Activations string               `json:"activation_size"`
	Parameters  string               `json:"parameter_size"`
	Results     string               `json:"output_size"`
}

// key tells nodes apart: names may be there twice, in branches for instance.
type key struct {
	name, operator string
	index          int
}

// call is one event of a node, in microseconds.
type call struct {
	node     int32
	thread   int64
	start    float64
	duration float64
}

type span struct{ start, duration float64 }

type reader struct {
	path  string
	nodes map[key]int32
	list  []*Node
	calls []call
	runs  []span
}

// counted counts what is read since the last event was complete.
type counted struct {
	from  io.Reader
	total int64
	limit int64
}

var errLong = errors.New("an event of more than 1 MiB")

func (c *counted) Read(p []byte) (int, error) {
	if c.total >= c.limit {
		return 0, errLong
	}
	n, err := c.from.Read(p)
	c.total += int64(n)
	return n, err
}

func (r *reader) events(from io.Reader) error {
	c := &counted{from: bufio.NewReaderSize(from, 1<<16), limit: 2 * maxEventBytes}
	d := json.NewDecoder(c)
	number := 0
	bad := func(err error) error {
		var syntax *json.SyntaxError
		found := fmt.Sprintf("event %d: %v", number, err)
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
			return fault(r.path, fmt.Sprintf("it ends in event %d", number), "the whole file",
				"close the session before its profile is read")
		case errors.As(err, &syntax):
			return fault(r.path, found, "JSON",
				"ONNX Runtime writes names of nodes as they are: rename those with a quotation mark or a backslash")
		}
		return fault(r.path, found, "events as ONNX Runtime writes them", fewer)
	}
	if t, err := d.Token(); err != nil {
		return bad(err)
	} else if t != json.Delim('[') {
		return bad(errors.New("no list of events"))
	}
	for d.More() {
		if number++; number > maxEvents {
			return fault(r.path, fmt.Sprintf("more than %d events", maxEvents), "fewer", fewer)
		}
		var e event
		if err := d.Decode(&e); err != nil {
			return bad(err)
		}
		c.limit = d.InputOffset() + 2*maxEventBytes
		if err := r.event(&e); err != nil {
			return bad(err)
		}
	}
	if _, err := d.Token(); err != nil {
		return bad(err)
	}
	return nil
}

// microseconds is a time that can be one.
func microseconds(what string, n json.Number) (float64, error) {
	x, err := strconv.ParseFloat(string(n), 64)
	if err != nil || !(x >= 0 && x <= maxTime) {
		return 0, fmt.Errorf("%s is %.40q, needed are microseconds from 0 on", what, string(n))
	}
	return x, nil
}

func (r *reader) event(e *event) error {
	name, kernel := strings.CutSuffix(e.Name, "_kernel_time")
	run := e.Category == "Session" && e.Name == "model_run"
	if !run && (e.Category != "Node" || !kernel) {
		return nil
	}
	start, err := microseconds("ts", e.Start)
	if err != nil {
		return err
	}
	duration, err := microseconds("dur", e.Duration)
	if err != nil {
		return err
	}
	if run {
		r.runs = append(r.runs, span{start, duration})
		return nil
	}
	thread, err := strconv.ParseInt(string(e.Thread), 10, 64)
	if err != nil {
		return fmt.Errorf("tid is %.40q, needed is a number", string(e.Thread))
	}
	var a details
	if err := json.Unmarshal(e.Args, &a); err != nil {
		return fmt.Errorf("args of node %.100q: %w", name, err)
	}
	index, err := strconv.Atoi(a.Index)
	if err != nil || index < 0 {
		return fmt.Errorf("node_index of node %.100q is %.40q, needed is a number from 0 on", name, a.Index)
	}
	k := key{name, a.Operator, index}
	i, ok := r.nodes[k]
	if !ok {
		i = int32(len(r.list))
		r.nodes[k] = i
		r.list = append(r.list, &Node{Name: name, Operator: a.Operator, Provider: a.Provider, Index: index,
			Fastest: math.Inf(1)})
	}
	if err := r.list[i].describe(&a); err != nil {
		return fmt.Errorf("node %.100q: %w", name, err)
	}
	r.calls = append(r.calls, call{i, thread, start, duration})
	return nil
}

// describe notes what a call was given and made.
func (n *Node) describe(a *details) (err error) {
	if n.Inputs, err = tensors(a.Inputs); err != nil {
		return fmt.Errorf("input_type_shape: %w", err)
	}
	if n.Outputs, err = tensors(a.Outputs); err != nil {
		return fmt.Errorf("output_type_shape: %w", err)
	}
	for _, size := range []struct {
		name, text string
		to         *int64
	}{{"activation_size", a.Activations, &n.Activations}, {"parameter_size", a.Parameters, &n.Parameters},
		{"output_size", a.Results, &n.Results}} {
		*size.to = 0
		if size.text == "" {
			continue // not every runtime writes it
		}
		if *size.to, err = strconv.ParseInt(size.text, 10, 64); err != nil || *size.to < 0 {
			return fmt.Errorf("%s is %.40q, needed are bytes", size.name, size.text)
		}
	}
	return nil
}

func tensors(list []map[string][]int64) ([]Tensor, error) {
	if len(list) > maxShapes {
		return nil, fmt.Errorf("%d tensors, at most %d can be", len(list), maxShapes)
	}
	var out []Tensor
	for _, m := range list {
		if len(m) != 1 {
			return nil, fmt.Errorf("a tensor of %d types, needed is one", len(m))
		}
		for name, shape := range m {
			for _, d := range shape {
				if d < 0 {
					return nil, fmt.Errorf("a tensor has the length %d", d)
				}
			}
			out = append(out, Tensor{name, shape})
		}
	}
	return out, nil
}

// profile sorts calls into runs and takes nested ones out of those around them.
func (r *reader) profile() (*Profile, error) {
	slices.SortFunc(r.runs, func(a, b span) int { return sign(a.start - b.start) })
	for i := 1; i < len(r.runs); i++ {
		if before := r.runs[i-1]; before.start+before.duration > r.runs[i].start+slack {
			return nil, fault(r.path, "runs at the same time", "one after the other", "run the session from one thread")
		}
	}
	if int64(len(r.list))*int64(max(len(r.runs), 1)) > maxTimes {
		return nil, fault(r.path, fmt.Sprintf("%d nodes in %d runs", len(r.list), len(r.runs)),
			fmt.Sprintf("at most %d times", maxTimes), fewer)
	}
	p := &Profile{}
	for _, s := range r.runs {
		p.Runs = append(p.Runs, s.duration/1e3)
	}
	for _, n := range r.list {
		n.Self = make([]float64, len(r.runs))
	}
	// A subgraph's nodes run inside of the call of the node that has it, on its thread.
	slices.SortStableFunc(r.calls, func(a, b call) int {
		switch {
		case a.thread != b.thread:
			return sign(float64(a.thread - b.thread))
		case a.start != b.start:
			return sign(a.start - b.start)
		}
		return sign(b.duration - a.duration)
	})
	var around []*call
	for i := range r.calls {
		c := &r.calls[i]
		for len(around) > 0 && !around[len(around)-1].holds(c, r.list[around[len(around)-1].node].Operator) {
			around = around[:len(around)-1]
		}
		run, found := slices.BinarySearchFunc(r.runs, c.start, func(s span, at float64) int { return sign(s.start - at) })
		if !found {
			run--
		}
		if run < 0 || c.start > r.runs[run].start+r.runs[run].duration {
			continue // of no run that has ended
		}
		n := r.list[c.node]
		n.Calls++
		n.Self[run] += c.duration / 1e3
		n.Fastest = min(n.Fastest, c.duration/1e3)
		if len(around) > 0 {
			above := r.list[around[len(around)-1].node]
			if above != n {
				above.Self[run] = max(0, above.Self[run]-c.duration/1e3)
				n.Parent = above
			}
		}
		around = append(around, c)
	}
	for _, n := range r.list {
		if n.Calls > 0 {
			p.Nodes = append(p.Nodes, n)
		}
	}
	// They stand in the file in the order in which they ended, that around others last.
	first := map[*Node]float64{}
	for _, c := range r.calls {
		n := r.list[c.node]
		if at, ok := first[n]; !ok || c.start < at {
			first[n] = c.start
		}
	}
	slices.SortStableFunc(p.Nodes, func(a, b *Node) int { return sign(first[a] - first[b]) })
	if err := p.rooted(); err != nil {
		return nil, fault(r.path, err.Error(), "nodes inside of others", fewer)
	}
	return p, nil
}

// slack is how far rounding to microseconds moves an end.
const slack = 2

// withSubgraphs are operators that run graphs of their own.
var withSubgraphs = []string{"If", "Loop", "Scan", "SequenceMap", "BeamSearch", "GreedySearch", "Sampling",
	"WhisperBeamSearch"}

// holds reports a call inside of another, which is of the operator.
func (c *call) holds(other *call, operator string) bool {
	end := c.start + c.duration
	return c.thread == other.thread && other.start >= c.start && other.start < end &&
		other.start+other.duration <= end+slack &&
		slices.Contains(withSubgraphs, operator)
}

// rooted reports nodes that are inside of themselves, by way of others.
func (p *Profile) rooted() error {
	for _, n := range p.Nodes {
		steps := 0
		for m := n; m != nil; m = m.Parent {
			if steps++; steps > 64 {
				return fmt.Errorf("node %.100q is inside of itself, or of more than 64 others", n.Name)
			}
		}
	}
	return nil
}

func sign(x float64) int {
	switch {
	case x < 0:
		return -1
	case x > 0:
		return 1
	}
	return 0
}
