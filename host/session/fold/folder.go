package fold

import (
	"fmt"

	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Plugins are loaded plugins whose folds of patterns go through a cache: a
// plan.Folder. Results have the precision in which plugins emit them, because the
// graph says what they are converted to.
type Plugins struct {
	Cache  *Cache
	Loaded []*plugin.Plugin
}

// Fold computes with the plugin of a name, or gives what was computed before.
func (p Plugins) Fold(name, operator string, constants []tensor.Weight,
	attributes []manifest.Attribute) ([]tensor.Weight, error) {
	for _, l := range p.Loaded {
		if l.Manifest.Name != name {
			continue
		}
		r, err := p.Cache.get(from(l), operator, constants, attributes, float64s)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return r.unpack(), nil
	}
	return nil, fmt.Errorf("no plugin %q is loaded", name)
}
