package plan

import (
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// Provider is the plugin that a plan takes a capability of, with its operator; nil for none.
func (o Options) Provider(manifests []*manifest.Manifest, name string) (*manifest.Manifest, *manifest.Operator) {
	ruledOut := func(plugin string) bool { return o.RulesOut(plugin) != "" }
	var named []*manifest.Manifest // in a plan file: these go before what costs less
	for _, m := range manifests {
		for i := range m.Operators {
			if o.names(m.Operators[i].Name) {
				named = append(named, m)
				break
			}
		}
	}
	if m, op := manifest.Provider(named, name, ruledOut); m != nil {
		return m, op
	}
	return manifest.Provider(manifests, name, ruledOut)
}

// lacksProvider says why there is no plugin that a plan could take a capability of.
func (o Options) lacksProvider(manifests []*manifest.Manifest, name string) string {
	if m, _ := manifest.Provider(manifests, name, nil); m != nil {
		return o.RulesOut(m.Name)
	}
	return "no plugin that provides " + name + " is loaded"
}

// names reports an operator that the plan file places somewhere.
func (o Options) names(operator string) bool {
	for _, name := range o.Fixed {
		if name == operator {
			return true
		}
	}
	return false
}

// provided are the plugins of which a plan takes capabilities, by these.
type provided map[string]*manifest.Manifest

// provide finds them, and notes in the graph which operators stand for what.
func provide(g *graph.Graph, manifests []*manifest.Manifest, o Options) provided {
	p := provided{}
	for _, name := range capability.Known() {
		if capability.Find(name).Many {
			for _, m := range manifests {
				if op := m.Providing(name); op != nil {
					g.Provide(name, manifest.Domain+"."+op.Name)
				}
			}
			continue
		}
		if m, op := o.Provider(manifests, name); m != nil {
			p[name] = m
			g.Provide(name, manifest.Domain+"."+op.Name)
		}
	}
	return p
}

// surplus reports an operator that puts into models what the plan takes of another plugin: what is laid out and joined
// around a capability's operators is so for those of one plugin.
func (p provided) surplus(m *manifest.Manifest, op *manifest.Operator) bool {
	for _, name := range op.Emits() {
		emitted, ok := m.Operator(name)
		if !ok {
			continue
		}
		for _, c := range emitted.Provides {
			if by := p[c]; by != nil && by != m {
				return true
			}
		}
	}
	return false
}
