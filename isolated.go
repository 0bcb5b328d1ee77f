package graft

import (
	"time"

	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/session/isolation"
	"github.com/opgraft/graft/host/session/loaded"
)

// Isolated runs the kernels of the plugins of these names in a worker process each, over shared memory: their
// libraries are never loaded here. A crash, an exit or a hang of theirs is an error of that run, which is repeated
// with the model itself, so that the program gets the model's results; the worker is started again, and until it is
// there runs are the model's. See [Crashes], [CallDeadline] and [Isolations]. With [Strict] the program gets the
// error. docs/embedding.md says what a call costs.
//
// A worker is this program where main calls [Worker] first, else the graft executable beside it or on PATH. A plugin
// that is not installed is [ErrNoPlugin]. One that cannot be isolated, because it computes weights from weights or is
// for the KV cache of generators alone, or whose library fails as it is loaded, is [ErrBadPlugin]. The session config
// entry [ConfigIsolate] names plugins for one session.
func Isolated(names ...string) EnableOption {
	return enableOption(func(o *enableOptions) { o.isolated = append(o.isolated, names...) })
}

// Crashes says at which crash, exit or hang of an isolated plugin's workers it is not run again, in any session of
// the process: 3 without it. Sessions with its operators run unpatched from then on, and new ones do without it.
// Below 1 it is an [ErrOption].
func Crashes(n int) EnableOption {
	return enableOption(func(o *enableOptions) { o.crashes = &n })
}

// CallDeadline is how long an operator of an isolated plugin may take, after which its worker is ended: 30 seconds
// without this option. At 0 and below it is an [ErrOption].
func CallDeadline(d time.Duration) EnableOption {
	return enableOption(func(o *enableOptions) { o.isolation.Deadline, o.deadline = d, true })
}

// isolating checks what was said of isolation, and completes it.
func (o *enableOptions) isolating() error {
	if o.crashes != nil {
		if o.isolation.Crashes = *o.crashes; o.isolation.Crashes < 1 {
			return refuse("Crashes is %d, needed is a number from 1", o.isolation.Crashes)
		}
	}
	if o.deadline && o.isolation.Deadline <= 0 {
		return refuse("CallDeadline is %v, needed is a time above 0", o.isolation.Deadline)
	}
	o.isolation.Logger = o.logger
	if len(o.isolated) > 0 {
		o.isolate = &loaded.Isolate{Names: o.isolated, Options: o.isolation}
	}
	return nil
}

// An Isolation is what became of an isolated plugin in this process.
type Isolation struct {
	Plugin string
	// Calls are those of operators that a worker answered.
	Calls int64
	// Crashes are workers that ended by a crash, an exit, a hang, or an answer that none may give. Hangs are those of
	// them that took too long.
	Crashes, Hangs int64
	// Instead are runs that the model itself did because a worker ended or was not there.
	Instead int64
	// Gone says that the plugin is not run again: see Crashes.
	Gone bool
}

// Isolations are the isolated plugins of this process, by name, with what became of them since it began.
func Isolations() (list []Isolation) {
	for _, s := range isolation.Stats() {
		list = append(list, Isolation(s))
	}
	return list
}

// Worker turns the process into a worker, and never returns, where graft started it as one; otherwise it notes that
// this program can be one, and returns. A program that isolates plugins calls it first in main, before flags are
// read, or has the graft executable beside it or on PATH.
func Worker() { worker.Main(isolation.Tasks()) }
