package model

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"google.golang.org/protobuf/proto"
)

// maxMessage is what protobuf, and so ONNX Runtime, takes as one message.
const maxMessage = 1<<31 - 1

// SerializeOptions says where the weights of a serialized model are.
type SerializeOptions struct {
	// Held reads them into memory of our own, as Serialized.Weights, which no change of a file reaches. Weights
	// of subgraphs become part of Bytes, because ONNX Runtime takes weights from memory for the main graph
	// only. Without it Bytes refers to files, which must not change as long as the session is there.
	Held bool
	// InPlace says of a node that reads a weight, as one of its inputs, that it does so where the weight lies:
	// Weight.InPlace is that of all its readers. nil is never.
	InPlace func(n *onnx.Node, input int) bool
	// Packed says of such a node that it lays the weight out anew when a session is made, and reads no byte of it in a
	// run: Weight.Packed is that of all its readers. nil is never.
	Packed func(n *onnx.Node, input int) bool
	// Share has weights in place, that is but those that are packed, once for all processes that read the same bytes.
	Share shared.Wish
}

// Serialized is a model for CreateSessionFromArray.
type Serialized struct {
	// Bytes is the encoded model.
	Bytes []byte
	// Folder is absolute and without links; the session must be given it as
	// session.model_external_initializers_file_folder_path. "" when no weight
	// is referred to in a file.
	Folder string
	// Weights are initializers of the main graph that the session must be given. Each is to be released.
	Weights []Weight
	// Referred is the bytes of weights that Bytes refers to.
	Referred int64
}

// Weight is an initializer in memory of our own, which sessions of the same file share.
type Weight struct {
	Name     string
	DataType onnx.Tensor_DataType
	Dims     []int64
	Data     []byte // raw and little-endian, at the start of a cache line, not to be written to
	InPlace  bool   // see SerializeOptions
	Packed   bool   // in place until a session is made, see SerializeOptions
	Release  func() // to be called once, by any goroutine
}

// Release releases all weights, where no session takes them.
func (s *Serialized) Release() {
	for _, w := range s.Weights {
		w.Release()
	}
	s.Weights = nil
}

// Serialize encodes p for a session in this process. Weights that lie in files
// as raw bytes are not copied: the result refers to them there. p is not
// changed; large Constant nodes become initializers in the result, since only
// initializers may refer to other files.
func (m *Model) Serialize(p *onnx.Model, o SerializeOptions) (*Serialized, error) {
	p = m.lifted(p)
	out := &Serialized{}
	place := m.inFolder(out)
	var held collector
	if o.Held {
		place = held.place
	}
	s, err := m.write(p, place)
	if err != nil {
		return nil, err
	}
	if s.size() > maxMessage {
		fix := "write the patched model to a file instead"
		if m.path == "" && !o.Held {
			fix = "open the model from its file, or serialize it with Held"
		}
		return nil, &diagnostic.Error{Kind: ErrTooLarge, Path: m.shown(),
			Found:  fmt.Sprintf("is too large for one message apart from what it can refer to: found %d bytes", s.size()),
			Needed: fmt.Sprintf("at most %d", maxMessage), Fix: fix}
	}
	if out.Bytes, err = s.flatten(); err == nil && o.Held {
		err = held.read(out, readByAll(p.GetGraph(), o.InPlace), readByAll(p.GetGraph(), o.Packed), o.Share)
	}
	// What was read before, the structure too, is of the files as they are now.
	for _, s := range m.allSources() {
		if err == nil {
			err = s.unchanged()
		}
	}
	if err != nil {
		out.Release()
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
	return func(at site, _ *onnx.Tensor, p payload) (place, error) {
		if p.src == nil || p.src.made != nil || !at.initializer() {
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

// Nowhere is the location of a weight that a session is given. ONNX Runtime wants a file of that name in the folder
// NowhereFolder, in which nothing can be read at any offset.
const (
	NowhereFolder = "/proc/self"
	Nowhere       = "status"
)

// collector is told of payloads that are to be held.
type collector struct {
	sources  []*source // in the order of their first payload
	payloads map[*source][]wanted
}

// wanted is a payload of a tensor.
type wanted struct {
	tensor *onnx.Tensor
	span   span
}

func (c *collector) place(at site, t *onnx.Tensor, p payload) (place, error) {
	src := p.src
	if src == nil {
		src = p.home
	}
	if src == nil || !at.initializer() || at.depth != 1 {
		return place{}, nil
	}
	if c.payloads == nil {
		c.payloads = map[*source][]wanted{}
	}
	if c.payloads[src] == nil {
		c.sources = append(c.sources, src)
	}
	c.payloads[src] = append(c.payloads[src], wanted{t, span{p.offset, p.length}})
	return place{Nowhere, p.offset}, nil
}

// use is how a session uses a weight. Weights of different use lie apart.
type use int

const (
	useCopied  use = iota // and released when the session is made
	useLaid               // anew by the session, and released then
	useInPlace            // where it lies, as long as the session is there
)

// read reads what was collected. An error leaves what was read in out. Only what stays is worth sharing.
func (c *collector) read(out *Serialized, inPlace, packed map[string]bool, wish shared.Wish) error {
	for _, src := range c.sources {
		var list [useInPlace + 1][]wanted
		for _, w := range c.payloads[src] {
			way := useCopied
			if name := w.tensor.GetName(); packed[name] {
				way = useLaid
			} else if inPlace[name] {
				way = useInPlace
			}
			list[way] = append(list[way], w)
		}
		for way, list := range list {
			if len(list) == 0 {
				continue
			}
			var spans []span
			for _, w := range list {
				spans = append(spans, w.span)
			}
			share := shared.Never
			if use(way) == useInPlace {
				share = wish
			}
			found, err := src.hold(spans, share)
			if err != nil {
				return err
			}
			for i, w := range list {
				h := found[i]
				out.Weights = append(out.Weights,
					Weight{w.tensor.GetName(), onnx.Tensor_DataType(w.tensor.GetDataType()), w.tensor.Dims, h.data,
						use(way) != useCopied, use(way) == useLaid, h.release})
				out.Referred += w.span.length
			}
		}
	}
	return nil
}

// readByAll says of each value that nodes of a graph read whether all of them read it in a way.
func readByAll(g *onnx.Graph, way func(*onnx.Node, int) bool) map[string]bool {
	found := map[string]bool{}
	note := func(name string, in bool) {
		before, seen := found[name]
		found[name] = in && (before || !seen)
	}
	var inside func(g *onnx.Graph)
	inside = func(g *onnx.Graph) {
		for _, n := range g.GetNode() {
			for _, name := range n.GetInput() {
				note(name, false)
			}
			eachSubgraph(n, inside)
		}
		for _, o := range g.GetOutput() {
			note(o.GetName(), false)
		}
	}
	for _, n := range g.GetNode() {
		for i, name := range n.GetInput() {
			note(name, way != nil && way(n, i))
		}
		eachSubgraph(n, inside)
	}
	for _, v := range slices.Concat(g.GetInput(), g.GetOutput()) {
		note(v.GetName(), false) // the program may give its own, or keep it
	}
	return found
}
