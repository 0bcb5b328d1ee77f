package decode

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/opgraft/graft/host/decode/engine"
	"github.com/opgraft/graft/host/machine"
	"github.com/opgraft/graft/host/patch"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/rewrite"
	"github.com/opgraft/graft/host/tune"
)

// Attention says what the layers of attention are to keep.
type Attention struct {
	// Self and Cross are what to keep wherever it can be; plan.KeepPlain leaves it to the
	// planner.
	Self, Cross plan.Keep
	Servers     plan.Servers // the operators that attend over it
	Prefer      plan.Prefer  // what the planner aims at; "" is plan.PreferSpeed
	Beams       int          // of a sample, as far as they are known; 0: 1 to 8
	// Storage and Skip trade accuracy: the type that rows are kept in, "" for
	// plan.Float32, and the probability below which a key's value is left out where keys
	// are kept alone.
	Storage plan.Storage
	Skip    float64
	// Choose lets each sample keep keys and values where it says false, although Cross is
	// plan.KeepLatent: by the positions of its encoder's output, and its beams. nil: none.
	Choose func(positions, beams int) bool
}

// ParseAttention reads what to keep by name: one for all layers, or self=NAME,
// cross=NAME, or both with a comma between. Names are those of plan.KeepNamed, or of a
// plugin of the manifests, whose operators then attend over what they say they keep.
// Behind a name may stand what costs accuracy, for all layers: :float16 or :bfloat16,
// and :skip=P.
func ParseAttention(text string, manifests []*plugin.Manifest) (a Attention, err error) {
	for part := range strings.SplitSeq(text, ",") {
		part, lossy, _ := strings.Cut(part, ":")
		if err := a.lossy(lossy); err != nil {
			return a, err
		}
		where, name, chosen := strings.Cut(part, "=")
		if !chosen {
			where, name = "", part
		}
		keep, err := a.served(name, manifests)
		if err != nil {
			return a, err
		}
		if keep == plan.KeepPlain {
			return a, fmt.Errorf("an engine keeps nothing as the model was exported; compare with --baseline")
		}
		taken := plan.KeepPlain
		switch where {
		case "":
			taken = max(a.Self, a.Cross)
			a.Self, a.Cross = keep.Within("self"), keep.Within("cross")
		case "self":
			taken, a.Self = a.Self, keep
		case "cross":
			taken, a.Cross = a.Cross, keep
		default:
			return a, fmt.Errorf("%q is no kind of attention, needed is self or cross", where)
		}
		if taken != plan.KeepPlain {
			return a, fmt.Errorf("%s and %s are both named for the same layers", taken, name)
		}
		if where != "" && keep.Within(where) != keep {
			return a, fmt.Errorf("%s attention cannot keep what %s does", where, name)
		}
	}
	return a, a.idle()
}

// served is what a name keeps. A plugin that keeps several things is taken for the first
// of its manifest.
func (a *Attention) served(name string, manifests []*plugin.Manifest) (plan.Keep, error) {
	keep, unknown := plan.KeepNamed(name)
	if unknown == nil {
		return keep, nil
	}
	for _, m := range manifests {
		if m.Name != name {
			continue
		}
		if list := a.Servers.Take(m); len(list) > 0 {
			return list[0], nil
		}
		return 0, fmt.Errorf("no operator of the plugin %s attends over a cache: its %s names none that keeps anything", name, plugin.ManifestName)
	}
	if manifests == nil {
		return 0, unknown
	}
	return 0, fmt.Errorf("%w, or a plugin that is loaded", unknown)
}

// idle reports what costs accuracy where nothing that may be kept takes it.
func (a *Attention) idle() error {
	kept := []plan.Keep{a.Self, a.Cross}
	if a.Skip > 0 && !slices.ContainsFunc(kept, func(k plan.Keep) bool {
		return k == plan.KeepPlain || k == plan.KeepKeys || k == plan.KeepFirstKeys
	}) {
		return fmt.Errorf("skip leaves out values of keys that are kept alone, and neither %s nor %s keeps those", a.Self, a.Cross)
	}
	if a.Storage != "" && a.Storage != plan.Float32 && a.Self == plan.KeepKeysAndValues && a.Cross == plan.KeepKeysAndValues {
		return fmt.Errorf("%s keeps keys and values, which are float32 always, not %s", a.Self, a.Storage)
	}
	return nil
}

// lossy reads what stands behind a name.
func (a *Attention) lossy(text string) (err error) {
	if text == "" {
		return nil
	}
	for word := range strings.SplitSeq(text, ":") {
		p, skip := strings.CutPrefix(word, "skip=")
		switch {
		case skip:
			if a.Skip, err = strconv.ParseFloat(p, 64); err != nil || !(a.Skip >= 0 && a.Skip < 1) {
				return fmt.Errorf("skip is %q, needed is a probability below 1", p)
			}
		case word == string(plan.Float32), word == string(plan.Float16), word == string(plan.BFloat16):
			a.Storage = plan.Storage(word)
		default:
			return fmt.Errorf("%q is not understood, needed is float32, float16, bfloat16 or skip=P", word)
		}
	}
	return nil
}

// candidates are what a kind of attention could keep with the plugins at hand that the
// caller lets in, the default first.
func (o Options) candidates(kind string) (list []plan.Candidate) {
	for _, keep := range plan.Keeps() {
		server := o.Attention.Servers.Of(keep)
		if keep != plan.KeepKeysAndValues && o.Plan.RulesOut(server.Plugin) != "" {
			continue
		}
		if _, err := patch.Named(o.Plugins.Plugins, server.Plugin); err == nil && keep.Within(kind) == keep {
			list = append(list, plan.Candidate{Keep: keep, Storage: o.Attention.Storage})
		}
	}
	return list
}

// decide is engine.Options.Decide: what the caller named, and the planner's choice for
// what was left open. Only a choice is worth knowing the machine for.
func (g *Generator) decide(kinds []plan.Layers) (keeps engine.Keeps, err error) {
	o := g.options
	keeps.Servers, keeps.Storage, keeps.Skip = o.Attention.Servers, o.Attention.Storage, o.Attention.Skip
	encoder := slices.ContainsFunc(kinds, func(l plan.Layers) bool { return l.Type == "cross" })
	var list []plan.Kind
	choice := o.Explain
	for _, l := range kinds {
		k := plan.Kind{Layers: l, Named: o.Attention.named(l.Type), Candidates: o.candidates(l.Type), Refused: g.refused[l.Type],
			Range: g.shapes(l, encoder), Either: true}
		if k.Named != plan.KeepPlain {
			server := o.Attention.Servers.Of(k.Named)
			if err := o.Plugins.Require([]string{server.Plugin}); err != nil {
				return keeps, err
			}
			if why := o.Plan.RulesOut(server.Plugin); why != "" && k.Named != plan.KeepKeysAndValues {
				return keeps, fmt.Errorf("%s attention is to keep what %s does, and %s", l.Type, k.Named, why)
			}
		}
		choice = choice || k.Named == plan.KeepPlain && len(k.Candidates) > 1
		list = append(list, k)
	}
	limits := plan.CacheOptions{Prefer: o.Attention.Prefer, Within: o.CacheBytes}
	if g.bounded {
		limits.MaxBytes = o.CacheBytes
	}
	p := plan.NewPredictor(plan.ThisMachine(), o.Plugins.Manifests(), nil)
	if choice {
		p = g.predictor(kinds)
	}
	if g.choices, err = plan.ChooseCaches(p, list, limits); err != nil {
		return keeps, err
	}
	for i := range g.choices {
		c := &g.choices[i]
		if c.Kind.Layers.Type == "self" {
			keeps.Self = c.Candidate.Keep
			continue
		}
		if keeps.Cross = c.Candidate.Keep; c.Kind.Named == plan.KeepLatent {
			keeps.Choose = o.Attention.Choose
		}
		if c.Either != nil {
			either, steps := c.Either, c.Kind.Range.Steps
			keeps.Cross = plan.KeepLatent
			keeps.Choose = func(keys, beams int) bool {
				return either.Pick(plan.Shape{Keys: int64(keys), Beams: int64(beams), Batch: int64(g.limit(beams)), Steps: steps}) == 1
			}
		}
	}
	return keeps, nil
}

// predictor knows this machine, and what was measured on it.
func (g *Generator) predictor(kinds []plan.Layers) *plan.Predictor {
	o := g.options
	m, err := machine.Roofline(o.Plugins.Plugins, machine.Options{Threads: o.Threads})
	g.notes = nil // those of a plan that did not hold
	if err != nil {
		g.notes = append(g.notes, err) // m is an estimate then
	}
	measured, notes := tune.Load("", o.Plugins.Plugins, o.Threads, kinds...)
	g.notes = append(g.notes, notes...)
	return plan.NewPredictor(m, o.Plugins.Manifests(), measured)
}

// errAgain says that the planner's choice did not hold, and it knows better now.
var errAgain = errors.New("weights rule out what was planned")

// accept is engine.Options.Accept: a choice that the planner made for speed must hold in
// every layer. What stands in for it where weights rule it out may be slower than the
// default.
func (g *Generator) accept(served []rewrite.Served) error {
	if g.options.Attention.Prefer == plan.PreferMemory {
		return nil // what stands in for keys takes no more than they
	}
	for i := range g.choices {
		c := &g.choices[i]
		kind := c.Kind.Layers.Type
		at := slices.IndexFunc(served, func(s rewrite.Served) bool { return s.Type == kind && s.Reason != "" })
		if at < 0 || g.options.Attention.named(kind) != plan.KeepPlain {
			continue
		}
		ruledOut := c.Candidate
		if c.Either != nil {
			ruledOut = c.Either.Candidates()[1]
		}
		if ruledOut == c.Options[0].Candidate {
			continue
		}
		if g.refused == nil {
			g.refused = map[string]map[plan.Candidate]string{}
		}
		if g.refused[kind] == nil {
			g.refused[kind] = map[plan.Candidate]string{}
		}
		g.refused[kind][ruledOut] = served[at].Node + ": " + served[at].Reason
		return errAgain
	}
	return nil
}

// named is what a kind of attention was told to keep, or plan.KeepPlain.
func (a Attention) named(kind string) plan.Keep {
	if kind == "self" {
		return a.Self
	}
	return a.Cross
}

// shapes are those that a kind of attention is expected to meet.
func (g *Generator) shapes(l plan.Layers, encoder bool) plan.Range {
	const mostBeams, fewest, start = 8, 16, 4
	positions := min(g.config.Positions, g.options.MaxPositions)
	beams := [2]int64{1, mostBeams}
	if n := int64(g.options.Attention.Beams); n > 0 {
		beams = [2]int64{n, n}
	}
	r := plan.Range{Beams: beams, Batch: [2]int64{1, int64(g.limit(int(beams[1])))}, Steps: min(expectedSteps, positions)}
	if l.Type == "cross" {
		r.Keys = [2]int64{min(fewest, g.config.EncoderPositions), min(g.config.EncoderPositions, mostPlanned)}
		if g.config.FeatureShape() != nil {
			r.Keys[0] = r.Keys[1] // sound is cut and filled up to one length
		}
		return r
	}
	r.Own = [2]int64{0, r.Steps}
	most := max(1, positions-r.Steps)
	r.Keys = [2]int64{min(fewest, most), most}
	if encoder { // the input is the encoder's, and the decoder begins with a few tokens
		r.Keys = [2]int64{1, min(start, most)}
	}
	return r
}

// mostPlanned is the longest input of an encoder that is reckoned with, as far as graft
// tune measures.
const mostPlanned = 2048

// expectedSteps is how many tokens a sample is taken to generate where its cache is
// planned.
const expectedSteps = 64

// Choices are what each kind of attention keeps, with what else it could.
func (g *Generator) Choices() []plan.CacheChoice { return g.choices }

// Notes are what the planner went without, and why: figures of this machine.
func (g *Generator) Notes() []error { return g.notes }
