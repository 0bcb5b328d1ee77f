// Package prepare leads a model folder to what an engine is opened with: graphs, blocks,
// a plan of what attention stores, folded weights, rewritten graphs. All of it is a value,
// refusals included; no session of a whole graph is made.
package prepare

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/patch"
)

// Model is an open model folder. Each of its files is read once. It is not for
// concurrent use.
type Model struct {
	Files  *modeldir.Files
	Config *modeldir.Config

	// Logits is the decoder's output of logits.
	Logits string

	// Placeholder is a token that the decoder is fed after each of its rows, in whose place the next token is predicted;
	// nil for none.
	Placeholder *int64

	decoder *patch.Analysis
	merged  *onnx.Model // the branch of a merged decoder that takes no past; nil for separate files
	// makes keys and values that the decoder made in every step; nil where the decoder without a past does
	cross *onnx.Model
	// what the decoder without a past, or cross, hands out for inputs of the decoder, by their names; nil if not asked yet
	sources map[string]string
	without *patch.Analysis // the decoder without a past; nil before it is needed
	models  []*model.Model
}

// Open opens a model folder and finds the blocks of its decoder. Errors of kind [graph.ErrBounds] are those of
// [patch.Analyse].
func Open(ctx context.Context, path string) (_ *Model, err error) {
	m := &Model{}
	if m.Files, err = modeldir.Find(path); err != nil {
		return nil, err
	}
	if m.Config, err = modeldir.ReadConfig(path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	if err := m.read(ctx); err != nil {
		return nil, err
	}
	if m.Logits = LogitsOf(m.decoder.Graph, m.decoder.Shapes, m.Config.Vocab); m.Logits == "" {
		return nil, m.Files.NoDecoder()
	}
	if err := m.storeCross(ctx); err != nil {
		return nil, modeldir.About(m.Files.Decoder, err)
	}
	return m, nil
}

// read opens the decoder and finds its blocks.
func (m *Model) read(ctx context.Context) error {
	file, err := m.open(m.Files.Decoder)
	if err != nil {
		return err
	}
	if m.Files.First == m.Files.Decoder {
		m.merged = proto.Clone(file.Proto()).(*onnx.Model)
		if _, err := m.take(file, m.merged, false); err != nil {
			return modeldir.About(m.Files.First, err)
		}
	}
	if m.Placeholder, err = m.take(file, file.Proto(), true); err == nil {
		m.decoder, err = patch.ViewRows(ctx, file, file.Proto())
	}
	if err != nil {
		return modeldir.About(m.Files.Decoder, err)
	}
	if err := m.sizeStates(ctx); err != nil {
		return modeldir.About(m.Files.First, err)
	}
	return nil
}

// take makes a decoder the one with a past or that without, and takes what an engine reads otherwise out of it: a
// placeholder, which it is, and integers.
func (m *Model) take(file *model.Model, p *onnx.Model, past bool) (placeholder *int64, err error) {
	if err = takeBranch(p, past); err == nil {
		placeholder, err = takePlaceholder(file, p)
	}
	if err == nil {
		err = takeIntegers(file, p)
	}
	return placeholder, err
}

// LogitsOf is the output that gives a number for each token of a vocabulary at each position: the only one that is as
// wide, or, where that tells none, the one that exporters call logits; "" where there is none.
func LogitsOf(g *graph.Graph, shapes *graph.Shapes, vocab int) string {
	var wide, named []string
	for _, v := range g.Outputs {
		f := shapes.Of(v)
		if f.Rank == 3 && f.Dims[2].Is(int64(vocab)) {
			wide = append(wide, v.Name)
		}
		if v.Name == "logits" && (f.Rank == 3 || f.Rank < 0) {
			named = append(named, v.Name)
		}
	}
	if len(wide) == 1 {
		return wide[0]
	}
	return strings.Join(named, "")
}

// Close closes the files. A Generation that was made of the model closes it.
func (m *Model) Close() {
	for _, file := range m.models {
		_ = file.Close() // it was only read
	}
	m.models = nil
}

// open reads a file, which Close closes.
func (m *Model) open(path string) (*model.Model, error) {
	file, err := openExported(path)
	if err == nil {
		m.models = append(m.models, file)
	}
	return file, err
}

// openExported maps a file in which graft may place operators.
func openExported(path string) (*model.Model, error) {
	file, err := model.Open(path)
	if err != nil {
		return nil, err
	}
	if why := patch.Brought(file.Proto()); why != "" {
		_ = file.Close() // that the model is refused says more
		return nil, &diagnostic.Error{Path: path, Found: why, Fix: "use the model as it was exported"}
	}
	keepDefaults(file.Proto())
	if err := takeIntegers(file, file.Proto()); err != nil {
		_ = file.Close() // that error says more
		return nil, err
	}
	return file, nil
}

// keepDefaults makes inputs that have a default the constants that they are here, where nobody gives others: old
// exporters list every weight among the inputs.
func keepDefaults(p *onnx.Model) {
	g, defaults := p.GetGraph(), map[string]bool{}
	for _, x := range g.GetInitializer() {
		defaults[x.GetName()] = true
	}
	all := len(g.GetInput())
	if g != nil {
		g.Input = slices.DeleteFunc(g.Input, func(in *onnx.ValueInfo) bool { return defaults[in.GetName()] })
	}
	if len(g.GetInput()) < all && p.GetIrVersion() < 4 { // before, an initializer had to be an input
		p.IrVersion = proto.Int64(4)
	}
}

// withoutPast is the decoder without a past, viewed once.
func (m *Model) withoutPast(ctx context.Context) (*patch.Analysis, error) {
	if m.without != nil {
		return m.without, nil
	}
	file, p := (*model.Model)(nil), m.merged
	if p != nil {
		file = m.decoder.Model
	} else {
		var err error
		if file, err = m.open(m.Files.First); err != nil {
			return nil, err
		}
		p = file.Proto()
		if _, err := m.take(file, p, false); err != nil {
			return nil, err
		}
	}
	x, err := patch.View(ctx, file, p)
	m.without = x
	return x, err
}

// fills is what makes keys and values of an encoder's output: its file, and its graph.
func (m *Model) fills(ctx context.Context) (*model.Model, *onnx.Model, error) {
	if m.cross != nil {
		return m.decoder.Model, m.cross, nil
	}
	x, err := m.withoutPast(ctx)
	if err != nil {
		return nil, nil, err
	}
	return x.Model, x.Graph.Model(), nil
}

// source is the output that an input of the decoder comes from.
func (m *Model) source(ctx context.Context, past string) (string, error) {
	if m.sources == nil {
		x, err := m.withoutPast(ctx)
		if err != nil {
			return "", err
		}
		if err := x.Within(ctx, func() error {
			return m.decoder.Within(ctx, func() error {
				m.sources = roles.Sources(viewOf(m.decoder, m.Config.Vocab), viewOf(x, m.Config.Vocab))
				return nil
			})
		}); err != nil {
			return "", err
		}
	}
	from := m.sources[past]
	if from == "" && m.without != nil { // the decoder may have lost that input by now
		from = roles.Namesake(past, m.without.Graph, m.sources)
	}
	if from != "" {
		return from, nil
	}
	return "", fmt.Errorf("no output is what the decoder takes as %s: its layers are not those of the decoder with a "+
		"past, and no name says it", past)
}

// viewOf is an analysis as roles look at it.
func viewOf(x *patch.Analysis, vocab int) roles.View {
	return roles.View{Graph: x.Graph, Shapes: x.Shapes, Report: x.Report, Logits: LogitsOf(x.Graph, x.Shapes, vocab)}
}

// Layers are the decoder's layers of attention by kind; it is an error when there are
// none.
func (m *Model) Layers() ([]plan.Layers, error) {
	list := plan.LayersOf(m.decoder.Report.Blocks)
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: found no attention that graft recognises; graft inspect says why", m.Files.Decoder)
	}
	return list, nil
}

// Expected bounds the shapes that a generation is expected to meet.
type Expected struct {
	Beams        [2]int64 // of a request, from least to greatest
	Batch        int64    // the maximum number of requests at once
	NewTokens    int64    // that a request generates
	MaxPositions int64    // of the decoder, where the model allows more
	MaxInput     int64    // of the encoder, where the model allows more
}

// leastKeys is the shortest input that is worth a thought of its own, decoderStart the
// maximum number of tokens that the decoder of an encoder-decoder begins with.
const (
	leastKeys    = 16
	decoderStart = 4
)

// Range is the shapes that layers meet.
func (m *Model) Range(l plan.Layers, x Expected) plan.Range {
	positions := min(m.Config.Positions, x.MaxPositions)
	r := plan.Range{Beams: x.Beams, Batch: [2]int64{1, x.Batch}, Steps: min(x.NewTokens, positions)}
	if l.Type == "cross" {
		longest := min(m.Config.EncoderPositions, x.MaxInput)
		r.Keys = [2]int64{min(leastKeys, longest), longest}
		if len(m.Config.FeatureShape()) > 2 {
			r.Keys[0] = longest // features and images have one size
		}
		return r
	}
	r.Own = [2]int64{0, r.Steps}
	longest := max(1, positions-r.Steps)
	r.Keys = [2]int64{min(leastKeys, longest), longest}
	if m.Files.Encoder != "" { // the input is the encoder's, and the decoder begins with a few tokens
		r.Keys = [2]int64{1, min(decoderStart, longest)}
	}
	return r
}
