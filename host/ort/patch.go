package ort

import (
	"fmt"
	"runtime"
	"unsafe"
)

// ConfigExternalFolder is ONNX Runtime's session config entry for the folder that the external
// data of a model given as bytes lie in. ONNX Runtime takes it literally, links unresolved.
const ConfigExternalFolder = "session.model_external_initializers_file_folder_path"

// A Patcher decides what a session is made from. It returns nil to leave the model as it is, and
// an error when it wanted to patch and could not. It runs on the thread that creates the session,
// possibly several times at once. It may make sessions of its own only with
// [SessionOptions.Unpatched], because any other session comes back to it.
type Patcher func(Request) (*Patch, error)

// A Request is a session about to be made. It is valid until the Patcher returns.
type Request struct {
	// Library is the runtime that makes the session.
	Library *Library
	// Path is the model's file as the program named it, empty for a model given as bytes.
	Path string
	// Model is the caller's memory, not a copy: read it, do not keep it. Nil for a file.
	Model []byte
	// WayBack asks for [Patch.Plain].
	WayBack bool

	env     uintptr    // OrtEnv
	options uintptr    // OrtSessionOptions, may be null
	own     []Appended // providers of a session that this package makes
}

// Config reads a session config entry of the program's options. Absent and unreadable entries
// are not ok. The entry [ConfigExternalFolder] says where a model given as bytes has its external
// data; it has no meaning for a model given by path.
func (r Request) Config(key string) (value string, ok bool) {
	value, ok, err := r.Library.config(r.options, key)
	return value, ok && err == nil
}

// ConfigEntries reads all session config entries. ONNX Runtime files the options of execution
// providers that were appended by name under "ep.<provider in lower case>."; [Request.Appended]
// says which providers there are.
func (r Request) ConfigEntries() (map[string]string, error) {
	return r.Library.configEntries(r.options)
}

// name is what messages call the model.
func (r Request) name() string {
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
	Domains []Domain
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

func (p *Plain) release() {
	if p != nil && p.Release != nil {
		p.Release()
	}
}

// A creation is one call of a function that creates a session, in C's terms: addresses, null
// where the function lacks the argument.
type creation struct {
	env, path, model, size, options, container, out uintptr
	prepacked                                       bool
	own                                             []Appended // see Request
	ownOptions, noArena                             bool       // options of this package's, and what they say of the arena
}

func (c creation) request(l *Library) Request {
	r := Request{Library: l, env: c.env, options: c.options, own: c.own}
	if c.model != 0 {
		r.Model = unsafe.Slice((*byte)(pointer(c.model)), c.size)
	} else {
		r.Path = goString(c.path)
	}
	return r
}

// createUnpatched calls ONNX Runtime's own function with the caller's own arguments.
func (l *Library) createUnpatched(c creation) (status uintptr) {
	withSignals(c.foreign(l), func() { status = l.createAs(c) })
	return status
}

func (l *Library) createAs(c creation) (status uintptr) {
	switch {
	case c.model == 0 && !c.prepacked:
		return l.original(slotCreateSession, c.env, c.path, c.options, c.out)
	case c.model == 0:
		return l.original(slotCreateSessionWithPrepackedWeightsContainer, c.env, c.path, c.options, c.container, c.out)
	case !c.prepacked:
		return l.original(slotCreateSessionFromArray, c.env, c.model, c.size, c.options, c.out)
	default:
		return l.original(slotCreateSessionFromArrayWithPrepackedWeightsContainer, c.env, c.model, c.size, c.options,
			c.container, c.out)
	}
}

// createPatched makes the session from a patch, on a clone of the caller's options.
func (l *Library) createPatched(c creation, p *Patch, weights *lent) error {
	if len(p.Model) == 0 {
		return fmt.Errorf("the patch has no model")
	}
	var options uintptr
	var err error
	if c.options == 0 {
		err = l.try("CreateSessionOptions", slotCreateSessionOptions, uintptr(unsafe.Pointer(&options)))
	} else {
		err = l.try("CloneSessionOptions", slotCloneSessionOptions, c.options, uintptr(unsafe.Pointer(&options)))
	}
	if err != nil {
		return err
	}
	defer l.call(slotReleaseSessionOptions, options)

	config := map[string]string{}
	for key, value := range p.Config {
		config[key] = value
	}
	if p.ExternalFolder != "" {
		config[ConfigExternalFolder] = p.ExternalFolder
	}
	if p.ShareArena && config[configEnvAllocators] == "" {
		if weights.arena = l.shareArena(c); weights.arena != nil {
			config[configEnvAllocators] = "1"
		}
	}
	for key, value := range config {
		// Setting an entry to the value it has makes ONNX Runtime print a warning.
		if old, ok, err := l.config(options, key); err == nil && ok && old == value {
			delete(config, key)
		}
	}
	if err := l.addConfig(options, config); err != nil {
		return err
	}
	if err := l.addDomains(options, p.Domains); err != nil {
		return err
	}
	if p.NoMemoryPattern {
		if err := l.try("DisableMemPattern", slotDisableMemPattern, options); err != nil {
			return err
		}
	}
	if !c.prepacked { // else the program shares them, by its own container
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
	foreign := c.foreign(l)
	c.model, c.size, c.options = uintptr(unsafe.Pointer(unsafe.SliceData(p.Model))), uintptr(len(p.Model)), options
	if weights.panels != nil {
		c.container, c.prepacked = weights.panels.container, true
	}
	name := "CreateSessionFromArray"
	if c.prepacked {
		name += "WithPrepackedWeightsContainer"
	}
	var status uintptr
	withSignals(foreign, func() { status = l.createAs(c) })
	return l.takeStatus(name, status)
}
