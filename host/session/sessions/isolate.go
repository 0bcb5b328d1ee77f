package sessions

import (
	"fmt"
	"strings"

	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/host/session/isolation"
	"github.com/opgraft/graft/host/session/loaded"
)

// names are those of a list with commas between.
func names(list string) (out []string) {
	for _, name := range strings.Split(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}

// isolating is a Patcher of which those plugins are isolated that a session asks for.
func (s *Patcher) isolating(r session.Request) (*Patcher, error) {
	v, _ := r.Config(ConfigIsolate)
	list := names(v)
	if len(list) == 0 {
		return s, nil
	}
	plugins, err := loaded.Apart(s.Plugins, list, s.Isolation)
	if err != nil {
		return nil, fmt.Errorf("session config entry %s: %w", ConfigIsolate, err)
	}
	other := *s
	other.Plugins, other.Options.Kernel = plugins, loaded.Kernels(plugins)
	return &other, nil
}

// isolated leaves out of a plan the isolated plugins that a session cannot use: those that are not run again, and on
// a device all.
func (s *Patcher) isolated(r session.Request, o *plan.Options, device tensor.Device) {
	for _, p := range s.Plugins {
		x := isolation.For(p)
		if x == nil {
			continue
		}
		why := ""
		if gone := x.Gone(); gone != nil {
			why = gone.Error()
		} else if device != tensor.CPU {
			why = "isolated plugins compute on the CPU alone, and the session on " + device.String()
		}
		if why == "" {
			continue
		}
		o.Except = append(o.Except[:len(o.Except):len(o.Except)], p.Manifest.Name)
		if s.Logger != nil {
			s.Logger.Info("graft: an isolated plugin is left out", "model", modelName(r), "plugin", p.Manifest.Name, "reason",
				why)
		}
	}
}
