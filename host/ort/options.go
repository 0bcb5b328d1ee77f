package ort

import (
	"maps"
	"runtime"
	"slices"
	"unsafe"
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

// A Domain is a set of custom operators under one ONNX domain name. ONNX Runtime registers a
// domain name once a session, so operators of several plugins share one Domain.
type Domain struct {
	Name string
	// Operators are addresses of OrtCustomOp structs, which must stay valid for the process:
	// static data of a library that is never unmapped.
	Operators []uintptr
}

// A Provider is an execution provider to append, with its options.
type Provider struct {
	Name    string // short name: "CUDA", "XNNPACK", ...
	Options map[string]string
}

// SessionOptions say how a session is made. The zero value is ONNX Runtime's defaults.
type SessionOptions struct {
	IntraOpThreads int // threads inside an operator; 0 = one a core
	InterOpThreads int // threads between operators, with Parallel; 0 = one a core
	Parallel       bool
	Optimization   OptimizationLevel
	// Config holds session config entries, "session.use_env_allocators" for example.
	Config map[string]string
	// FreeDimensions fixes symbolic dimensions by name.
	FreeDimensions map[string]int64
	Providers      []Provider
	Domains        []Domain
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
func (l *Library) newOptions(o SessionOptions) (options uintptr, err error) {
	if err := l.try("CreateSessionOptions", slotCreateSessionOptions, uintptr(unsafe.Pointer(&options))); err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			l.call(slotReleaseSessionOptions, options)
			options = 0
		}
	}()
	set := func(name string, s slot, value uintptr) {
		if err == nil {
			err = l.try(name, s, options, value)
		}
	}
	if o.IntraOpThreads != 0 {
		set("SetIntraOpNumThreads", slotSetIntraOpNumThreads, uintptr(o.IntraOpThreads))
	}
	if o.InterOpThreads != 0 {
		set("SetInterOpNumThreads", slotSetInterOpNumThreads, uintptr(o.InterOpThreads))
	}
	if o.Parallel {
		set("SetSessionExecutionMode", slotSetSessionExecutionMode, 1)
	}
	if o.Optimization != OptimizeDefault {
		set("SetSessionGraphOptimizationLevel", slotSetSessionGraphOptimizationLevel, o.Optimization.native())
	}
	if o.LogSeverity != LogDefault {
		set("SetSessionLogSeverityLevel", slotSetSessionLogSeverityLevel, uintptr(o.LogSeverity-LogVerbose))
	}
	if o.NoMemoryPattern && err == nil {
		err = l.try("DisableMemPattern", slotDisableMemPattern, options)
	}
	if o.NoArena && err == nil {
		err = l.try("DisableCpuMemArena", slotDisableCpuMemArena, options)
	}
	text := func(name string, s slot, value string) {
		if value == "" || err != nil {
			return
		}
		var p *byte
		if p, err = cString(value); err == nil {
			err = l.try(name, s, options, uintptr(unsafe.Pointer(p)))
		}
	}
	text("SetOptimizedModelFilePath", slotSetOptimizedModelFilePath, o.OptimizedModel)
	text("EnableProfiling", slotEnableProfiling, o.Profile)
	for _, path := range o.Libraries {
		text("RegisterCustomOpsLibrary_V2", slotRegisterCustomOpsLibrary_V2, path)
	}
	if err != nil {
		return options, err
	}
	for _, name := range slices.Sorted(maps.Keys(o.FreeDimensions)) {
		p, err := cString(name)
		if err != nil {
			return options, err
		}
		if err := l.try("AddFreeDimensionOverrideByName", slotAddFreeDimensionOverrideByName,
			options, uintptr(unsafe.Pointer(p)), uintptr(o.FreeDimensions[name])); err != nil {
			return options, err
		}
	}
	for _, p := range o.Providers {
		if err := l.appendProvider(options, p); err != nil {
			return options, err
		}
	}
	if err := l.addConfig(options, o.Config); err != nil {
		return options, err
	}
	return options, l.addDomains(options, o.Domains)
}

func (l *Library) appendProvider(options uintptr, p Provider) error {
	name, err := cString(p.Name)
	if err != nil {
		return err
	}
	keys := slices.Sorted(maps.Keys(p.Options))
	values := make([]string, len(keys))
	for i, k := range keys {
		values[i] = p.Options[k]
	}
	ck, err := cStrings(keys)
	if err != nil {
		return err
	}
	cv, err := cStrings(values)
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(ck)
	defer runtime.KeepAlive(cv)
	if providerName(p.Name) == CUDA {
		return l.appendCUDA(options, ck, cv)
	}
	return l.try("SessionOptionsAppendExecutionProvider", slotSessionOptionsAppendExecutionProvider,
		options, uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(unsafe.SliceData(ck))),
		uintptr(unsafe.Pointer(unsafe.SliceData(cv))), uintptr(len(keys)))
}

// appendCUDA appends the CUDA provider, which has functions of its own and is not taken by name.
func (l *Library) appendCUDA(options uintptr, keys, values []*byte) error {
	var cuda uintptr
	if err := l.try("CreateCUDAProviderOptions", slotCreateCUDAProviderOptions,
		uintptr(unsafe.Pointer(&cuda))); err != nil {
		return err
	}
	defer l.call(slotReleaseCUDAProviderOptions, cuda)
	if len(keys) > 0 {
		if err := l.try("UpdateCUDAProviderOptions", slotUpdateCUDAProviderOptions, cuda,
			uintptr(unsafe.Pointer(unsafe.SliceData(keys))),
			uintptr(unsafe.Pointer(unsafe.SliceData(values))), uintptr(len(keys))); err != nil {
			return err
		}
	}
	return l.try("SessionOptionsAppendExecutionProvider_CUDA_V2", slotSessionOptionsAppendExecutionProvider_CUDA_V2,
		options, cuda)
}

// addConfig sets session config entries in the order of their keys.
func (l *Library) addConfig(options uintptr, entries map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		k, err := cString(key)
		if err != nil {
			return err
		}
		v, err := cString(entries[key])
		if err != nil {
			return err
		}
		if err := l.try("AddSessionConfigEntry", slotAddSessionConfigEntry, options,
			uintptr(unsafe.Pointer(k)), uintptr(unsafe.Pointer(v))); err != nil {
			return err
		}
	}
	return nil
}

// config reads one session config entry of an OrtSessionOptions, which may be null.
func (l *Library) config(options uintptr, key string) (value string, ok bool, err error) {
	if options == 0 {
		return "", false, nil
	}
	k, err := cString(key)
	if err != nil {
		return "", false, err
	}
	var has int32
	if err := l.try("HasSessionConfigEntry", slotHasSessionConfigEntry, options,
		uintptr(unsafe.Pointer(k)), uintptr(unsafe.Pointer(&has))); err != nil || has == 0 {
		return "", false, err
	}
	var size uintptr
	if err := l.try("GetSessionConfigEntry", slotGetSessionConfigEntry, options,
		uintptr(unsafe.Pointer(k)), 0, uintptr(unsafe.Pointer(&size))); err != nil {
		return "", false, err
	}
	buffer := make([]byte, size) // size counts the final zero byte
	if err := l.try("GetSessionConfigEntry", slotGetSessionConfigEntry, options,
		uintptr(unsafe.Pointer(k)), uintptr(unsafe.Pointer(unsafe.SliceData(buffer))),
		uintptr(unsafe.Pointer(&size))); err != nil {
		return "", false, err
	}
	return goString(uintptr(unsafe.Pointer(unsafe.SliceData(buffer)))), true, nil
}

// configEntries reads all session config entries.
func (l *Library) configEntries(options uintptr) (map[string]string, error) {
	entries := map[string]string{}
	if options == 0 {
		return entries, nil
	}
	var pairs uintptr
	if err := l.try("GetSessionOptionsConfigEntries", slotGetSessionOptionsConfigEntries, options,
		uintptr(unsafe.Pointer(&pairs))); err != nil {
		return nil, err
	}
	defer l.call(slotReleaseKeyValuePairs, pairs)
	var keys, values, n uintptr
	l.call(slotGetKeyValuePairs, pairs, uintptr(unsafe.Pointer(&keys)), uintptr(unsafe.Pointer(&values)),
		uintptr(unsafe.Pointer(&n)))
	for i := range int(n) {
		entries[goString(loadWord(keys, i))] = goString(loadWord(values, i))
	}
	return entries, nil
}
