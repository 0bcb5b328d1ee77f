package prepare

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// Attention says what the layers of attention are to store.
type Attention struct {
	// Self and Cross are what to store wherever it can be; "" leaves it to the
	// planner.
	Self, Cross     plan.Strategy
	Implementations plan.Implementations // the operators that attend over it
	Prefer          plan.Prefer          // what the planner aims at; "" is plan.PreferSpeed
	Beams           int                  // of a request, as far as they are known; 0: 1 to 8
	// Storage and Skip trade accuracy: the type that all caches have, "" for plan.Float32, and
	// the probability below which a key's value is left out where keys are stored alone.
	Storage plan.Storage
	Skip    float64
	// Choose lets each request store keys and values where it says false, although Cross is
	// plan.PromptHiddenStates: by the positions of its encoder's output, and its beams. nil: none.
	Choose func(positions, beams int) bool
}

// ParseAttention reads what to store by name: one for all layers, or self=NAME,
// cross=NAME, or both with a comma between. Names are those of plan.ParseStrategy, or of a
// plugin of the manifests, whose operators then attend over what they say they store.
// Behind a name may stand what costs accuracy, for all layers: :float16, :bfloat16 or
// :int8, and :skip=P.
func ParseAttention(text string, manifests []*manifest.Manifest) (a Attention, err error) {
	for part := range strings.SplitSeq(text, ",") {
		part, lossy, _ := strings.Cut(part, ":")
		if err := a.lossy(lossy); err != nil {
			return a, err
		}
		where, name, chosen := strings.Cut(part, "=")
		if !chosen {
			where, name = "", part
		}
		named, err := a.strategy(name, manifests)
		if err != nil {
			return a, err
		}
		if named == plan.Exported {
			return a, fmt.Errorf("exported is no strategy of an engine; compare with --baseline")
		}
		var taken plan.Strategy
		switch where {
		case "":
			taken = max(a.Self, a.Cross)
			a.Self, a.Cross = named.Within("self"), named.Within("cross")
		case "self":
			taken, a.Self = a.Self, named
		case "cross":
			taken, a.Cross = a.Cross, named
		default:
			return a, fmt.Errorf("%q is no kind of attention, needed is self or cross", where)
		}
		if taken != "" {
			return a, fmt.Errorf("%s and %s are both named for the same layers", taken, name)
		}
		if where != "" && named.Within(where) != named {
			return a, fmt.Errorf("%s attention cannot use %s", where, name)
		}
	}
	return a, a.idle()
}

// strategy is what a name stores. A plugin that stores several things is taken for the first
// of its manifest.
func (a *Attention) strategy(name string, manifests []*manifest.Manifest) (plan.Strategy, error) {
	known := a.Implementations.Among(manifests)
	if s := plan.Strategy(name); known.Layout(s) != nil {
		return s, nil
	}
	unknown := fmt.Errorf("%q is no KV-cache strategy, needed is one of %v", name, known.Strategies())
	for _, m := range manifests {
		if m.Name != name {
			continue
		}
		if list := a.Implementations.Take(m); len(list) > 0 {
			return list[0], nil
		}
		return "", fmt.Errorf("no operator of the plugin %s attends over a KV cache: its %s declares no kv_cache", name,
			manifest.FileName)
	}
	if manifests == nil {
		return "", unknown
	}
	return "", fmt.Errorf("%w, or a plugin that is loaded", unknown)
}

// idle reports what costs accuracy where nothing that may be stored takes it.
func (a *Attention) idle() error {
	stored := []plan.Strategy{a.Self, a.Cross}
	if a.Skip > 0 && !slices.ContainsFunc(stored, func(k plan.Strategy) bool {
		return k == "" || k == plan.Keys || k == plan.FirstLayerKeys
	}) {
		return fmt.Errorf("skip leaves out values where keys are stored alone, and neither %s nor %s stores those", a.Self,
			a.Cross)
	}
	return nil
}

// lossy reads what stands after a name.
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
		default:
			if a.Storage, err = plan.ParseStorage(word); err != nil {
				return fmt.Errorf("%q is not understood, needed is float32, float16, bfloat16, int8 or skip=P", word)
			}
		}
	}
	return nil
}

// named is what a kind of attention was told to store, or "".
func (a *Attention) named(kind string) plan.Strategy {
	if kind == "self" {
		return a.Self
	}
	return a.Cross
}
