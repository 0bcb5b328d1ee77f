// Package graft makes ONNX models faster in Go programs.
//
// # Sessions of ONNX Runtime
//
// [Enable] replaces parts of a model by faster operators while ONNX Runtime
// creates the model's session. One line after the runtime's initialisation turns it
// on for every session created from then on, whichever binding creates it:
//
//	ort.InitializeEnvironment()
//	if err := graft.Enable(); err != nil {
//		log.Print(err) // sessions work without graft
//	}
//
// Model files stay as they are, and so does the rest of the program. A session that cannot be patched is
// created as it would have been, and one whose operators fail runs as it would have; a warning says so. See [Strict],
// [Logger] and [Reverted]. [Isolated] runs plugins that are not trusted yet in worker processes.
// [Patch] writes the same rewrite to a file, for programs in other languages.
//
// # Text
//
// [NewGenerator] opens a model folder as Hugging Face's optimum exports it, and generates text from
// texts or, with a speech model, from sound:
//
//	g, err := graft.NewGenerator(ctx, "bart-large-cnn", graft.Beams(4), graft.MaxNewTokens(128))
//	if err != nil { ... }
//	defer g.Close()
//	for out, err := range g.Generate(ctx, slices.Values(texts)) { ... }
//
// Options have the names and the meaning of Hugging Face's generation configuration, and so have the tokens.
// What is not set is as the model's generation_config.json says. [Set] sets options that have no
// function of their own. A Generator may be used from several goroutines at once; their inputs are computed
// together.
//
// # Batches, vectors and scores
//
// [NewBatcher] gathers single inputs of many goroutines into batches of a session, of whichever binding.
// [NewEmbedder] and [NewReranker] do so for encoders of text that sentence-transformers or optimum saved:
//
//	e, err := graft.NewEmbedder(ctx, "all-MiniLM-L6-v2")
//	if err != nil { ... }
//	defer e.Close()
//	vectors, err := e.Embed(ctx, "a text", "another")
//
// # What is needed
//
// Operators come from plugins: shared libraries that are found beside the program, in the user's
// data folder (`graft plugin install` puts them there), where GRAFT_PLUGIN_PATH says, or in the program
// itself: the module github.com/opgraft/graft/plugins/standard puts graft's own there.
// [Plugins], [Except] and [Folders] choose among them. ONNX Runtime 1.29 or newer is needed:
// Enable works with the one in the process, NewGenerator, NewEmbedder and NewReranker find one as [RuntimePath] does.
// `graft doctor` says what is there and brings what is missing. `graft inspect` shows what would be replaced in a
// model, and why.
//
// # Options and errors
//
// An option fits the calls that its type says: Strict is an [EnableOption] and does not compile as an
// option of Patch. One that fits by its type and would have no effect, such as [Temperature] without
// [DoSample], is [ErrOption]. Errors are told apart with [errors.Is].
package graft

import (
	"errors"
	"sync"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/measure/trial"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/sessions"
)

// ConfigDisable, ConfigPlugins, ConfigDevice, ConfigNoise, ConfigMemory, ConfigPadding, ConfigShare, ConfigIsolate
// and ConfigLock are entries of ONNX Runtime's session config by which a program steers one session: "graft.disable"
// set to "1" leaves it unpatched, "graft.plugins" names the plugins to use, with commas between, "graft.device" says
// where it computes ("cpu", "cuda", "cuda:1") when its execution providers cannot be seen: see [Enable]; and
// "graft.accept_quantization_noise" set to "1" is [AcceptQuantizationNoise], to "0" its opposite;
// "graft.bound_memory" set to "1" is [BoundMemory], to "0" [OwnArenas]; "graft.padding" is "ignore" for
// [IgnorePadding], "keep" for [KeepPadding], and "exact" for what is done without either; "graft.share_weights" set
// to "1" is [ShareWeights], to "0" [OwnWeights]; "graft.isolate" names plugins, with commas between, that are
// isolated in this session as with [Isolated], but that their libraries are loaded here too; "graft.lock" is the path
// of a lock file: of the plugins that Enable loaded, the session uses those that it names, which must be as it says.
const (
	ConfigDisable = sessions.ConfigDisable
	ConfigPlugins = sessions.ConfigPlugins
	ConfigDevice  = sessions.ConfigDevice
	ConfigVerify  = trial.Config
	ConfigNoise   = sessions.ConfigNoise
	ConfigMemory  = sessions.ConfigMemory
	ConfigPadding = sessions.ConfigPadding
	ConfigShare   = sessions.ConfigShare
	ConfigIsolate = sessions.ConfigIsolate
	ConfigLock    = sessions.ConfigLock
)

// enabling is held by Enable and Disable, which must not interleave.
var enabling sync.Mutex

// Enable patches every session that this process creates from now on through
// ONNX Runtime's C API, whichever binding asks for it. It must be called after
// the runtime was initialised, and before execution providers are appended to
// session options: a session with the CUDA provider uses the plugins'
// variants for CUDA, any other those for the CPU. Calling it again replaces
// the options. It is safe from several goroutines.
//
// Errors say which runtime or plugins were looked for, where, and what to do: [ErrNoRuntime],
// [ErrNoPlugin], [ErrBadPlugin]. After an error nothing is changed.
func Enable(opts ...EnableOption) error {
	var o enableOptions
	for _, x := range opts {
		x.enable(&o)
	}
	if err := o.checkShadow(); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if err := o.isolating(); err != nil {
		return err
	}
	enabling.Lock()
	defer enabling.Unlock()
	libraries, err := ort.Loaded()
	if len(libraries) == 0 {
		return public(err, ErrNoRuntime)
	}
	set, err := o.load()
	if err != nil {
		return err
	}
	if o.logger != nil {
		o.logger = diagnostic.Logger(o.logger)
	}
	s := &sessions.Patcher{Plugins: set.Plugins, CUDA: set.CUDA, Options: set.Plan(o.plan), Time: o.time, Logger: o.logger,
		MapWeights: o.mapWeights, Share: o.wish(), BoundMemory: o.bound, OwnArenas: o.own,
		Isolation: o.isolation}
	patcher := &trial.Patcher{Sessions: s, All: o.verify}
	hook := ort.Hook{Patcher: patcher.Patch, Strict: o.strict, Logger: o.logger}
	if o.shadow {
		hook.Same = trial.Difference
		hook.Differences = o.differences
		for _, share := range o.shares {
			hook.Share = share
		}
	}
	var undo []func() error
	for _, l := range libraries {
		before := l.Installed()
		if err := l.Install(hook); err != nil {
			for _, f := range undo {
				err = errors.Join(err, f())
			}
			return public(err, nil)
		}
		undo = append(undo, func() error {
			if before == nil {
				return l.Uninstall()
			}
			return l.Install(*before)
		})
	}
	return nil
}

// Reverted is how many patched sessions of this process run unpatched by now, because an operator failed in one of
// their runs. The run was repeated without graft's operators, from the program's own model and options, and its
// results were returned; one warning was written. An error that the model's own session returns too is the program's,
// and reverts nothing. [Strict] turns this off.
func Reverted() int64 { return ort.Reverted() }

// Shadowed is how many runs of this process were compared with the model, for [Shadow], and how many of them differed
// from it.
func Shadowed() (runs, differed int64) { return ort.Shadowed() }

// Disable undoes [Enable]. Sessions that exist stay as they are.
func Disable() error {
	enabling.Lock()
	defer enabling.Unlock()
	libraries, err := ort.Loaded()
	if errors.Is(err, ort.ErrNotLoaded) {
		return nil
	}
	var failed []error
	for _, l := range libraries {
		failed = append(failed, l.Uninstall())
	}
	sessions.Forget()
	return errors.Join(failed...)
}

// RuntimePath finds ONNX Runtime's shared library, for a binding that asks for its path: what
// GRAFT_ONNXRUNTIME names, else what `graft doctor --fetch` brought, what is beside the program, or
// what the system has. Without one it is [ErrNoRuntime], with the places that were searched.
func RuntimePath() (string, error) {
	at, err := ort.Find("")
	return at.Path, public(err, ErrNoRuntime)
}
