package model

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/opgraft/graft/host/diagnostic"
	"github.com/opgraft/graft/host/model/onnx"
	"google.golang.org/protobuf/proto"
)

// maxMessage is what protobuf, and so ONNX Runtime, takes as one message.
const maxMessage = 1<<31 - 1

// SerializeOptions says how a serialized model names its weights.
type SerializeOptions struct {
	// InMemory names them as files in memory, for sessions that take
	// AddExternalInitializersFromFilesInMemory, instead of files in a folder.
	// It is the way for a model from bytes: without it those are copied.
	// Weights of subgraphs are copied, because ONNX Runtime looks names in
	// memory up for the main graph only.
	InMemory bool
}

// Serialized is a model for CreateSessionFromArray.
type Serialized struct {
	// Bytes is the encoded model.
	Bytes []byte
	// Folder is absolute and without links; the session must be given it as
	// session.model_external_initializers_file_folder_path. "" when no weight
	// is referred to in a file.
	Folder string
	// Memory lists the files in memory, all of which the session must be
	// given. ONNX Runtime takes either a folder or memory, so with InMemory
	// the files of external data are here too, mapped.
	Memory []MemoryFile
	// Referred is the bytes of weights that Bytes refers to.
	Referred int64
}

// MemoryFile is a name that external data uses and the bytes behind it, which
// must stay until the session is created, and are not to be written to.
type MemoryFile struct {
	Name string
	Data []byte
}

// Serialize encodes p for a session in this process. Weights that lie in files
// as raw bytes are not copied: the result refers to them there. p is not
// changed; large Constant nodes become initializers in the result, since only
// initializers may refer to other files. The files must stay until the session
// is created, and the Model open when InMemory is set.
func (m *Model) Serialize(p *onnx.Model, o SerializeOptions) (*Serialized, error) {
	p = m.lifted(p)
	out := &Serialized{}
	place := m.inFolder(out)
	if o.InMemory {
		place = m.inMemory(out)
	}
	s, err := m.write(p, place)
	if err != nil {
		return nil, err
	}
	if s.size() > maxMessage {
		fix := "write the patched model to a file instead"
		if m.path == "" && !o.InMemory {
			fix = "open the model from its file, or serialize it with InMemory"
		}
		return nil, &diagnostic.Error{Kind: ErrTooLarge, Path: m.shown(), Found: fmt.Sprintf("is too large for one message apart from what it can refer to: found %d bytes", s.size()),
			Needed: fmt.Sprintf("at most %d", maxMessage), Fix: fix}
	}
	if out.Bytes, err = s.flatten(); err != nil {
		return nil, located(err, m.shown())
	}
	return out, nil
}

// lifted gives p itself, or a copy in which large constants are initializers.
func (m *Model) lifted(p *onnx.Model) *onnx.Model {
	if p.GetIrVersion() < 4 || !m.hasLargeConstants(p.GetGraph()) {
		return p
	}
	p = proto.Clone(p).(*onnx.Model)
	m.LiftConstants(p)
	return p
}

// inFolder refers to raw bytes in files by their path below a common folder.
func (m *Model) inFolder(out *Serialized) placer {
	folder := m.commonFolder()
	return func(at site, p payload) (place, error) {
		if p.src == nil || !at.initializer() {
			return place{}, nil
		}
		rel, err := filepath.Rel(folder, p.src.path)
		if err != nil {
			return place{}, nil // on another volume: copied
		}
		out.Folder = folder
		out.Referred += p.length
		return place{filepath.ToSlash(rel), p.offset}, nil
	}
}

// commonFolder is the deepest folder above every file that holds weights.
func (m *Model) commonFolder() string {
	var common string
	seen := map[*source]bool{}
	for _, r := range m.refs {
		if r.src.path == "" || seen[r.src] {
			continue
		}
		seen[r.src] = true
		dir := filepath.Dir(r.src.path)
		if common == "" {
			common = dir
		}
		for !under(dir, common) {
			up := filepath.Dir(common)
			if up == common {
				break
			}
			common = up
		}
	}
	return common
}

func under(dir, folder string) bool {
	rel, err := filepath.Rel(folder, dir)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// inMemory refers to raw bytes by a name for each buffer or mapped file.
func (m *Model) inMemory(out *Serialized) placer {
	names := map[*source]string{}
	return func(at site, p payload) (place, error) {
		src := p.src
		if src == nil {
			src = p.home
		}
		if src == nil || !at.initializer() || at.depth != 1 {
			return place{}, nil
		}
		name, ok := names[src]
		if !ok {
			name = fmt.Sprintf("graft-memory-%d", len(names))
			data, err := src.bytes(0, src.size)
			if err != nil {
				return place{}, err
			}
			names[src] = name
			out.Memory = append(out.Memory, MemoryFile{name, data})
		}
		out.Referred += p.length
		return place{name, p.offset}, nil
	}
}
