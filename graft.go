// Package graft makes ONNX models faster in Go programs.
//
// [Enable] replaces parts of a model by faster operators while ONNX Runtime creates the model's session. One line after
// the runtime's initialisation turns it on for every session created from then on, whichever binding creates it:
//
//	ort.InitializeEnvironment()
//	if err := graft.Enable(); err != nil {
//		log.Print(err) // sessions work without graft
//	}
//
// Model files stay as they are, and so does the rest of the program. A session that cannot be patched is created as it
// would have been, and one whose operators fail runs as it would have; a warning says so.
// [NewPatcher] is for single sessions, [Patch] writes the same rewrite to a file, for programs in other languages.
//
// Package textgen generates text with model folders, package embed makes vectors and scores of texts and batches of
// single inputs.
//
// Operators come from plugins: shared libraries that are found beside the program, in the user's data folder (`graft
// plugin install` puts them there), where GRAFT_PLUGIN_PATH says, or in the program itself: the module
// github.com/opgraft/graft/plugins/standard puts graft's own there. ONNX Runtime 1.29 or newer is needed. `graft
// doctor` says what is there and brings what is missing; `graft inspect` shows what would be replaced in a model, and
// why.
//
// The zero value of every option is its default. An option that is out of range, or that would have no effect, is
// [ErrOption].
package graft

import (
	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/measure/trial"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/hook"
	"github.com/opgraft/graft/host/session/isolation"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/opening"
)

// Enable is [EnableWith] the default options.
func Enable() error { return EnableWith(Options{}) }

// EnableWith patches every session that this process creates from now on through ONNX Runtime's C API, whichever
// binding asks for it. It must be called after the runtime was initialised, and before execution providers are
// appended to session options: a session with the CUDA provider uses the plugins' variants for CUDA, any other those
// for the CPU. Calling it again replaces the options. It is safe from several goroutines.
//
// Errors say which runtime or plugins were looked for, where, and what to do: [ErrNoRuntime], [ErrNoPlugin],
// [ErrBadPlugin]. After an error nothing is changed.
func EnableWith(o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	enabling.Lock()
	defer enabling.Unlock()
	if libraries, err := ort.Loaded(); len(libraries) == 0 {
		return opening.Public(err, ErrNoRuntime)
	}
	hook, err := o.hook()
	if err != nil {
		return err
	}
	return change(&hook, func(map[string]*Patcher) {})
}

// hook loads the plugins, and is what happens when a session is created.
func (o *Options) hook() (hook.Hook, error) {
	common := o.common()
	isolated, isolate := o.isolate()
	set, err := common.Load(isolate)
	if err != nil {
		return hook.Hook{}, err
	}
	if o.Logger != nil {
		o.Logger = diagnostic.Logger(o.Logger)
	}
	s := &sessions.Patcher{Plugins: set.Plugins, CUDA: set.CUDA, Options: set.Plan(o.planned()), Time: o.AnalysisTime,
		Logger: o.Logger, MapWeights: o.MapWeights, Share: common.Share(), BoundMemory: o.Memory == BoundMemory,
		OwnArenas: o.Memory == OwnArenas, Isolation: isolated}
	patcher := &trial.Patcher{Sessions: s, All: o.Verify}
	hook := hook.Hook{Patcher: patcher.Patch, Strict: o.Strict, Logger: o.Logger}
	if o.Shadow != nil {
		hook.Same, hook.Share, hook.Differences = trial.Difference, o.Shadow.Share, o.Shadow.Differences
	}
	return hook, nil
}

// Disable undoes [Enable]; a [Patcher] stays. Sessions that exist stay as they are.
func Disable() error {
	enabling.Lock()
	defer enabling.Unlock()
	defer sessions.Forget()
	return change(nil, func(map[string]*Patcher) {})
}

// Reverted is how many patched sessions of this process run unpatched by now, because an operator failed in one of
// their runs. The run was repeated without graft's operators, from the program's own model and options, and its
// results were returned; one warning was written. An error that the model's own session returns too is the program's,
// and reverts nothing. Options.Strict turns this off.
func Reverted() int64 { return hook.Reverted() }

// Shadowed is how many runs of this process were compared with the model, for Options.Shadow, and how many of them
// differed from it.
func Shadowed() (runs, differed int64) { return hook.Shadowed() }

// Isolated is what became of an isolated plugin in this process.
type Isolated struct {
	Plugin string
	// Calls are those of operators that a worker answered.
	Calls int64
	// Crashes are workers that ended by a crash, an exit, a hang, or an answer that none may give. Hangs are those of
	// them that took too long.
	Crashes, Hangs int64
	// Instead are runs that the model itself did because a worker ended or was not there.
	Instead int64
	// Gone says that the plugin is not run again: see [Isolation].
	Gone bool
}

// IsolatedPlugins are the isolated plugins of this process, by name, with what became of them since it began.
func IsolatedPlugins() (list []Isolated) {
	for _, s := range isolation.Stats() {
		list = append(list, Isolated(s))
	}
	return list
}

// Worker turns the process into a worker, and never returns, where graft started it as one; otherwise it notes that
// this program can be one, and returns. A program that isolates plugins calls it first in main, before flags are
// read, or has the graft executable beside it or on PATH.
func Worker() { worker.Main(isolation.Tasks()) }

// RuntimePath finds ONNX Runtime's shared library, for a binding that asks for its path: what GRAFT_ONNXRUNTIME names,
// else what `graft doctor --fetch` brought, what is beside the program, or what the system has. Without one it is
// [ErrNoRuntime], with the places that were searched.
func RuntimePath() (string, error) {
	at, err := ort.Find("")
	return at.Path, opening.Public(err, ErrNoRuntime)
}
