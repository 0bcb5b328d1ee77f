package graft

import (
	"log/slog"
	"time"

	"github.com/opgraft/graft/host/measure/trial"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/isolation"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/opening"
)

// Common are the options that stand for sessions, generators (package textgen) and encoders (package embed) alike. The
// zero value takes all plugins that are found and recorded, where they are expected to gain.
type Common struct {
	// Plugins are the names of the plugins to use; nil for all. One that is not installed is [ErrNoPlugin].
	Plugins []string
	// Except are names of plugins that are not used.
	Except []string
	// Folders are searched for plugins before the usual places.
	Folders []string
	// Lock is the path of a lock file (`graft plugin lock` writes one). The plugins that it names are used and no other.
	// Each must be there as it says, to the hash of every file, or it is [ErrBadPlugin]; of several installed versions
	// the one that it names is used. Hashed are the bytes that are loaded. "" is GRAFT_PLUGIN_LOCK of the environment.
	Lock string
	// AcceptUnverified also loads plugins whose hashes `graft plugin install` or `graft plugin verify` has not recorded:
	// for their authors.
	AcceptUnverified bool
	// Force uses every operator that can implement a block, whatever it is expected to gain.
	Force bool
	// MapWeights maps the files of models that are opened by path, instead of reading weights into memory. Processes
	// then share one copy, and opening takes less time. It is for files that never change in place: whoever writes to
	// one changes answers, and whoever cuts it short ends the process.
	MapWeights bool
	// ShareWeights says which processes of the user share weights. With MapWeights it is about other models alone.
	ShareWeights Sharing
	// Runtime is the path of the libonnxruntime to use; "" is GRAFT_ONNXRUNTIME of the environment, else what
	// [RuntimePath] finds. [Enable], [NewPatcher] and [Patch] open none: [ErrOption].
	Runtime string
	// Threads are those of an operator, 1 to 1,024; 0 is one a core. Sessions of the program's own have theirs: with
	// [Enable], [NewPatcher] and [Patch] it is [ErrOption].
	Threads int
}

// Sharing says whether processes share weights. Sessions of one process always do.
type Sharing int

const (
	// ShareWhereFree shares weights where that costs no speed. docs/go.md says what, and where they cannot.
	ShareWhereFree Sharing = iota
	// ShareAlways also shares in small pages, which is all that memory files get before Linux 6.1, and on machines whose
	// memory is nearer to some processors than to others.
	ShareAlways
	// ShareNever shares with no other process.
	ShareNever
)

// Options are those of [EnableWith], [NewPatcher] and [Patch]. The zero value is the default.
type Options struct {
	Common
	// Logger receives one line for every session, and one warning for every session that could not be patched or that
	// runs unpatched after an operator failed. nil is [slog.Default], for warnings alone.
	Logger *slog.Logger
	// Strict makes a failure to patch the failure of the session, and a failure of an operator that of the run. Without
	// it such a session is created unpatched, or runs unpatched from then on, with one warning.
	Strict bool
	// Verify compares every session with its model before the program gets it: both run synthetic inputs of two small
	// shapes, and blocks with which an output is outside the tolerance of `graft ab` are left unchanged, with one
	// warning. A session that cannot be compared is one that cannot be patched. The model is opened and analysed three
	// times.
	Verify bool
	// Shadow compares real runs with the model; nil compares none. It contradicts Strict.
	Shadow *ShadowOptions
	// Isolation runs kernels of plugins in worker processes.
	Isolation Isolation
	// AnalysisTime is the processor time that the analysis of one model may take; 0 is 10 s, below 0 is [ErrOption]. A
	// model that takes longer is left unpatched: that is a failure to patch.
	AnalysisTime time.Duration
	// AcceptQuantizationNoise also uses operators before what a quantised model rounds to integers as it runs. Rounding
	// turns other last bits into other integers, so that answers move by as much as the quantisation is coarse: as far
	// as ONNX Runtime's own optimisations, or another batch, move them.
	AcceptQuantizationNoise bool
	// Padding says what becomes of tokens that a model's attention mask hides.
	Padding Padding
	// Memory says where patched sessions compute.
	Memory Memory
}

// Padding says what becomes of tokens that a model's attention mask hides.
type Padding string

const (
	// ExactPadding does not compute them where the graph shows that no output depends on them.
	ExactPadding Padding = ""
	// IgnorePadding does not compute them where a row for each of them is an output of the model, either: such an output
	// (batch, positions, ..) is zeros there. Rows of visible tokens are the model's, within the tolerance of
	// docs/same-answers.md. A quantised model that takes one scale over all rows takes it over the visible ones then.
	IgnorePadding Padding = Padding(plan.IgnorePadding)
	// KeepPadding computes all tokens as the model has it.
	KeepPadding Padding = Padding(plan.KeepPadding)
)

// Memory says where patched sessions on the CPU compute. Answers are the same.
type Memory int

const (
	// SharedArenas has sessions share arenas. docs/go.md says what that saves and where it is not done.
	SharedArenas Memory = iota
	// BoundMemory also plans no block of memory for each combination of input shapes (DisableMemPattern of ONNX Runtime)
	// in models with fixed lengths: of others none does.
	BoundMemory
	// OwnArenas has each session hold what it computes with as ONNX Runtime would: in an arena of its own, with blocks
	// that are planned for each combination of input shapes.
	OwnArenas
)

// ShadowOptions say how real runs are compared with the model. The first Run of each class of input shapes (which axes
// have a length of 0, 1 or more) runs the model beside it. Where an output is outside the tolerance of `graft ab`, the
// model's results are returned. A compared run takes the time of both, and the model's own session stays in memory.
// RunWithBinding and RunAsync are not compared.
type ShadowOptions struct {
	// Share is the share of all other runs that is compared too, by chance: 0 to 1.
	Share float64
	// Differences is at which of the differing runs a session runs unpatched from then on, with one warning: 0 is the
	// first, below 0 is [ErrOption].
	Differences int
}

// Isolation runs the kernels of plugins in a worker process each, over shared memory: their libraries are never loaded
// here. A crash, an exit or a hang is an error of that run, which is repeated with the model itself; the worker is
// started again, and until it is there runs are the model's. With Options.Strict the program gets the error.
//
// A worker is this program where main calls [Worker] first, else the graft executable beside it or on PATH. A plugin
// that cannot be isolated, because it computes weights from weights or is for the KV cache of generators alone, or
// whose library fails as it is loaded, is [ErrBadPlugin].
type Isolation struct {
	// Plugins are names. One that is not installed is [ErrNoPlugin].
	Plugins []string
	// Crashes is at which crash, exit or hang of its workers a plugin is not run again in this process; 0 is 3, below 0
	// is [ErrOption]. Sessions with its operators run unpatched from then on.
	Crashes int
	// CallDeadline is how long an operator may take, after which its worker is ended; 0 is 30 s, below 0 is [ErrOption].
	CallDeadline time.Duration
}

// Entries of ONNX Runtime's own session config, by which a program steers one session.
const (
	// ConfigDisable set to "1" leaves the session unpatched.
	ConfigDisable = sessions.ConfigDisable
	// ConfigPatcher is the name of a [Patcher], which patches the session in place of what [Enable] asked for.
	ConfigPatcher = "graft.patcher"
	// ConfigPlugins names the plugins to use, with commas between.
	ConfigPlugins = sessions.ConfigPlugins
	// ConfigDevice is where the session computes, "cpu", "cuda" or "cuda:1", when its execution providers cannot be seen.
	ConfigDevice = sessions.ConfigDevice
	// ConfigVerify set to "1" is Options.Verify, to "0" its opposite.
	ConfigVerify = trial.Config
	// ConfigNoise set to "1" is Options.AcceptQuantizationNoise, to "0" its opposite.
	ConfigNoise = sessions.ConfigNoise
	// ConfigMemory set to "1" is [BoundMemory], to "0" [OwnArenas].
	ConfigMemory = sessions.ConfigMemory
	// ConfigPadding is "exact", "ignore" or "keep": see [Padding].
	ConfigPadding = sessions.ConfigPadding
	// ConfigShare set to "1" is [ShareAlways], to "0" [ShareNever].
	ConfigShare = sessions.ConfigShare
	// ConfigIsolate names plugins, with commas between, that are isolated in this session as by [Isolation], but that
	// their libraries are loaded here too.
	ConfigIsolate = sessions.ConfigIsolate
	// ConfigLock is the path of a lock file: of the loaded plugins, the session uses those that it names, which must be
	// as it says.
	ConfigLock = sessions.ConfigLock
)

// common is Common with what the three packages do with it.
func (o *Options) common() *opening.Common[Sharing] {
	c := opening.Common[Sharing](o.Common)
	return &c
}

// check refuses options that are out of range or contradict each other.
func (o *Options) check() error {
	if err := o.common().Check(); err != nil {
		return err
	}
	switch shadow, i := o.Shadow, o.Isolation; {
	case o.Runtime != "":
		return opening.Refuse("Runtime is %q: sessions are those of the runtime in the process, leave it out", o.Runtime)
	case o.Threads != 0:
		return opening.Refuse("Threads is %d: sessions have those of their own options, leave it out", o.Threads)
	case o.AnalysisTime < 0:
		return opening.Refuse("AnalysisTime is %v, needed is a time above 0, or 0 for 10 s", o.AnalysisTime)
	case o.Padding != ExactPadding && o.Padding != IgnorePadding && o.Padding != KeepPadding:
		return opening.Refuse("Padding is %q, needed is a constant of its type", string(o.Padding))
	case o.Memory < SharedArenas || o.Memory > OwnArenas:
		return opening.Refuse("Memory is %d, needed is a constant of its type", int(o.Memory))
	case i.Crashes < 0:
		return opening.Refuse("Isolation.Crashes is %d, needed is a number from 1, or 0 for 3", i.Crashes)
	case i.CallDeadline < 0:
		return opening.Refuse("Isolation.CallDeadline is %v, needed is a time above 0, or 0 for 30 s", i.CallDeadline)
	case shadow == nil:
		return nil
	case o.Strict:
		return opening.Refuse("Shadow and Strict contradict each other: with Strict no session can run unpatched")
	case !(shadow.Share >= 0 && shadow.Share <= 1): // NaN is not
		return opening.Refuse("Shadow.Share is %v, needed is a share of runs, 0 to 1", shadow.Share)
	case shadow.Differences < 0:
		return opening.Refuse("Shadow.Differences is %d, needed is a number from 1, or 0 for 1", shadow.Differences)
	}
	return nil
}

// sessionOnly names an option that is set and that [Patch], which makes no session, cannot follow; "" for none.
func (o *Options) sessionOnly() string {
	for _, x := range []struct {
		name string
		set  bool
	}{
		{"Logger", o.Logger != nil}, {"Strict", o.Strict}, {"Verify", o.Verify}, {"Shadow", o.Shadow != nil},
		{"Isolation", len(o.Isolation.Plugins) > 0 || o.Isolation.Crashes != 0 || o.Isolation.CallDeadline != 0},
		{"Memory", o.Memory != SharedArenas}, {"MapWeights", o.MapWeights},
		{"ShareWeights", o.ShareWeights != ShareWhereFree},
	} {
		if x.set {
			return x.name
		}
	}
	return ""
}

// planned is what planners are told.
func (o *Options) planned() plan.Options {
	p := o.common().Plan()
	p.QuantizationNoise, p.Padding = o.AcceptQuantizationNoise, plan.Padding(o.Padding)
	return p
}

// isolate is what loading is told of isolation; nil for nothing.
func (o *Options) isolate() (options isolation.Options, isolate *loaded.Isolate) {
	options = isolation.Options{Crashes: o.Isolation.Crashes, Deadline: o.Isolation.CallDeadline, Logger: o.Logger}
	if len(o.Isolation.Plugins) > 0 {
		isolate = &loaded.Isolate{Names: o.Isolation.Plugins, Options: options}
	}
	return options, isolate
}
