package session

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"unsafe"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/arena"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/given"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/operator"
)

// ConfigExternalFolder is ONNX Runtime's session config entry for the folder that the external
// data of a model given as bytes lie in. ONNX Runtime takes it literally, links unresolved.
const ConfigExternalFolder = "session.model_external_initializers_file_folder_path"

// A Patcher decides what a session is made from. It returns nil to leave the model as it is, and
// an error when it wanted to patch and could not. It runs on the thread that creates the session,
// possibly several times at once. It may make sessions of its own only with
// [Options.Unpatched], because any other session comes back to it.
type Patcher func(Request) (*Patch, error)

// A Request is a session about to be made. It is valid until the Patcher returns.
type Request struct {
	// Library is the runtime that makes the session.
	Library *ort.Library
	// Path is the model's file as the program named it, empty for a model given as bytes.
	Path string
	// Model is the caller's memory, not a copy: read it, do not keep it. Nil for a file.
	Model []byte
	// WayBack asks for [Patch.Plain].
	WayBack bool

	env     uintptr        // OrtEnv
	options uintptr        // OrtSessionOptions, may be null
	own     []ort.Appended // providers of a session that this package makes
}

// Config reads a session config entry of the program's options. Absent and unreadable entries
// are not ok. The entry [ConfigExternalFolder] says where a model given as bytes has its external
// data; it has no meaning for a model given by path.
func (r Request) Config(key string) (value string, ok bool) {
	value, ok, err := r.Library.Options(r.options).Config(key)
	return value, ok && err == nil
}

// ConfigEntries reads all session config entries. ONNX Runtime files the options of execution
// providers that were appended by name under "ep.<provider in lower case>."; [Request.Appended]
// says which providers there are.
func (r Request) ConfigEntries() (map[string]string, error) {
	return r.Library.Options(r.options).ConfigEntries()
}

// Name is what messages call the model.
func (r Request) Name() string {
	if r.Path != "" {
		return r.Path
	}
	return fmt.Sprintf("%d bytes in memory", len(r.Model))
}

// A Patch is what a session is made from instead of the program's model.
type Patch struct {
	// Model is the rewritten model in ONNX's protobuf form, usually without the weights.
	Model []byte
	// ExternalFolder is the folder of the model's external data, links resolved. Empty leaves
	// what the program's options say.
	ExternalFolder string
	// Weights are initializers that the session takes from memory. It is made with them or they are
	// released: they are the Patch's no more once it was returned.
	Weights []Weight
	// Domains are the custom operators of the rewritten model.
	Domains []operator.Domain
	// Config holds session config entries to add, over the program's own.
	Config map[string]string
	// NoMemoryPattern has ONNX Runtime plan no block of memory for each combination of input shapes.
	NoMemoryPattern bool
	// ShareArena has the session take what it computes with from an arena that it shares with others, where ONNX Runtime
	// would make it one of its own.
	ShareArena bool
	// Plain is the program's own model, for the session that takes over when a run of this one fails. Nil where
	// there is none, and where the request did not ask for it.
	Plain *Plain
	// Hidden are outputs that are not the model's own in rows of hidden tokens; nil for none.
	Hidden *Hidden
	// Apart is of operators of the patch that run in another process; nil where none does.
	Apart Apart
	// Retained is held until the session is released.
	Retained any
	// Done, if not nil, is called once ONNX Runtime has read Model, whether or not it made a session.
	Done func()
}

// Apart is what becomes of operators in another process, which may end. A run of theirs that fails with
// [CodeEngineError] is repeated by the plain session, and the next one goes to the patched session again.
type Apart interface {
	// Ready reports that they can run now. Where they cannot, the plain session runs.
	Ready() bool
	// Gone says why they never run again; nil as long as they may. Then the plain session takes over.
	Gone() error
	// Instead is told of each run that the plain session did in the place of such operators.
	Instead()
}

// Plain is a program's own model, for later.
type Plain struct {
	// Model gives the model's bytes, valid until made is called. Nil means the file that the program named, which is
	// as it was. made is called after a session was made; its error says that it may not be the program's after all.
	// Model may be called again after an error.
	Model func() (model []byte, made func() error, err error)
	// Release is called once, when the session is released or was not made. It may be nil.
	Release func()
}

// Close releases it, nil too.
func (p *Plain) Close() {
	if p != nil && p.Release != nil {
		p.Release()
	}
}

// A Creation is one call of a function that creates a session, in C's terms: addresses, null
// where the function lacks the argument.
type Creation struct {
	Library                                         *ort.Library
	Env, Path, Model, Size, Options, Container, Out uintptr
	Prepacked                                       bool // the function takes a Container

	own                 []ort.Appended // see Request
	ownOptions, noArena bool           // options of this package's, and what they say of the arena
}

// Request is what a Patcher is asked.
func (c Creation) Request() Request {
	r := Request{Library: c.Library, env: c.Env, options: c.Options, own: c.own}
	if c.Model != 0 {
		r.Model = unsafe.Slice((*byte)(cmem.Pointer(c.Model)), c.Size)
	} else {
		r.Path = cmem.GoString(c.Path)
	}
	return r
}

// Unpatched calls ONNX Runtime's own function with the caller's own arguments.
func (c Creation) Unpatched() (status uintptr) {
	ort.WithSignals(c.Foreign(), func() { status = c.Create() })
	return status
}

// Create calls ONNX Runtime's own function as it is.
func (c Creation) Create() (status uintptr) {
	l := c.Library
	switch {
	case c.Model == 0 && !c.Prepacked:
		return l.Original(slot.CreateSession, c.Env, c.Path, c.Options, c.Out)
	case c.Model == 0:
		return l.Original(slot.CreateSessionWithPrepackedWeightsContainer, c.Env, c.Path, c.Options, c.Container, c.Out)
	case !c.Prepacked:
		return l.Original(slot.CreateSessionFromArray, c.Env, c.Model, c.Size, c.Options, c.Out)
	default:
		return l.Original(slot.CreateSessionFromArrayWithPrepackedWeightsContainer, c.Env, c.Model, c.Size, c.Options,
			c.Container, c.Out)
	}
}

// Patched asks a patcher and makes the session from its answer. It gives nil where there is none. After a session was
// made it calls made, if that is not nil, which takes what is Plain. A panic becomes an error: it must not unwind
// through C.
func (c Creation) Patched(patcher Patcher, request Request, made func(*Patch)) (p *Patch, err error) {
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	if p, err = patcher(request); p == nil || err != nil {
		return nil, err
	}
	if p.Done != nil {
		defer p.Done()
	}
	weights := lent{weights: p.Weights}
	if err := weights.made(func() error { return c.patched(p, &weights) }); err != nil {
		p.Plain.Close()
		return nil, err
	}
	session := *cmem.WordAt(c.Out)
	weights.arena = weights.arena.Made(session)
	keptOf.Of(c.Library).keep(session, p.Retained, weights)
	if made != nil {
		made(p)
	} else {
		p.Plain.Close()
	}
	return p, nil
}

// patched makes the session from a patch, on a clone of the caller's options.
func (c Creation) patched(p *Patch, weights *lent) error {
	l := c.Library
	if len(p.Model) == 0 {
		return fmt.Errorf("the patch has no model")
	}
	var options uintptr
	var err error
	if c.Options == 0 {
		err = l.Try("CreateSessionOptions", slot.CreateSessionOptions, uintptr(unsafe.Pointer(&options)))
	} else {
		err = l.Try("CloneSessionOptions", slot.CloneSessionOptions, c.Options, uintptr(unsafe.Pointer(&options)))
	}
	if err != nil {
		return err
	}
	defer l.Call(slot.ReleaseSessionOptions, options)

	config := map[string]string{}
	for key, value := range p.Config {
		config[key] = value
	}
	if p.ExternalFolder != "" {
		config[ConfigExternalFolder] = p.ExternalFolder
	}
	if p.ShareArena && config[arena.ConfigEnvAllocators] == "" {
		if weights.arena = c.shareArena(); weights.arena != nil {
			config[arena.ConfigEnvAllocators] = "1"
		}
	}
	for key, value := range config {
		// Setting an entry to the value it has makes ONNX Runtime print a warning.
		if old, ok, err := l.Options(options).Config(key); err == nil && ok && old == value {
			delete(config, key)
		}
	}
	if err := l.Options(options).AddConfig(config); err != nil {
		return err
	}
	if err := operator.AddDomains(l, options, p.Domains); err != nil {
		return err
	}
	if p.NoMemoryPattern {
		if err := l.Try("DisableMemPattern", slot.DisableMemPattern, options); err != nil {
			return err
		}
	}
	if !c.Prepacked { // else the program shares them, by its own container
		if err := weights.share(l); err != nil {
			return err
		}
	}
	if err := weights.give(l, options); err != nil {
		return err
	}
	defer runtime.KeepAlive(p)
	var pin runtime.Pinner // memory of the heap in a struct
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(p.Model))
	foreign := c.Foreign()
	c.Model, c.Size, c.Options = uintptr(unsafe.Pointer(unsafe.SliceData(p.Model))), uintptr(len(p.Model)), options
	if weights.panels != nil {
		c.Container, c.Prepacked = weights.panels.container, true
	}
	name := "CreateSessionFromArray"
	if c.Prepacked {
		name += "WithPrepackedWeightsContainer"
	}
	var status uintptr
	ort.WithSignals(foreign, func() { status = c.Create() })
	return l.TakeStatus(name, status)
}

// sharesArena reports that sessions with these options may share an arena: ONNX Runtime would make each one of its
// own, and the program has said nothing about it.
func (c Creation) sharesArena() bool {
	switch _, set, err := c.Library.Options(c.Options).Config(arena.ConfigEnvAllocators); {
	case set || err != nil || c.Foreign():
		return false // a provider may share memory by the environment too
	case c.ownOptions:
		return !c.noArena
	}
	return c.Options == 0 || given.To(c.Library).Arena(c.Options)
}

// shareArena finds an arena for the session; nil for one of its own.
func (c Creation) shareArena() *arena.Arena {
	if !c.sharesArena() {
		return nil
	}
	return arena.Share(c.Library, c.Env)
}
