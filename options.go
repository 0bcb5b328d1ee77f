package graft

import (
	"cmp"
	"log/slog"
	"os"
	"time"

	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/isolation"
	"github.com/opgraft/graft/host/session/loaded"
)

// An option can be given to the calls that it applies to and to no others: which, says its type.
type (
	// EnableOption is an option of [Enable].
	EnableOption interface{ enable(*enableOptions) }
	// PatchOption is an option of [Patch].
	PatchOption interface{ patch(*pluginOptions) }
	// GeneratorOption is an option of [NewGenerator].
	GeneratorOption interface{ generator(*generatorOptions) }
	// GenerateOption is an option of [Generator.Generate] and [Generator.GenerateText].
	GenerateOption interface{ generate(*settings) }
	// BatcherOption is an option of [NewBatcher].
	BatcherOption interface{ batcher(*batchOptions) }
	// EmbedderOption is an option of [NewEmbedder].
	EmbedderOption interface{ embedder(*encoderOptions) }
	// RerankerOption is an option of [NewReranker].
	RerankerOption interface{ reranker(*encoderOptions) }

	// AnalysisOption is an option of [Enable] and [Patch].
	AnalysisOption interface {
		EnableOption
		PatchOption
	}
	// EncoderOption is an option of [NewEmbedder] and [NewReranker].
	EncoderOption interface {
		EmbedderOption
		RerankerOption
	}
	// BatchOption says how inputs become batches. NewBatcher, NewEmbedder and NewReranker take it.
	BatchOption interface {
		BatcherOption
		EncoderOption
	}
	// PluginOption says which plugins may be used. Enable, Patch, NewGenerator, NewEmbedder and NewReranker take it.
	PluginOption interface {
		EnableOption
		PatchOption
		GeneratorOption
		EncoderOption
	}
	// SessionOption says how models are opened. Enable, NewGenerator, NewEmbedder and NewReranker take it.
	SessionOption interface {
		EnableOption
		GeneratorOption
		EncoderOption
	}
	// FolderOption says how a model folder is used. NewGenerator, NewEmbedder and NewReranker take it.
	FolderOption interface {
		GeneratorOption
		EncoderOption
	}
	// ModelOption is a FolderOption that Quantize takes, too.
	ModelOption interface {
		FolderOption
		QuantizeOption
	}
	// LoadOption is a PluginOption that Quantize takes, too.
	LoadOption interface {
		PluginOption
		QuantizeOption
	}
	// WeightsOption is Weights'. NewGenerator and Quantize take it.
	WeightsOption interface {
		GeneratorOption
		QuantizeOption
	}
	// LoggerOption is Logger's. Enable, NewEmbedder and NewReranker take it.
	LoggerOption interface {
		EnableOption
		EncoderOption
	}
	// SearchOption says what is generated. NewGenerator takes it for all calls of Generate, and
	// Generate for one.
	SearchOption interface {
		GeneratorOption
		GenerateOption
	}
)

// pluginOptions say which plugins are used.
type pluginOptions struct {
	folders    []string
	lock       string
	unverified bool
	plan       plan.Options
	time       time.Duration // that the analysis of a model may take
	mapWeights bool
	isolate    *loaded.Isolate
	// What was asked for about sharing weights with other processes.
	shareWeights, ownWeights bool
}

// wish is what was asked for about sharing weights.
func (o *pluginOptions) wish() shared.Wish {
	switch {
	case o.ownWeights:
		return shared.Never
	case o.shareWeights:
		return shared.Always
	}
	return shared.LargePages
}

// check refuses options that contradict each other.
func (o *pluginOptions) check() error {
	if o.shareWeights && o.ownWeights {
		return refuse("ShareWeights and OwnWeights contradict each other")
	}
	return nil
}

// load finds and loads plugins; those that were asked for by name must be there.
func (o *pluginOptions) load() (*loaded.Set, error) {
	if o.time < 0 {
		return nil, refuse("AnalysisTime is %v, needed is a time above 0", o.time)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	set, err := loaded.LoadWith(o.folders, o.unverified,
		loaded.Ways{Lock: cmp.Or(o.lock, os.Getenv(loaded.LockVariable)), Isolate: o.isolate})
	if err != nil {
		return nil, public(err, ErrBadPlugin)
	}
	if o.isolate != nil {
		if err := set.Require(o.isolate.Names); err != nil {
			return nil, public(err, ErrNoPlugin)
		}
	}
	return set, public(set.Require(o.plan.Plugins), ErrNoPlugin)
}

type pluginOption func(*pluginOptions)

func (f pluginOption) enable(o *enableOptions)       { f(&o.pluginOptions) }
func (f pluginOption) patch(o *pluginOptions)        { f(o) }
func (f pluginOption) generator(o *generatorOptions) { f(&o.pluginOptions) }
func (f pluginOption) embedder(o *encoderOptions)    { f(&o.pluginOptions) }
func (f pluginOption) reranker(o *encoderOptions)    { f(&o.pluginOptions) }

// Plugins uses only the plugins of these names. One that is not installed is an error.
func Plugins(names ...string) PluginOption {
	return pluginOption(func(o *pluginOptions) { o.plan.Plugins = append(o.plan.Plugins, names...) })
}

// Except never uses the plugins of these names.
func Except(names ...string) PluginOption {
	return pluginOption(func(o *pluginOptions) { o.plan.Except = append(o.plan.Except, names...) })
}

// Folders searches these folders for plugins before the usual ones.
func Folders(paths ...string) LoadOption {
	return loadOption{func(o *pluginOptions) { o.folders = append(o.folders, paths...) }}
}

// Lock uses the plugins that a lock file names (`graft plugin lock` writes one), and no other. Each must be there as
// the lock says, to the hash of every file: of several installed versions the one that the lock names is used,
// whichever is current. Where one is not there or differs it is an error, [ErrBadPlugin], that says which. Hashed and
// compared are the bytes that are loaded. Without this option the environment variable GRAFT_PLUGIN_LOCK names a
// lock; the session config entry [ConfigLock] does for one session.
func Lock(path string) LoadOption {
	return loadOption{func(o *pluginOptions) { o.lock = path }}
}

// Force uses every operator that can implement a block, whatever it is expected to gain.
func Force() PluginOption {
	return pluginOption(func(o *pluginOptions) { o.plan.Force = true })
}

// AcceptUnverified loads plugins whose hashes `graft plugin install` or `graft
// plugin verify` has not recorded: for their authors.
func AcceptUnverified() LoadOption {
	return loadOption{func(o *pluginOptions) { o.unverified = true }}
}

// AnalysisTime is how long the analysis of one model may take: 10 seconds without this option, and 0 is that too. A
// model that takes longer, as none that exporters write does, is left unpatched: that is a failure to patch.
func AnalysisTime(d time.Duration) AnalysisOption {
	return pluginOption(func(o *pluginOptions) { o.time = d })
}

// AcceptQuantizationNoise also uses operators before what a quantised model rounds to integers as it runs. Rounding
// turns other last bits into other integers, so that answers move by as much as the quantisation is coarse: as far as
// ONNX Runtime's own optimisations, or another batch, move them. Without this option such blocks are left as they
// are, and vectors that were stored before stay comparable to the bit.
func AcceptQuantizationNoise() AnalysisOption {
	return pluginOption(func(o *pluginOptions) { o.plan.QuantizationNoise = true })
}

// IgnorePadding leaves tokens out that a model's attention mask hides, also where a row for each of them is an output
// of the model: such an output (batch, positions, ..) is zeros there. Rows of visible tokens are those of the model,
// within the tolerance of docs/same-answers.md. Without this option hidden tokens are left out where the graph shows
// that no output depends on them. A quantised model that takes one scale over all rows of a batch takes it over the
// visible ones then.
func IgnorePadding() AnalysisOption {
	return pluginOption(func(o *pluginOptions) { o.plan.Padding = plan.IgnorePadding })
}

// KeepPadding computes all tokens as the model has it, those that its attention mask hides included.
func KeepPadding() AnalysisOption {
	return pluginOption(func(o *pluginOptions) { o.plan.Padding = plan.KeepPadding })
}

type sessionOption func(*pluginOptions)

func (f sessionOption) enable(o *enableOptions)       { f(&o.pluginOptions) }
func (f sessionOption) generator(o *generatorOptions) { f(&o.pluginOptions) }
func (f sessionOption) embedder(o *encoderOptions)    { f(&o.pluginOptions) }
func (f sessionOption) reranker(o *encoderOptions)    { f(&o.pluginOptions) }

// folderOption is one that generators and encoders have each in a place of their own.
type folderOption struct {
	generates func(*generatorOptions)
	encodes   func(*encoderOptions)
}

func (f folderOption) generator(o *generatorOptions) { f.generates(o) }
func (f folderOption) embedder(o *encoderOptions)    { f.encodes(o) }
func (f folderOption) reranker(o *encoderOptions)    { f.encodes(o) }

type loggerOption struct{ logger *slog.Logger }

func (l loggerOption) enable(o *enableOptions)    { o.logger = l.logger }
func (l loggerOption) embedder(o *encoderOptions) { o.logger = l.logger }
func (l loggerOption) reranker(o *encoderOptions) { o.logger = l.logger }

// MapWeights lets sessions map the weights of models that are opened by path, instead of reading them into memory of
// their own. Processes then share one copy, and opening takes less time. It is for files that never change once they
// are in place, as where new versions are renamed into it: whoever writes to such a file changes the answers of
// sessions that are there, and whoever cuts it short ends their processes.
func MapWeights() SessionOption {
	return sessionOption(func(o *pluginOptions) { o.mapWeights = true })
}

// ShareWeights has sessions share weights with those of other processes of the user also where that may make them
// slower: in small pages, which is all that memory files get before Linux 6.1, and on machines whose memory is nearer
// to some processors than to others. Without it they share weights where it costs no speed; docs/embedding.md says
// what, and where they cannot. [OwnWeights] contradicts it. With [MapWeights] it has no effect on models that are
// opened by path. The session config entry [ConfigShare] asks for it for one session.
func ShareWeights() SessionOption {
	return sessionOption(func(o *pluginOptions) { o.shareWeights = true })
}

// OwnWeights has a process share weights with no other. Its sessions share them among themselves. The session config
// entry [ConfigShare] set to "0" asks for it for one session.
func OwnWeights() SessionOption {
	return sessionOption(func(o *pluginOptions) { o.ownWeights = true })
}

type enableOptions struct {
	pluginOptions
	bound       bool
	own         bool
	strict      bool
	verify      bool
	shadow      bool
	shares      []float64 // of other runs, 0 or 1
	differences int
	bears       bool // differences was given
	isolated    []string
	isolation   isolation.Options
	crashes     *int
	deadline    bool // was given
	logger      *slog.Logger
}

type enableOption func(*enableOptions)

func (f enableOption) enable(o *enableOptions) { f(o) }

// Logger receives one line for every session, and one warning for every session
// that could not be patched or that runs unpatched after an operator failed.
// Without it only warnings are written, to [slog.Default].
func Logger(l *slog.Logger) LoggerOption { return loggerOption{l} }

// Strict makes a failure to patch the failure of the session, and a failure of
// an operator that of the run. Otherwise such a session is created unpatched, or
// runs unpatched from then on, with one warning.
func Strict() EnableOption {
	return enableOption(func(o *enableOptions) { o.strict = true })
}

// BoundMemory has patched sessions plan no block of memory for each combination of input shapes (DisableMemPattern of
// ONNX Runtime), also of models with fixed lengths: of others none does. Answers are the same. The session config
// entry [ConfigMemory] asks for it for one session.
func BoundMemory() EnableOption {
	return enableOption(func(o *enableOptions) { o.bound = true })
}

// OwnArenas has each patched session hold what it computes with as ONNX Runtime would: in an arena of its own, with
// blocks that are planned for each combination of input shapes. Without it, sessions on the CPU share arenas;
// docs/embedding.md says what that saves and where it is not done. The session config entry [ConfigMemory] set to "0"
// asks for it for one session.
func OwnArenas() EnableOption {
	return enableOption(func(o *enableOptions) { o.own = true })
}

// Verify compares every session with its model before the program gets it: both run synthetic inputs of two small
// shapes, and blocks with which an output is outside the tolerance of `graft ab` are left unchanged, with one
// warning. A session that cannot be compared is one that cannot be patched. It takes longer than making the session
// without it: the model is opened and analysed three times. The session config entry [ConfigVerify] asks for it, or
// against it, for one session.
func Verify() EnableOption {
	return enableOption(func(o *enableOptions) { o.verify = true })
}

// Shadow compares real runs with the model: the first Run of each class of input shapes (which axes have a length of
// 0, 1 or more) runs the model itself beside it. Where an output is outside the tolerance of `graft ab`, the model's
// results are returned and the session runs unpatched from then on, with one warning. With a share, 0.01 say, that
// share of all other runs is compared too, by chance; one outside of 0 to 1 is an [ErrOption]. [Differences] says how
// many a session may give, and [Shadowed] what was found. A run that is compared takes the time of both. The model's
// own session stays in memory beside the patched one. [Strict] contradicts it. RunWithBinding and RunAsync are not
// compared.
func Shadow(share ...float64) EnableOption {
	return enableOption(func(o *enableOptions) { o.shadow, o.shares = true, append(o.shares, share...) })
}

// checkShadow refuses what Shadow and Differences cannot mean.
func (o *enableOptions) checkShadow() error {
	if o.shadow && o.strict {
		return refuse("Shadow and Strict contradict each other: with Strict no session can run unpatched")
	}
	for _, share := range o.shares {
		if !(share >= 0 && share <= 1) { // NaN is not
			return refuse("Shadow is %v, needed is a share of runs, 0 to 1", share)
		}
	}
	switch {
	case len(o.shares) > 1:
		return refuse("Shadow has %d shares, needed is one", len(o.shares))
	case o.bears && !o.shadow:
		return refuse("Differences is %d without Shadow, which finds them", o.differences)
	case o.bears && o.differences < 1:
		return refuse("Differences is %d, needed is a number from 1", o.differences)
	}
	return nil
}

// Differences says at which of the differences that [Shadow] finds in a session's runs it runs unpatched from then
// on: 1, the first, without it. Of the runs before, too, the program gets the model's results. Below 1, or without
// Shadow, it is an [ErrOption].
func Differences(n int) EnableOption {
	return enableOption(func(o *enableOptions) { o.differences, o.bears = n, true })
}
