// Package graft swaps faster operators into ONNX models while ONNX Runtime
// creates their sessions. One line after the runtime's initialisation turns it
// on for every session made from then on:
//
//	ort.InitializeEnvironment()
//	if err := graft.Enable(); err != nil { ... }
//
// Model files, programs and answers stay as they are. Operators come from
// plugins: shared libraries that a host finds beside the program, in the user's
// data folder, or where GRAFT_PLUGIN_PATH says; `graft plugin install` puts them
// there. `graft inspect` shows what would be replaced in a model, and why.
package graft

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/patch"
	"github.com/opgraft/graft/host/plan"
)

// ConfigDisable, ConfigPlugins and ConfigDevice are entries of ONNX Runtime's
// session config by which a program steers one session: "graft.disable" set to
// "1" leaves it unpatched, "graft.plugins" names the plugins to use, with commas
// between, and "graft.device" says where it computes ("cpu", "cuda", "cuda:1")
// when its execution providers cannot be seen: see Enable.
const (
	ConfigDisable = patch.ConfigDisable
	ConfigPlugins = patch.ConfigPlugins
	ConfigDevice  = patch.ConfigDevice
)

// Option adjusts Enable and Patch.
type Option func(*options)

type options struct {
	folders    []string
	unverified bool
	strict     bool
	logger     *slog.Logger
	plan       plan.Options
}

// Plugins uses only the plugins of these names, which must be at hand.
func Plugins(names ...string) Option {
	return func(o *options) { o.plan.Plugins = append(o.plan.Plugins, names...) }
}

// Except never uses the plugins of these names.
func Except(names ...string) Option {
	return func(o *options) { o.plan.Except = append(o.plan.Except, names...) }
}

// Folders searches these folders for plugins before the ordinary places.
func Folders(paths ...string) Option {
	return func(o *options) { o.folders = append(o.folders, paths...) }
}

// Logger receives one line for every session and one warning for every session
// that could not be patched. Without it only warnings are written, to
// slog.Default.
func Logger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// Strict makes a failure to patch the failure of the session. Otherwise such a
// session is made unpatched, with one warning.
func Strict() Option { return func(o *options) { o.strict = true } }

// Force uses every operator that can serve, whatever it is expected to gain.
func Force() Option { return func(o *options) { o.plan.Force = true } }

// AcceptUnverified loads plugins whose hashes `graft plugin install` or `graft
// plugin verify` has not recorded: for their authors.
func AcceptUnverified() Option { return func(o *options) { o.unverified = true } }

// load finds and loads plugins; those that were asked for by name must be there.
func (o *options) load() (*patch.Set, error) {
	set, err := patch.Load(o.folders, o.unverified)
	if err == nil {
		err = set.Require(o.plan.Plugins)
	}
	return set, err
}

// enabling keeps Enable and Disable from interleaving.
var enabling sync.Mutex

// Enable patches every session that this process creates from now on through
// ONNX Runtime's C API, whichever binding asks for it. It must be called after
// the runtime was initialised, and before execution providers are appended to
// session options: a session with the CUDA provider is served by the plugins'
// variants for CUDA, any other by those for the CPU. Calling it again replaces
// the options. It is safe from several goroutines. Errors say which runtime or plugins were looked for,
// where, and what to do; after an error nothing is changed.
func Enable(opts ...Option) error {
	var o options
	for _, f := range opts {
		f(&o)
	}
	enabling.Lock()
	defer enabling.Unlock()
	libraries, err := ort.Loaded()
	if len(libraries) == 0 {
		return err
	}
	set, err := o.load()
	if err != nil {
		return err
	}
	s := &patch.Sessions{Plugins: set.Plugins, CUDA: set.CUDA, Options: set.Plan(o.plan), Logger: o.logger}
	var undo []func() error
	for _, l := range libraries {
		before := l.Installed()
		if err := l.Install(ort.Hook{Patcher: s.Patch, Strict: o.strict, Logger: o.logger}); err != nil {
			for _, f := range undo {
				err = errors.Join(err, f())
			}
			return err
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

// Disable undoes Enable. Sessions that exist stay as they are.
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
	return errors.Join(failed...)
}

// Patch writes the model at path, with operators swapped in and its weights, to
// out, for programs in any language. It returns the number of blocks replaced;
// with none, nothing is written.
func Patch(ctx context.Context, path, out string, opts ...Option) (replaced int, err error) {
	var o options
	for _, f := range opts {
		f(&o)
	}
	set, err := o.load()
	if err != nil {
		return 0, err
	}
	m, err := model.Open(path)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	a, err := patch.Analyse(m, set.Manifests(), set.Plan(o.plan))
	if err != nil || a.Plan.Replaced() == 0 {
		return 0, err
	}
	if err := a.Apply(); err != nil {
		return 0, err
	}
	return a.Plan.Replaced(), a.Write(ctx, out, model.WriteOptions{})
}
