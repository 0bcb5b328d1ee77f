package model

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"google.golang.org/protobuf/proto"
)

// Model is an opened ONNX model: its structure, and where its weights lie. Its
// methods may be called from several goroutines as long as none changes the
// proto meanwhile.
type Model struct {
	proto *onnx.Model
	path  string  // as the caller named it; "" for bytes
	src   *source // the model's own bytes
	files *resolver

	refs []reference
	laid *source // of weights in panels; nil for none
}

// reader builds the skeleton of a model: the walker with what reading needs.
type reader struct {
	walker
	src   *source
	files *resolver
	refs  []reference
}

// Open reads the model at path. Links are resolved first. The file and its
// external data may change meanwhile, or later: whatever is read of them then is an
// error of kind ErrInUse. Every error is a *diagnostic.Error.
func Open(path string, limits ...Limits) (*Model, error) {
	m, err := open(path, effective(limits))
	if err != nil {
		return nil, located(err, path)
	}
	return m, nil
}

func open(path string, limits Limits) (*Model, error) {
	if path == "" {
		return nil, &diagnostic.Error{Kind: ErrMisused, Found: "no path was given", Needed: "the path of an .onnx file",
			Fix: "name the model"}
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, failure(path, "find the file", err)
	}
	resolved, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, failure(path, "open the file", err)
	}
	src, err := fileSource(resolved, path)
	if err != nil {
		return nil, err
	}
	files, err := newResolver(abs, resolved, limits.ExternalFiles)
	if err != nil {
		return nil, err
	}
	m, err := read(src, files, limits)
	if err != nil {
		_ = src.close() // the first error says more
		return nil, err
	}
	m.path = path
	opened.Add(1)
	return m, nil
}

// opened counts files that Open read.
var opened atomic.Int64

// Opened is how many model files this process opened: to tell work that is done twice.
func Opened() int64 { return opened.Load() }

// Parse reads a model from bytes, which must stay unchanged until Close: large
// tensors are views of them. External data is looked for in folder; when folder
// is "", a model with external data is an error. Every error is a *diagnostic.Error.
func Parse(b []byte, folder string, limits ...Limits) (*Model, error) {
	l := effective(limits)
	files := &resolver{limit: l.ExternalFiles}
	if folder != "" {
		abs, err := filepath.Abs(folder)
		if err != nil {
			return nil, failure(folder, "find the folder", err)
		}
		root, err := filepath.EvalSymlinks(abs)
		if err != nil {
			return nil, failure(folder, "find the folder of the external data", err)
		}
		files = folderResolver(abs, root, l.ExternalFiles)
	}
	m, err := read(memorySource(b), files, l)
	if err != nil {
		return nil, located(err, "model bytes")
	}
	return m, nil
}

// located makes err a *diagnostic.Error that names the path.
func located(err error, path string) error {
	var e *diagnostic.Error
	if !errors.As(err, &e) {
		return &diagnostic.Error{Kind: ErrDamaged, Path: path, Found: "cannot read the model: found " + err.Error(),
			Fix: fixDamaged, Cause: err}
	}
	if e.Path == "" {
		named := *e
		named.Path = path
		return &named
	}
	return e
}

func read(src *source, files *resolver, limits Limits) (m *Model, err error) {
	err = src.view(func(b []byte) error {
		m, err = structure(b, src, files, limits)
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// structure reads a model's bytes, to which nothing refers afterwards.
func structure(b []byte, src *source, files *resolver, limits Limits) (*Model, error) {
	if err := looksWrong(b); err != nil {
		return nil, err
	}
	r := &reader{src: src, files: files, walker: walker{limits: &limits}}
	r.tensor = r.readTensor
	if err := r.message(kindModel, b, 0, 0); err != nil {
		return nil, err
	}
	skeleton, err := r.out.flatten()
	if err != nil {
		return nil, err
	}
	p := &onnx.Model{}
	if err := proto.Unmarshal(skeleton, p); err != nil {
		return nil, &diagnostic.Error{Kind: ErrDamaged, Found: "is truncated or damaged: found " + err.Error(),
			Fix: fixDamaged, Cause: err}
	}
	if p.GetGraph() == nil {
		return nil, &diagnostic.Error{Kind: ErrDamaged,
			Found:  fmt.Sprintf("holds no graph: found %d bytes without one", src.size),
			Needed: "an ONNX model with a graph", Fix: fixDamaged}
	}
	return &Model{proto: p, src: src, files: files, refs: r.refs}, nil
}

// catchFault turns a fault in mapped memory, which a file cut short under the
// reader causes, into an error. It is used as defer catchFault(src, &err)().
func catchFault(src *source, err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		switch p := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}:
			*err = src.changed()
		default:
			panic(p)
		}
	}
}

// Proto is the structure of the model. It may be edited; what Serialize and
// Write are given need not be this one, but its referring tensors must come
// from here.
func (m *Model) Proto() *onnx.Model { return m.proto }

// Path is the file as Open was given it, "" for a model from bytes.
func (m *Model) Path() string { return m.path }

// allSources lists the sources that are files.
func (m *Model) allSources() []*source {
	var all []*source
	if m.src.path != "" {
		all = append(all, m.src)
	}
	for _, path := range sortedKeys(m.files.sources) {
		all = append(all, m.files.sources[path])
	}
	return all
}

// Source is a file that a model is read from.
type Source struct {
	Path string      // absolute, without links
	Info fs.FileInfo // as it was when it was opened
}

// Sources are the files that the model is read from.
func (m *Model) Sources() []Source {
	var list []Source
	for _, s := range m.allSources() {
		list = append(list, Source{s.path, s.info})
	}
	return list
}

// Close closes the files. Weights that Serialize has read stay until each is released.
func (m *Model) Close() error {
	first := m.src.close()
	for _, s := range m.files.sources {
		if err := s.close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// shown names the model in messages.
func (m *Model) shown() string {
	if m.path == "" {
		return "model bytes"
	}
	return m.path
}

// reference finds where a referring tensor's payload lies; ok is false for a
// tensor that holds its elements itself.
func (m *Model) reference(t *onnx.Tensor) (ref reference, ok bool, err error) {
	if t.GetDataLocation() != onnx.Tensor_EXTERNAL {
		return reference{}, false, nil
	}
	for _, e := range t.GetExternalData() {
		if e.GetKey() != refKey {
			continue
		}
		ref, err := m.numbered(e.GetValue())
		return ref, err == nil, err
	}
	return reference{}, false,
		&diagnostic.Error{Kind: ErrMisused, Path: m.shown(),
			Found:  "tensor " + quote(t.GetName()) + " refers to a file by itself",
			Needed: "data of its own or of an opened model"}
}

func (m *Model) numbered(index string) (reference, error) {
	i, err := strconv.Atoi(index)
	if err != nil || i < 0 || i >= len(m.refs) {
		return reference{}, &diagnostic.Error{Kind: ErrMisused, Path: m.shown(),
			Found:  "a tensor refers to another model: found reference " + quote(index),
			Needed: fmt.Sprintf("one below %d", len(m.refs)), Fix: "take tensors from one model only"}
	}
	return m.refs[i], nil
}
