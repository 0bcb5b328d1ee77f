package manifest

import "go.yaml.in/yaml/v3"

// kvCache reads how an operator attends over the host's KV cache.
func (r *reader) kvCache(n *yaml.Node, what string) *KVCache {
	f := r.fields(n, what, "strategy")
	if f == nil {
		return nil
	}
	if f["strategy"] == nil {
		r.fail(n.Line, "%s.strategy is missing; add it", what)
	}
	return &KVCache{Strategy: r.oneOf(f["strategy"], what+".strategy", Strategies...)}
}
