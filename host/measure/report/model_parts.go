package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
)

// nodes is the section of where a run's time goes.
func (m *model) nodes() (*section, error) {
	n := m.NodeTimes
	if n == nil {
		return nil, nil
	}
	s := &section{ID: "nodes", Title: "Where the time goes", Legend: legend(m.name(-1), m.names()),
		Text: []string{"ONNX Runtime's own profile of a run, folded by kind and by block, in the faster half of runs; " +
			"what the profiler takes is taken off. Inputs: " + m.cellName(n.Cell) + "."}}
	all := append([]comparison.SideTimes{n.A}, n.Sides...)
	at := func(side int) string {
		if side == 0 {
			return "/node_times/a"
		}
		return fmt.Sprintf("/node_times/sides/%d", side-1)
	}
	kinds, blocks := newFolded(len(all)), newFolded(len(all))
	var whole []float64
	for i, side := range all {
		whole = append(whole, side.RunMS)
		for k, part := range side.Parts {
			kinds.add(part.Part, "", i, part.MS, fmt.Sprintf("%s/parts/%d/ms", at(i), k))
		}
		for k, block := range side.Blocks {
			blocks.add(block.Node, block.Kind, i, block.MS, fmt.Sprintf("%s/blocks/%d/ms", at(i), k))
		}
	}
	digits := max(decimals(whole), 2)
	heads := func(first ...head) []head {
		for i, side := range all {
			first = append(first, head{named(i-1, side.Name) + ", ms", true})
		}
		return first
	}
	// Parts.
	t := table{Head: heads(head{"part of a run", false})}
	var groups []bar
	rest := kinds.longest(maxParts)
	for _, f := range kinds.list {
		groups = append(groups, bar{f.name, f.ms})
		t.Rows = append(t.Rows, append([]cell{text(f.name)}, f.cells(digits)...))
	}
	between, run := []cell{text("between nodes")}, []cell{text("the whole run")}
	for i, side := range all {
		between = append(between, one(num(side.BetweenMS, at(i)+"/between_ms", fixed(side.BetweenMS, digits))))
		run = append(run, one(num(side.RunMS, at(i)+"/run_ms", fixed(side.RunMS, digits))))
	}
	t.Rows = append(t.Rows, between, run)
	if rest > 0 {
		t.More = fmt.Sprintf("%s, none longer than these, in the raw data.", diagnostic.Counted(rest, "more part"))
	}
	if len(groups) > 0 {
		c, err := bars(groups, "ms a run", "Time by part of a run")
		if err != nil {
			return nil, err
		}
		s.Charts = append(s.Charts, c)
	}
	s.Tables = append(s.Tables, t)
	// Blocks.
	if rest = blocks.longest(maxBlocks); len(blocks.list) == 0 {
		return s, nil
	}
	t = table{Head: heads(head{"block", false}, head{"kind", false})}
	for _, f := range blocks.list {
		t.Rows = append(t.Rows, append([]cell{code(f.name), text(f.kind)}, f.cells(digits)...))
	}
	if rest > 0 {
		t.More = fmt.Sprintf("%s, none longer than these, in the raw data.", diagnostic.Counted(rest, "more block"))
	}
	s.Tables = append(s.Tables, t)
	return s, nil
}

// folded are times of all sides by a name.
type folded struct {
	sides int
	at    map[string]*foldedPart
	list  []*foldedPart
}

type foldedPart struct {
	name, kind string
	ms         []float64
	at         []string // "" for a side that has none
}

func newFolded(sides int) *folded { return &folded{sides: sides, at: map[string]*foldedPart{}} }

func (f *folded) add(name, kind string, side int, ms float64, at string) {
	p := f.at[name]
	if p == nil {
		p = &foldedPart{name, kind, make([]float64, f.sides), make([]string, f.sides)}
		f.at[name], f.list = p, append(f.list, p)
	}
	p.ms[side], p.at[side] = ms, at
}

// longest leaves those that take longest on any side, and says how many it leaves out.
func (f *folded) longest(most int) (left int) {
	slices.SortStableFunc(f.list, func(a, b *foldedPart) int { return cmp.Compare(slices.Max(b.ms), slices.Max(a.ms)) })
	left = max(len(f.list)-most, 0)
	f.list = f.list[:len(f.list)-left]
	return left
}

func (p *foldedPart) cells(digits int) (list []cell) {
	for i, at := range p.at {
		if at == "" {
			list = append(list, text(""))
			continue
		}
		list = append(list, one(num(p.ms[i], at, fixed(p.ms[i], digits))))
	}
	return list
}

// memory is the section of peak RSS.
func (m *model) memory() (*section, error) {
	if m.A.Footprint == nil {
		return nil, nil
	}
	s := &section{ID: "memory", Title: "Memory",
		Text: []string{"Resident memory (RSS) of a process that opened a side and ran it once with each size of inputs: " +
			"when the model was open, and at most. What is mapped from files counts."}}
	t := table{Head: []head{{"side", false}, {"opened, MB", true}, {"peak, MB", true}}}
	var groups []bar
	for i := -1; i < len(m.Sides); i++ {
		o := m.of(i)
		if o.Footprint == nil {
			continue
		}
		at := m.opened(i) + "/memory"
		t.Rows = append(t.Rows, []cell{text(m.name(i)), megabytes(o.Footprint.OpenedRSSBytes, at+"/opened_rss_bytes"),
			megabytes(o.Footprint.PeakRSSBytes, at+"/peak_rss_bytes")})
	}
	if m.A.Footprint.PeakRSSBytes > 0 {
		s.Legend = legend(m.name(-1), m.names())
		opened, peak := bar{name: "opened"}, bar{name: "peak"}
		for i := -1; i < len(m.Sides); i++ {
			f := comparison.Footprint{}
			if o := m.of(i).Footprint; o != nil {
				f = *o
			}
			opened.values, peak.values = append(opened.values, float64(f.OpenedRSSBytes)/1e6),
				append(peak.values, float64(f.PeakRSSBytes)/1e6)
		}
		groups = append(groups, opened, peak)
		c, err := bars(groups, "MB", "Resident memory")
		if err != nil {
			return nil, err
		}
		s.Charts = append(s.Charts, c)
	}
	s.Tables = append(s.Tables, t)
	return s, nil
}

// plan is the section of what was replaced, and why.
func (m *model) plan() (*section, error) {
	s := &section{ID: "plan", Title: "Plan"}
	t := table{Head: []head{{"side", false}, {"blocks", true}, {"replaced", true}, {"plugins", false}, {"load, ms", true}}}
	choices := table{Head: []head{{"side", false}, {"blocks", true}, {"kind", false}, {"becomes", false},
		{"reason", false}, {"first node", false}}}
	for i := -1; i < len(m.Sides); i++ {
		o := m.of(i)
		t.Rows = append(t.Rows, []cell{text(m.name(i)), count(o.Blocks, m.opened(i)+"/blocks"),
			count(o.Replaced, m.opened(i)+"/replaced"), text(strings.Join(o.Plugins, ", ")),
			one(num(o.LoadMS, m.opened(i)+"/load_ms", fixed(o.LoadMS, 0)))})
		type kind struct{ kind, plugin, operator, reason string }
		var order []kind
		nodes := map[kind][]string{}
		for _, c := range o.Plan {
			k := kind{c.Kind, c.Plugin, c.Operator, c.Reason}
			if nodes[k] == nil {
				order = append(order, k)
			}
			nodes[k] = append(nodes[k], c.Node)
		}
		for _, k := range order {
			becomes := "left unchanged"
			if k.operator != "" {
				becomes = k.operator + " of " + k.plugin
			}
			choices.Rows = append(choices.Rows,
				[]cell{text(m.name(i)), text(fmt.Sprint(len(nodes[k]))), text(k.kind), text(becomes),
					{Text: k.reason, Class: "wrap"}, code(nodes[k][0])})
		}
	}
	choices.cut(maxChoices)
	s.Tables = append(s.Tables, t)
	if len(choices.Rows) > 0 {
		s.Text = []string{"What graft replaced on each side, and why it chose so. The raw data have every node."}
		s.Tables = append(s.Tables, choices)
	}
	return s, nil
}

// subject is the section of what was run where.
func (m *model) subject(o Options) (*section, error) {
	s := &section{ID: "environment", Title: "Inputs and environment"}
	if c := &m.Cells[0]; len(c.Inputs) > 0 {
		t := table{Head: []head{{"input", false}, {"type", false}, {"shape", false}, {"holds", false}}}
		for _, in := range c.Inputs {
			t.Rows = append(t.Rows, []cell{code(in.Name), text(in.Type), text(fmt.Sprint(in.Shape)), text(holds(in))})
		}
		t.cut(10)
		if len(m.Cells) > 1 {
			s.Text = []string{"Inputs of the first size, " + m.cellName(0) + "."}
		}
		s.Tables = append(s.Tables, t)
	}
	s.Tables = append(s.Tables,
		environment(&m.Environment, o,
			[][]cell{{text("model"), code(m.Model)},
				{text("seed of inputs"), one(num(float64(m.Seed), "/seed", fmt.Sprint(m.Seed)))}}))
	return s, nil
}

func holds(in inputs.Info) string {
	if in.Padding != nil {
		return fmt.Sprintf("%s, %.0f %% of the positions hidden", in.From, 100**in.Padding)
	}
	return in.From
}

// environment is the table of where figures were measured.
func environment(e *comparison.Environment, o Options, first [][]cell) table {
	t := table{Head: []head{{"", false}, {"", false}}, Rows: first}
	bandwidth := num(e.MemoryBandwidthGB, "/environment/memory_bandwidth_gb_s", fixed(e.MemoryBandwidthGB, 1))
	bandwidth.After = " GB/s"
	share := num(e.CoreShare, "/environment/core_share", fixed(100*e.CoreShare, 0))
	if share.After = " %"; e.Busy() {
		share.After = " %: the machine was busy, these times say little"
	}
	cores := num(float64(e.Cores), "/environment/cores", fmt.Sprint(e.Cores))
	cores.Before, cores.After = e.CPU+", ", " cores"
	t.Rows = append(t.Rows, []cell{text("processor"), one(cores)},
		[]cell{text("instruction sets"), text(strings.Join(e.ISA, ", "))},
		[]cell{text("memory bandwidth"), one(bandwidth)}, []cell{text("core that a thread gets"), one(share)},
		[]cell{text("ONNX Runtime"), text(e.ONNXRuntime)},
		[]cell{text("system"), text(e.OS + "/" + e.Arch + ", " + e.Go)}, []cell{text("date"), text(e.Date)})
	if o.Command != "" {
		t.Rows = append(t.Rows, []cell{text("command"), {Text: o.Command, Code: true, Class: "wrap"}})
	}
	return t
}
