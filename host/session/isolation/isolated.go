package isolation

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// What Options have where they say nothing.
const (
	DefaultDeadline = 30 * time.Second
	DefaultCrashes  = 3
)

// Options say how a plugin is isolated.
type Options struct {
	// Deadline is how long a call may take, and loading the library; 0 is DefaultDeadline.
	Deadline time.Duration
	// Crashes is at which crash, exit or hang of its workers a plugin is not run again; 0 is DefaultCrashes.
	Crashes int
	// Memory bounds what a worker may take, in bytes; 0 is half of the machine's.
	Memory int64
	// Logger is told of the first crash and of the last; nil is slog.Default().
	Logger *slog.Logger
}

// How long a worker that ended is waited for before it is started again: the least, which doubles while workers end
// before they have answered a call.
const (
	leastPause = 10 * time.Millisecond
	mostPause  = 30 * time.Second
)

// idle is how long a worker without kernels stays.
var idle = 30 * time.Second

// Isolated is a plugin whose kernels run in workers, one at a time.
type Isolated struct {
	name, folder, path, sha256 string
	apart                      *plugin.Plugin // what the host has of it

	mu        sync.Mutex
	options   Options
	link      *link         // that runs; nil for none
	starting  chan struct{} // closed when the start in progress is done; nil for none
	constants *region       // of all kernels
	room      room
	kernels   int
	since     int // how often kernels came to be none
	pause     time.Duration
	notBefore time.Time
	gone      error

	operators map[*ort.Library][]uintptr

	calls, crashes, hangs, instead atomic.Int64
}

// all are the isolated plugins of the process, by the folder and the hash of their library.
var all struct {
	sync.Mutex
	list []*Isolated
}

// Open opens a plugin's folder for the CPU, without its code: a worker loads the library and says what it is. Errors
// are those of plugin.Open, of worker.Start, and of Refuse.
func Open(folder string, open plugin.OpenOptions, o Options) (*plugin.Plugin, error) {
	var x *Isolated
	p, err := plugin.OpenApart(folder, open, func(p *plugin.Plugin) (*plugin.Info, error) {
		if err := refuse(p); err != nil {
			return nil, err
		}
		x = of(p, o)
		return x.describe()
	})
	if err != nil {
		return nil, err
	}
	return x.known(p), nil
}

// Of is a loaded plugin with its kernels in workers, for sessions that ask for it.
func Of(p *plugin.Plugin, o Options) (*plugin.Plugin, error) {
	if p.Apart() {
		return p, nil
	}
	if err := refuse(p); err != nil {
		return nil, err
	}
	return of(p, o).known(p.Without()), nil
}

// For is what runs the kernels of a plugin that Open or Of gave; nil for others.
func For(p *plugin.Plugin) *Isolated {
	if !p.Apart() {
		return nil
	}
	all.Lock()
	defer all.Unlock()
	for _, x := range all.list {
		if x.is(p) {
			return x
		}
	}
	return nil
}

func (x *Isolated) is(p *plugin.Plugin) bool { return x.folder == p.Folder && x.sha256 == p.SHA256 }

// of finds or makes a plugin's.
func of(p *plugin.Plugin, o Options) *Isolated {
	o.Deadline, o.Crashes, o.Logger = cmp.Or(o.Deadline, DefaultDeadline), cmp.Or(o.Crashes, DefaultCrashes),
		cmp.Or(o.Logger, slog.Default())
	all.Lock()
	defer all.Unlock()
	for _, x := range all.list {
		if x.is(p) {
			x.mu.Lock()
			x.options = o
			x.mu.Unlock()
			return x
		}
	}
	x := &Isolated{name: p.Manifest.Name, folder: p.Folder, path: p.Path, sha256: p.SHA256, options: o,
		operators: map[*ort.Library][]uintptr{}}
	all.list = append(all.list, x)
	return x
}

// known is the one plugin without code that stands for x, with the manifest that p has: that is what was checked of
// the folder last.
func (x *Isolated) known(p *plugin.Plugin) *plugin.Plugin {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.apart == nil || x.apart.Manifest.SHA256() != p.Manifest.SHA256() {
		x.apart = p
	}
	return x.apart
}

// refuse says why a plugin cannot be isolated.
func refuse(p *plugin.Plugin) error {
	no := func(why, fix string) error {
		return &diagnostic.Error{Kind: refusal.ErrIncompatible, Path: p.Folder,
			Found: "cannot isolate plugin " + p.Manifest.Name + ": " + why, Fix: fix}
	}
	stores := map[string]bool{} // operators that only those over a cache need
	for _, op := range p.Manifest.Operators {
		if op.KVCache != nil {
			stores[op.KVCache.Store] = true
		}
	}
	usable := false
	for i := range p.Manifest.Operators {
		op := &p.Manifest.Operators[i]
		if op.Folds() {
			return no("its operator "+op.Name+" computes weights from weights, which the program would have to do with its code",
				"use it without isolation, or leave it out")
		}
		usable = usable || op.KVCache == nil && !stores[op.Name]
	}
	if !usable {
		return no("it has operators over the KV cache of graft generate alone, which lies in this process",
			"use it without isolation, or leave it out")
	}
	if runtime.GOOS != "linux" {
		return no("on "+runtime.GOOS+" there is no memory to share with a worker", "use Linux")
	}
	return nil
}

// describe is what the library says of itself.
func (x *Isolated) describe() (*plugin.Info, error) {
	l, err := x.acquire()
	if err != nil {
		return nil, err
	}
	defer l.users.Done()
	info := l.info
	x.rest()
	return info, sound(info, x.path)
}

// sound refuses a description that a library in this process could not have given: the worker's code wrote it.
func sound(info *plugin.Info, path string) error {
	bad := func(format string, args ...any) error {
		return refusal.Incompatible(path, "a faulty description: "+fmt.Sprintf(format, args...),
			"one as abi/graft_plugin.h says", "report this to its author")
	}
	const most = 256
	if len(info.Operators) > most {
		return bad("%d operators", len(info.Operators))
	}
	for _, op := range info.Operators {
		if len(op.Inputs)+len(op.Outputs) > maxTensors || op.Name == "" || strings.ContainsRune(op.Name, 0) {
			return bad("an operator %q of %d inputs and %d outputs", diagnostic.Clip(op.Name), len(op.Inputs), len(op.Outputs))
		}
		for _, x := range slices.Concat(op.Inputs, op.Outputs) {
			if len(x.Types) == 0 {
				return bad("a parameter %q without types", diagnostic.Clip(x.Name))
			}
			for _, t := range x.Types {
				if _, err := elementOf(t); err != nil {
					return bad("%v", err)
				}
			}
		}
	}
	return nil
}

// acquire gives the worker that runs, starting one where that may be. Its caller says when it is done, by users.
func (x *Isolated) acquire() (*link, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for {
		x.look()
		switch {
		case x.gone != nil:
			return nil, x.gone
		case x.link != nil && x.link.over():
			l := x.link
			x.mu.Unlock()
			_ = l.fail(l.child.Fate()) // what it had to say is in x then
			x.mu.Lock()
		case x.link != nil:
			x.link.users.Add(1)
			return x.link, nil
		case x.starting != nil:
			wait := x.starting
			x.mu.Unlock()
			<-wait
			x.mu.Lock()
		case time.Now().Before(x.notBefore):
			return nil, ended(fmt.Errorf("plugin %s: its worker ended and is not started again before %v have gone", x.name,
				x.pause))
		default:
			if err := x.start(); err != nil {
				return nil, err
			}
		}
	}
}

// start starts a worker. The lock is held, and not meanwhile.
func (x *Isolated) start() (err error) {
	done := make(chan struct{})
	x.starting = done
	defer func() {
		x.starting = nil
		close(done)
		if x.gone != nil && x.kernels == 0 {
			x.forget()
		}
	}()
	if x.constants == nil {
		if x.constants, err = newConstants(); err != nil {
			return x.wrong(err)
		}
		x.room = room{}
	}
	constants, o := x.constants, x.options
	x.mu.Unlock()
	l, err := newLink(openRequest{Folder: x.folder, SHA256: x.sha256, Threads: runtime.GOMAXPROCS(0)}, constants,
		worker.Options{Subject: x.path, Deadline: o.Deadline, Memory: o.Memory}, x.lost)
	x.mu.Lock()
	if err != nil {
		x.crashed(err, false)
		return x.wrong(err)
	}
	if l.dead.Load() { // meanwhile: lost has been told, and found that it is not ours
		x.crashed(l.fail(nil), false)
		l.close()
		return ended(l.fail(nil))
	}
	x.link = l
	return nil
}

// newConstants is memory for constants, as much as the process may have.
func newConstants() (r *region, err error) {
	for size := int64(maxConstant); ; size /= 4 {
		if r, err = newRegion("graft-constants", size, true); err == nil || size <= leastWindow {
			return r, err
		}
	}
}

// wrong words why no worker could be started.
func (x *Isolated) wrong(err error) error {
	var known *diagnostic.Error
	if errors.As(err, &known) {
		return err
	}
	return &diagnostic.Error{Kind: refusal.ErrVerification, Path: x.path,
		Found: "cannot isolate plugin " + x.name + ": " + err.Error(), Cause: err}
}

// lost is told that a worker ended which nobody had told to.
func (x *Isolated) lost(l *link, cause error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.link == l {
		x.lose(l, cause)
	}
}

// look finds out that a worker ended before lost is told. The lock is held.
func (x *Isolated) look() {
	if l := x.link; l != nil && l.dead.Load() {
		x.lose(l, l.fail(nil))
	}
}

// lose is rid of a worker that ended. The lock is held.
func (x *Isolated) lose(l *link, cause error) {
	x.link = nil
	x.crashed(cause, l.worked.Load())
	l.close()
	if x.gone == nil && x.kernels > 0 {
		time.AfterFunc(x.pause, x.again)
	}
}

// again starts a worker where one is needed.
func (x *Isolated) again() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.gone == nil && x.link == nil && x.starting == nil && x.kernels > 0 {
		_ = x.start() // what follows is in the state
	}
}

// crashed counts a worker that ended. The lock is held.
func (x *Isolated) crashed(cause error, worked bool) {
	n := x.crashes.Add(1)
	if errors.Is(cause, errHang) || errors.Is(cause, worker.ErrDeadline) {
		x.hangs.Add(1)
	}
	if worked || x.pause == 0 {
		x.pause = leastPause
	} else {
		x.pause = min(2*x.pause, mostPause)
	}
	x.notBefore = time.Now().Add(x.pause)
	switch {
	case n >= int64(x.options.Crashes):
		x.gone = &diagnostic.Error{Kind: refusal.ErrKernel, Path: x.path, Cause: cause,
			Found: fmt.Sprintf("isolated plugin %s ended its worker %d times, and is not run again: %v", x.name, n, cause)}
		x.options.Logger.Warn("an isolated plugin is not run again", "plugin", x.name, "crashes", n, "reason", cause)
		if x.kernels == 0 {
			x.forget()
		}
	case n == 1:
		x.options.Logger.Warn("an isolated plugin ended its worker, which is started again", "plugin", x.name, "crashes", n,
			"reason", cause)
	default:
		x.options.Logger.Debug("an isolated plugin ended its worker, which is started again", "plugin", x.name, "crashes", n,
			"reason", cause)
	}
}

// Ended is why a worker did not do what it was asked for. The next one may.
type Ended struct{ Cause error }

func (e *Ended) Error() string { return e.Cause.Error() }

func (e *Ended) Unwrap() error { return e.Cause }

// ended is of type *Ended.
func ended(err error) error {
	var e *Ended
	if errors.As(err, &e) {
		return err
	}
	return &Ended{err}
}

// hold counts a kernel.
func (x *Isolated) hold() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.kernels++
}

// drop is told of a kernel that is no more.
func (x *Isolated) drop(k *Kernel) {
	x.mu.Lock()
	l := x.link
	x.kernels--
	for _, c := range k.constants {
		x.room.give(c.Offset, c.size)
	}
	if l != nil {
		l.users.Add(1)
	}
	x.mu.Unlock()
	if l != nil {
		if l.has(k.number) {
			_ = l.run(taskDrop, k.number, &nothing{}) // a worker that has ended has no kernels
		}
		l.users.Done()
	}
	x.rest()
}

// rest ends a worker that has had no kernel for a while.
func (x *Isolated) rest() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.kernels > 0 {
		return
	}
	x.since++
	was := x.since
	time.AfterFunc(idle, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.kernels == 0 && x.since == was {
			x.forget()
		}
	})
}

// forget gives back what no kernel needs. The lock is held.
func (x *Isolated) forget() {
	if x.link != nil {
		x.link.close()
		x.link = nil
	}
	if x.starting == nil {
		x.constants.close()
		x.constants = nil
	}
}

// Ready reports that a call could be done now, and has a worker started where there is none.
func (x *Isolated) Ready() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.look(); x.link != nil {
		return !x.link.over()
	}
	if x.gone == nil && x.starting == nil && !time.Now().Before(x.notBefore) {
		go x.again()
	}
	return false
}

// Gone says why the plugin is not run again; nil where it may be.
func (x *Isolated) Gone() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.gone
}

// Instead counts a run that the unpatched model did.
func (x *Isolated) Instead() { x.instead.Add(1) }

// Several are the isolated plugins of one session.
type Several []*Isolated

// Ready reports that all of them are.
func (s Several) Ready() bool {
	ready := true
	for _, x := range s {
		ready = x.Ready() && ready
	}
	return ready
}

// Gone says why one of them is not run again.
func (s Several) Gone() error {
	for _, x := range s {
		if err := x.Gone(); err != nil {
			return err
		}
	}
	return nil
}

// Instead counts a run that the unpatched model did.
func (s Several) Instead() {
	for _, x := range s {
		x.Instead()
	}
}

// Stat is what became of an isolated plugin in this process.
type Stat struct {
	Plugin  string
	Calls   int64 // of operators that a worker answered
	Crashes int64 // workers that ended, by a crash, an exit, a hang or an answer that none may give
	Hangs   int64 // of these
	Instead int64 // runs that the unpatched model did
	Gone    bool  // it is not run again
}

// Stats are those of the isolated plugins, by name.
func Stats() []Stat {
	all.Lock()
	isolated := slices.Clone(all.list)
	all.Unlock()
	var list []Stat
	for _, x := range isolated {
		x.mu.Lock()
		x.look() // whose run has ended by a crash sees that crash
		x.mu.Unlock()
		list = append(list, Stat{Plugin: x.name, Calls: x.calls.Load(), Crashes: x.crashes.Load(), Hangs: x.hangs.Load(),
			Instead: x.instead.Load(), Gone: x.Gone() != nil})
	}
	slices.SortStableFunc(list, func(a, b Stat) int { return strings.Compare(a.Plugin, b.Plugin) })
	return list
}
