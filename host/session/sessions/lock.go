package sessions

import (
	"slices"

	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/lockfile"
	"github.com/opgraft/graft/host/session/loaded"
)

// lock leaves of a session's plugins those that a lock file names. Each of them must be loaded, and be what the lock
// says.
func (s *Patcher) lock(o *plan.Options, path string) error {
	lock, err := lockfile.Read(path)
	if err != nil {
		return err
	}
	names := []string{}
	for _, p := range lock.Plugins {
		if _, err := loaded.Named(s.Plugins, p.Name); err != nil && !s.CUDA.Alone(p.Name) {
			return err
		}
		if o.Plugins == nil || slices.Contains(o.Plugins, p.Name) {
			names = append(names, p.Name)
		}
	}
	o.Plugins = names
	return asLocked(lock, s.Plugins)
}

// lockedOn holds the variants for a session's device against its lock.
func lockedOn(r session.Request, plugins []*plugin.Plugin) error {
	path, ok := r.Config(ConfigLock)
	if !ok || path == "" || len(plugins) == 0 {
		return nil
	}
	lock, err := lockfile.Read(path)
	if err != nil {
		return err
	}
	return asLocked(lock, plugins)
}

// asLocked refuses a loaded library that a lock names and that is another.
func asLocked(lock *lockfile.File, plugins []*plugin.Plugin) error {
	for _, p := range plugins {
		entry := lock.Plugin(p.Manifest.Name)
		if entry == nil {
			continue // not used
		}
		if err := lock.Loaded(entry, p.Folder, p.Manifest.SHA256(), p.Variant.File, p.SHA256); err != nil {
			return err
		}
	}
	return nil
}
