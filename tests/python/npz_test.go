package python

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/encode/encoder"
	"github.com/opgraft/graft/host/encode/folder"
	"github.com/opgraft/graft/internal/must"
)

// TestNPZ: NumPy reads what graft embed -o npz writes: dense vectors, the parts of a sparse matrix and vectors of
// tokens, each with its own width; a line without vectors is a row of NaN, an empty row or no tokens.
func TestNPZ(t *testing.T) {
	path := filepath.Join(t.TempDir(), "all.npz")
	file := must.Value(os.Create(path))(t)
	n := must.Value(encoder.NewNPZ(file, encoder.Gives{Dense: true, Sparse: true, Tokens: true}, 0))(t)
	must.Succeed(t, n.Write(encoder.Embedding{}))
	must.Succeed(t, n.Write(encoder.Embedding{Dense: []float32{1, 2},
		Tokens: folder.Rows{Values: []float32{1, 2, 3, 4, 5, 6}, Width: 3},
		Sparse: encoder.Sparse{Indices: []int32{0, 6}, Weights: []float32{0.5, 0.25}, Width: 7}}))
	must.Succeed(t, n.Write(encoder.Embedding{}))
	must.Succeed(t, n.Write(encoder.Embedding{Dense: []float32{3, 4},
		Tokens: folder.Rows{Values: []float32{7, 8, 9}, Width: 3},
		Sparse: encoder.Sparse{Indices: []int32{2}, Weights: []float32{2}, Width: 7}}))
	must.Succeed(t, n.Close())
	must.Succeed(t, file.Close())
	out, err := exec.CommandContext(t.Context(), newest(t), "-c", `
import sys, numpy as np
z = np.load(sys.argv[1])
n = np.nan
np.testing.assert_array_equal(z["embeddings"], np.array([[n, n], [1, 2], [n, n], [3, 4]], np.float32))
assert z["format"].item() == b"csr" and z["shape"].tolist() == [4, 7]
assert z["indptr"].tolist() == [0, 0, 2, 2, 3] and z["indices"].tolist() == [0, 6, 2] and z["data"].tolist() == [0.5, 0.25, 2]
assert z["offsets"].tolist() == [0, 0, 2, 2, 3] and z["token_embeddings"].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
assert [z[k].dtype.str for k in ("embeddings", "data", "indices", "indptr", "token_embeddings", "offsets")] == \
    ["<f4", "<f4", "<i4", "<i8", "<f4", "<i8"]
`, path).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
