package encoder

import (
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/internal/must"
)

// TestReadOnce: opening a folder reads its model once and infers its shapes once, and once more those of the graph
// without padding, which has other shapes.
func TestReadOnce(t *testing.T) {
	for _, c := range []struct {
		name    string
		plugins bool
		graphs  int64
		open    func(Options) (interface{ Close() }, error)
	}{
		{"embedder, unpatched", false, 1, func(o Options) (interface{ Close() }, error) {
			return OpenEmbedder(t.Context(), filepath.Join(encoders, "embedder"), o)
		}},
		{"embedder", true, 2, func(o Options) (interface{ Close() }, error) {
			return OpenEmbedder(t.Context(), filepath.Join(encoders, "embedder"), o)
		}},
		{"reranker", true, 2, func(o Options) (interface{ Close() }, error) {
			return OpenReranker(t.Context(), filepath.Join(encoders, "reranker"), o)
		}},
	} {
		o := options(t, c.plugins)
		files, graphs := model.Opened(), graph.Inferred()
		e := must.Value(c.open(o))(t)
		e.Close()
		if files, graphs = model.Opened()-files, graph.Inferred()-graphs; files != 1 || graphs != c.graphs {
			t.Errorf("%s: %d files read, shapes inferred %d times, want 1 and %d", c.name, files, graphs, c.graphs)
		}
	}
}
