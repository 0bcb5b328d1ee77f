// Package plan decides which operator runs which block: constraints over the
// block's facts first, then the expected time of the graph's nodes against
// the operator's, over the range of shapes that the graph allows. Every choice
// carries its reason, also the choice of none.
package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// MinGain is the expected speed-up, over the range of shapes, below which an
// operator is not used: the cost model is no more exact than that.
const MinGain = 1.02

// MaxLoss is the expected speed-up that must hold at every shape of the range.
const MaxLoss = 0.95

// Options narrow and force choices.
type Options struct {
	Plugins []string // use only these, by name; nil for all
	Except  []string // never use these
	Force   bool     // use every operator that applies, whatever it gains
	// QuantizationNoise lets operators stand before what rounds to integers as the model runs, see rounds.
	QuantizationNoise bool
	Fixed             map[string]string // block's node -> operator, from a plan file; others are left unchanged
	Folder            Folder            // computes folded weights; nil when plugins are not loaded
	// Fusions says what ONNX Runtime fuses in the unpatched model. Where it is nil, no operator stands before such
	// rounding for its bits: they are those of a session, and follow from what is fused there.
	Fusions func() ([]Fusion, error)
	// Described is how the plugins' libraries describe their operators, by plugin; what is not there is not checked.
	Described map[string][]signature.Operator
	// Kernel makes a plugin's kernel for a node, for its shapes; nil where plugins are not loaded, or are for another
	// device.
	Kernel  func(plugin string, n *onnx.Node) (Kernel, error)
	Machine Machine
	Padding Padding
	Device  *Device // that the session computes on; nil for the CPU
	// AsTheyLie leaves weights as stored in their files, where operators take them in panels else.
	AsTheyLie bool
	// OwnPanels says that whoever places the plan lays weights out anew by itself, those that stand for integers too.
	OwnPanels bool
}

// Kernel computes the shapes of a node's outputs from those of its inputs, as plugin.Kernel does.
type Kernel interface {
	Infer(inputs []*tensor.Tensor, wanted []bool) ([]*tensor.Tensor, error)
	Destroy()
}

// Choice is what was decided for one block or one match of a pattern.
type Choice struct {
	Node     string // path of the node the block was recognised by
	Kind     string // "attention" or "pattern"
	Block    *blocks.Block
	Match    *Match
	Plugin   string             // "" when the block is left unchanged
	Variant  string             // device of the variant that runs, cpu or cuda; "" when none has to
	Operator *manifest.Operator // nil when the block is left unchanged
	// Described are the plugin's operators as its library describes them; nil where that is not known.
	Described []signature.Operator
	Reason    string // why this operator, or why none
	Expected  Expectation
	Kept      *Choice // what is chosen where padding is kept; nil for a choice that has nothing to do with it
}

// Leave makes the choice that of no operator.
func (c *Choice) Leave(reason string) {
	c.Plugin, c.Variant, c.Operator, c.Described, c.Reason = "", "", nil, nil, reason
}

// Plan is the choices for one model, in the order of its nodes.
type Plan struct {
	Choices []Choice
	Fusions []Fusion // what Options.Fusions said

	rows   Rows
	packs  string // the plugin that takes rows out, or masks them
	panels bool
	times  []manifest.IntegerTimes // of the operator that takes panels
}

// Panels reports that weights are laid out in panels for the operators that take them so.
func (p *Plan) Panels() bool { return p.panels }

// Replaced counts the blocks and matches that an operator takes.
func (p *Plan) Replaced() int {
	n := 0
	for _, c := range p.Choices {
		if c.Operator != nil {
			n++
		}
	}
	return n
}

// Changes reports a plan that changes the graph.
func (p *Plan) Changes() bool { return p.Replaced() > 0 || p.Rows() != AllRows }

// Left says how many choices are left for which reasons: ": 5 because this; 1 because that".
func (p *Plan) Left() string {
	var text strings.Builder
	separator := ": "
	count := map[string]int{}
	for _, c := range p.Choices {
		if c.Operator == nil {
			count[c.Reason]++
		}
	}
	for _, c := range p.Choices {
		if n := count[c.Reason]; n > 0 {
			fmt.Fprintf(&text, "%s%d because %s", separator, n, c.Reason)
			separator, count[c.Reason] = "; ", 0
		}
	}
	return text.String()
}

// Make plans a model. The manifests are those of the loaded plugins, in order
// of preference.
func Make(g *graph.Graph, shapes *graph.Shapes, report *blocks.Report, manifests []*manifest.Manifest,
	o Options) *Plan {
	if o.Machine == (Machine{}) {
		o.Machine = ThisMachine()
	}
	p := &Plan{panels: o.inPanels()}
	by := provide(g, manifests, o)
	if m := by[capability.LinearPanels]; m != nil {
		p.times = m.Providing(capability.LinearPanels).IntegerTimes
	}
	e := newEstimator(shapes, roles.Find(g, shapes, report), p.times, o)
	for _, b := range report.Blocks {
		p.Choices = append(p.Choices, choose(e, b, manifests, o))
	}
	p.Choices = append(p.Choices, patterns(g, e, p, by, manifests, o)...)
	p.Choices = append(p.Choices, leftNBits(g, by, o)...)
	var r *rounds
	for i := range p.Choices {
		c := &p.Choices[i]
		if c.Operator != nil && !o.QuantizationNoise {
			if r == nil {
				r = findRounds(g)
			}
			if why := r.reason(c, o.Fusions != nil); why != "" {
				c.Leave(why)
			}
		}
		if c.Operator != nil && len(c.Operator.Emits()) > 0 {
			c.Variant = o.variant()
		}
		c.Described = o.Described[c.Plugin]
	}
	p.askFusions(o)
	return p
}

// variant is the device of the variants that run.
func (o Options) variant() string {
	if o.Device == nil {
		return tensor.CPU.Kind
	}
	return o.Device.Kind
}

// choose picks the operator with the best expectation for a block.
func choose(e *estimator, b *blocks.Block, manifests []*manifest.Manifest, o Options) Choice {
	c := Choice{Node: b.Node, Kind: b.Kind, Block: b}
	if b.Obstacle != "" {
		c.Reason = b.Obstacle
		return c
	}
	if c.Reason = operands(e.shapes, b); c.Reason != "" {
		return c
	}
	facts := b.Facts()
	reasons := ""
	for _, m := range manifests {
		for i := range m.Operators {
			op := &m.Operators[i]
			if op.Replaces.Block != b.Kind {
				continue
			}
			if why := o.excludes(m.Name, op.Name, b.Node); why != "" {
				reasons = join(reasons, why)
				continue
			}
			if ok, why := op.Where.Allows(facts); !ok {
				reasons = join(reasons, m.Name+": "+why)
				continue
			}
			if why := o.Device.lacks(m, op, facts["dtype"]); why != "" {
				reasons = join(reasons, why)
				continue
			}
			if why := o.cannotStand(m.Name, op.Name, b, e.shapes); why != "" {
				reasons = join(reasons, m.Name+": "+why)
				continue
			}
			x := e.attention(b, op)
			if !o.Force && o.Fixed == nil && !x.gains() {
				reasons = join(reasons, m.Name+": "+x.String())
				continue
			}
			if c.Operator == nil || x.Speedup > c.Expected.Speedup {
				c.Plugin, c.Operator, c.Expected = m.Name, op, x
			}
		}
	}
	switch {
	case c.Operator != nil:
		c.Reason = c.Expected.reason(o)
	case reasons != "":
		c.Reason = reasons
	default:
		c.Reason = "no loaded plugin implements blocks of kind " + b.Kind
	}
	return c
}

// excludes says why an operator may not be considered, or "".
func (o Options) excludes(plugin, operator, node string) string {
	if why := o.RulesOut(plugin); why != "" {
		return why
	}
	if o.Fixed != nil && o.Fixed[node] != operator {
		return "the plan file leaves it unchanged"
	}
	return ""
}

// RulesOut says why a plugin may not be used, or "".
func (o Options) RulesOut(plugin string) string {
	switch {
	case slices.Contains(o.Except, plugin):
		return plugin + " is excepted"
	case o.Plugins != nil && !slices.Contains(o.Plugins, plugin):
		return plugin + " was not asked for"
	}
	return ""
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
