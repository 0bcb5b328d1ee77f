package graft

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/hook"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/opening"
)

// A Patcher patches the sessions that name it, with options and counts of its own, beside what [Enable] does with all
// others or without it:
//
//	p, err := graft.NewPatcher(graft.Options{Verify: true})
//	if err != nil { ... }
//	err = sessionOptions.AddSessionConfigEntry(p.Entry())
//
// It is safe for concurrent use.
type Patcher struct {
	name   string
	hook   *hook.Hook
	counts hook.Counts
}

// The process's hooks: what Enable asked for, and the open patchers by name.
var (
	enabling sync.Mutex // held while they change
	enabled  *hook.Hook
	patchers atomic.Pointer[map[string]*Patcher] // is replaced, never changed
	made     int                                 // patchers so far
)

// NewPatcher loads plugins for sessions that name the patcher. It must be called after the runtime was initialised, and
// before execution providers are appended to options of such sessions. Errors are those of [Enable].
func NewPatcher(o Options) (*Patcher, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	enabling.Lock()
	defer enabling.Unlock()
	if libraries, err := ort.Loaded(); len(libraries) == 0 {
		return nil, opening.Public(err, ErrNoRuntime)
	}
	hook, err := o.hook()
	if err != nil {
		return nil, err
	}
	made++
	p := &Patcher{name: strconv.Itoa(made)}
	hook.Counts = &p.counts
	p.hook = hook.Ready()
	return p, change(enabled, func(open map[string]*Patcher) { open[p.name] = p })
}

// Entry is the session config entry that names the patcher: [ConfigPatcher] and its name in this process. A session
// that names one that is closed cannot be patched.
func (p *Patcher) Entry() (key, value string) { return ConfigPatcher, p.name }

// Patched is how many sessions were created with operators replaced.
func (p *Patcher) Patched() int64 { return p.counts.Patched.Load() }

// Reverted is that of the package, of this patcher's sessions.
func (p *Patcher) Reverted() int64 { return p.counts.Reverted.Load() }

// Shadowed is that of the package, of this patcher's sessions.
func (p *Patcher) Shadowed() (runs, differed int64) {
	return p.counts.Shadowed.Load(), p.counts.Differed.Load()
}

// Close ends the patching. Sessions that exist stay as they are.
func (p *Patcher) Close() error {
	enabling.Lock()
	defer enabling.Unlock()
	defer sessions.Forget()
	return change(enabled, func(open map[string]*Patcher) { delete(open, p.name) })
}

// change installs what Enable asks for, nil for nothing, and other patchers. After an error nothing is changed.
// enabling is held.
func change(enable *hook.Hook, patch func(open map[string]*Patcher)) error {
	libraries, err := ort.Loaded()
	if errors.Is(err, ort.ErrNotLoaded) {
		libraries, err = nil, nil
	}
	if err != nil {
		return opening.Public(err, ErrNoRuntime)
	}
	open := map[string]*Patcher{}
	if before := patchers.Load(); before != nil {
		maps.Copy(open, *before)
	}
	patch(open)
	var undo []func() error
	for _, l := range libraries {
		before := hook.Installed(l)
		if err := install(l, enable, len(open) > 0); err != nil {
			for _, f := range undo {
				err = errors.Join(err, f())
			}
			return opening.Public(err, nil)
		}
		undo = append(undo, func() error {
			if before == nil {
				return hook.Uninstall(l)
			}
			return hook.Install(l, *before)
		})
	}
	enabled = enable
	patchers.Store(&open)
	return nil
}

// install puts a hook into a library, or takes it out where nothing asks for one.
func install(l *ort.Library, enable *hook.Hook, named bool) error {
	if enable == nil && !named {
		return hook.Uninstall(l)
	}
	h := hook.Hook{Patcher: func(session.Request) (*session.Patch, error) { return nil, nil }}
	if enable != nil {
		h = *enable
	}
	h.Named = ofSession
	return hook.Install(l, h)
}

// ofSession is the hook of the patcher that a session names, nil where it names none.
func ofSession(r session.Request) *hook.Hook {
	name, ok := r.Config(ConfigPatcher)
	if !ok || name == "" {
		return nil
	}
	if open := patchers.Load(); open != nil && (*open)[name] != nil {
		return (*open)[name].hook
	}
	return hook.Hook{Patcher: func(session.Request) (*session.Patch, error) {
		return nil, fmt.Errorf("session config entry %s: found %q, needed the entry of a patcher that is open", ConfigPatcher,
			name)
	}}.Ready()
}
