package session

import (
	"maps"
	"runtime"
	"slices"
	"unsafe"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/operator"
)

// An OptimizationLevel is ONNX Runtime's GraphOptimizationLevel.
type OptimizationLevel int

// The levels of GraphOptimizationLevel, shifted so that the zero value is ONNX Runtime's default.
const (
	OptimizeDefault  OptimizationLevel = iota // what ONNX Runtime does when nothing is said: all
	OptimizeNone                              // ORT_DISABLE_ALL
	OptimizeBasic                             // ORT_ENABLE_BASIC
	OptimizeExtended                          // ORT_ENABLE_EXTENDED
	OptimizeLayout                            // ORT_ENABLE_LAYOUT
	OptimizeAll                               // ORT_ENABLE_ALL
)

// native is the value in the C header.
func (o OptimizationLevel) native() uintptr {
	return [...]uintptr{OptimizeNone: 0, OptimizeBasic: 1, OptimizeExtended: 2, OptimizeLayout: 3, OptimizeAll: 99}[o]
}

// A Provider is an execution provider to append, with its options.
type Provider struct {
	Name    string // short name: "CUDA", "XNNPACK", ...
	Options map[string]string
}

// Options say how a session is made. The zero value is ONNX Runtime's defaults.
type Options struct {
	IntraOpThreads int // threads inside an operator; 0 = one a core
	InterOpThreads int // threads between operators, with Parallel; 0 = one a core
	Parallel       bool
	Optimization   OptimizationLevel
	// Config holds session config entries, "session.use_env_allocators" for example.
	Config map[string]string
	// FreeDimensions fixes symbolic dimensions by name.
	FreeDimensions map[string]int64
	Providers      []Provider
	Domains        []operator.Domain
	// Weights are initializers that an unpatched session takes from memory. They are released by the session's
	// end, or where none is made.
	Weights []Weight
	// Libraries are paths of custom operator libraries that export RegisterCustomOps.
	Libraries []string
	// OptimizedModel is a path that the optimised graph is written to; empty: not written.
	OptimizedModel string
	// Profile is the prefix of a profile file that [Session.Close] completes; empty: none.
	Profile string
	// LogSeverity is the least severe message that ONNX Runtime prints; the zero value is
	// the environment's, which is warnings.
	LogSeverity LogSeverity
	// NoMemoryPattern and NoArena switch off planned allocation and the arena of the CPU.
	NoMemoryPattern, NoArena bool

	// Unpatched makes the session through ONNX Runtime's own functions even while a hook is installed.
	Unpatched bool
	// Patcher patches this session, whatever hook is installed; its failure is an error.
	Patcher Patcher
}

// A LogSeverity is ONNX Runtime's OrtLoggingLevel, shifted so that zero means "not set".
type LogSeverity int

// The severities of OrtLoggingLevel.
const (
	LogDefault LogSeverity = iota
	LogVerbose
	LogInfo
	LogWarning
	LogError
	LogFatal
)

// newOptions builds an OrtSessionOptions, to be released by the caller.
func newOptions(l *ort.Library, o Options) (options uintptr, err error) {
	if err := l.Try("CreateSessionOptions", slot.CreateSessionOptions, uintptr(unsafe.Pointer(&options))); err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			l.Call(slot.ReleaseSessionOptions, options)
			options = 0
		}
	}()
	set := func(name string, s slot.Slot, value uintptr) {
		if err == nil {
			err = l.Try(name, s, options, value)
		}
	}
	if o.IntraOpThreads != 0 {
		set("SetIntraOpNumThreads", slot.SetIntraOpNumThreads, uintptr(o.IntraOpThreads))
	}
	if o.InterOpThreads != 0 {
		set("SetInterOpNumThreads", slot.SetInterOpNumThreads, uintptr(o.InterOpThreads))
	}
	if o.Parallel {
		set("SetSessionExecutionMode", slot.SetSessionExecutionMode, 1)
	}
	if o.Optimization != OptimizeDefault {
		set("SetSessionGraphOptimizationLevel", slot.SetSessionGraphOptimizationLevel, o.Optimization.native())
	}
	if o.LogSeverity != LogDefault {
		set("SetSessionLogSeverityLevel", slot.SetSessionLogSeverityLevel, uintptr(o.LogSeverity-LogVerbose))
	}
	if o.NoMemoryPattern && err == nil {
		err = l.Try("DisableMemPattern", slot.DisableMemPattern, options)
	}
	if o.NoArena && err == nil {
		err = l.Try("DisableCpuMemArena", slot.DisableCpuMemArena, options)
	}
	text := func(name string, s slot.Slot, value string) {
		if value == "" || err != nil {
			return
		}
		var p *byte
		if p, err = cmem.CString(value); err == nil {
			err = l.Try(name, s, options, uintptr(unsafe.Pointer(p)))
		}
	}
	text("SetOptimizedModelFilePath", slot.SetOptimizedModelFilePath, o.OptimizedModel)
	text("EnableProfiling", slot.EnableProfiling, o.Profile)
	for _, path := range o.Libraries {
		text("RegisterCustomOpsLibrary_V2", slot.RegisterCustomOpsLibrary_V2, path)
	}
	if err != nil {
		return options, err
	}
	for _, name := range slices.Sorted(maps.Keys(o.FreeDimensions)) {
		p, err := cmem.CString(name)
		if err != nil {
			return options, err
		}
		if err := l.Try("AddFreeDimensionOverrideByName", slot.AddFreeDimensionOverrideByName,
			options, uintptr(unsafe.Pointer(p)), uintptr(o.FreeDimensions[name])); err != nil {
			return options, err
		}
	}
	for _, p := range o.Providers {
		if err := appendProvider(l, options, p); err != nil {
			return options, err
		}
	}
	if err := l.Options(options).AddConfig(o.Config); err != nil {
		return options, err
	}
	return options, operator.AddDomains(l, options, o.Domains)
}

func appendProvider(l *ort.Library, options uintptr, p Provider) error {
	name, err := cmem.CString(p.Name)
	if err != nil {
		return err
	}
	keys := slices.Sorted(maps.Keys(p.Options))
	values := make([]string, len(keys))
	for i, k := range keys {
		values[i] = p.Options[k]
	}
	ck, err := cmem.CStrings(keys)
	if err != nil {
		return err
	}
	cv, err := cmem.CStrings(values)
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(ck)
	defer runtime.KeepAlive(cv)
	if ort.ProviderName(p.Name) == ort.CUDA {
		return appendCUDA(l, options, ck, cv)
	}
	return l.Try("SessionOptionsAppendExecutionProvider", slot.SessionOptionsAppendExecutionProvider,
		options, uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(unsafe.SliceData(ck))),
		uintptr(unsafe.Pointer(unsafe.SliceData(cv))), uintptr(len(keys)))
}

// appendCUDA appends the CUDA provider, which has functions of its own and is not taken by name.
func appendCUDA(l *ort.Library, options uintptr, keys, values []*byte) error {
	var cuda uintptr
	if err := l.Try("CreateCUDAProviderOptions", slot.CreateCUDAProviderOptions,
		uintptr(unsafe.Pointer(&cuda))); err != nil {
		return err
	}
	defer l.Call(slot.ReleaseCUDAProviderOptions, cuda)
	if len(keys) > 0 {
		if err := l.Try("UpdateCUDAProviderOptions", slot.UpdateCUDAProviderOptions, cuda,
			uintptr(unsafe.Pointer(unsafe.SliceData(keys))),
			uintptr(unsafe.Pointer(unsafe.SliceData(values))), uintptr(len(keys))); err != nil {
			return err
		}
	}
	return l.Try("SessionOptionsAppendExecutionProvider_CUDA_V2", slot.SessionOptionsAppendExecutionProvider_CUDA_V2,
		options, cuda)
}
