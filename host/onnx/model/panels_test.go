package model

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
	"google.golang.org/protobuf/proto"
)

// panelled is a model of matrices, large ones and one that is part of the structure, and what they hold.
func panelled(t *testing.T) (*onnx.Model, map[string][]float32) {
	t.Helper()
	values := map[string][]float32{}
	var tensors []*onnx.Tensor
	for i, x := range []struct {
		name string
		dims []int64
	}{{"q", []int64{40, 32}}, {"k", []int64{40, 16}}, {"v", []int64{40, 21}}, {"turned", []int64{21, 40}},
		{"small", []int64{2, 3}}} {
		v, raw := floats(uint64(i+1), int(x.dims[0]*x.dims[1]))
		values[x.name] = v
		tensors = append(tensors, rawTensor(x.name, onnx.Tensor_FLOAT, raw, x.dims...))
	}
	return modelOf(graphOf(tensors...)), values
}

// TestPanels: every element is where the layout says, from files, bytes and the structure, alone and side by side.
func TestPanels(t *testing.T) {
	p, values := panelled(t)
	b := encode(t, p)
	for _, c := range []struct {
		name     string
		matrices []string
		turned   bool
	}{{"whole panels", []string{"q"}, false}, {"a part of a panel", []string{"v"}, false},
		{"transposed", []string{"turned"}, true},
		{"three side by side", []string{"q", "k", "v"}, false}, {"within the structure", []string{"small"}, false}} {
		t.Run(c.name, func(t *testing.T) {
			for name, m := range map[string]*Model{"bytes": mustParse(t, b, ""),
				"file": mustOpen(t, writeFile(t, filepath.Join(t.TempDir(), "m.onnx"), b))} {
				var list []Matrix
				for _, x := range c.matrices {
					list = append(list, Matrix{allTensors(m.Proto())[x], c.turned})
				}
				laid := must.Value(m.Panels("laid", list...))(t)
				data := must.Value(m.Data(laid))(t)
				if want := 4 * laid.Dims[0] * laid.Dims[1] * laid.Dims[2]; int64(len(data)) != want {
					t.Fatalf("%s: %d bytes, want %d", name, len(data), want)
				}
				first := int64(0)
				for i, x := range list {
					depth, columns := x.Size()
					for panel := range (columns + 15) / 16 {
						for k := range depth {
							for j := range int64(16) {
								want, column := float32(0), 16*panel+j
								switch {
								case column >= columns:
								case c.turned:
									want = values[c.matrices[i]][column*depth+k]
								default:
									want = values[c.matrices[i]][k*columns+column]
								}
								got := math.Float32frombits(binary.LittleEndian.Uint32(data[4*(((first+panel)*depth+k)*16+j):]))
								if math.Float32bits(got) != math.Float32bits(want) {
									t.Fatalf("%s: row %d, column %d of %s is %g, want %g", name, k, column, c.matrices[i], got, want)
								}
							}
						}
					}
					first += (columns + 15) / 16
				}
			}
		})
	}
}

// TestPanelsOfSessions: sessions of one content of a file share what is made of it, whoever asked for it first, and
// it is given back with the last of them.
func TestPanelsOfSessions(t *testing.T) {
	p, _ := panelled(t)
	path := writeFile(t, filepath.Join(t.TempDir(), "m.onnx"), encode(t, p))
	for identityOf(stat(t, path)).age() <= coarse {
		time.Sleep(100 * time.Millisecond)
	}
	before := len(holding.files)
	serialize := func(names ...string) *Serialized {
		m := mustOpen(t, path)
		p := m.Proto()
		for _, name := range names {
			laid := must.Value(m.Panels("laid "+name, Matrix{Tensor: allTensors(p)[name]}))(t)
			p.Graph.Initializer = append(p.Graph.Initializer, laid)
		}
		s := must.Value(m.Serialize(p, SerializeOptions{Held: true}))(t)
		return s
	}
	at := func(s *Serialized, name string) []byte {
		for _, w := range s.Weights {
			if w.Name == name {
				return w.Data
			}
		}
		t.Fatalf("no weight %q", name)
		return nil
	}
	a, b := serialize("q", "v"), serialize("v")
	if &at(a, "laid v")[0] != &at(b, "laid v")[0] {
		t.Error("two sessions have panels of their own")
	}
	if bytes.Equal(at(a, "laid q"), at(a, "q")) {
		t.Error("panels are as the matrix lies")
	}
	held := bytes.Clone(at(b, "laid v"))
	a.Release()
	if !bytes.Equal(held, at(b, "laid v")) {
		t.Error("panels went with the first session")
	}
	b.Release()
	must.Equal(t, len(holding.files), before)
}

// TestPanelsAreWritten into a file of the model's own, and equal panels once.
func TestPanelsAreWritten(t *testing.T) {
	p, _ := panelled(t)
	for _, limit := range []int64{0, 2000} { // into the file, beside it
		m := mustOpen(t, writeFile(t, filepath.Join(t.TempDir(), "m.onnx"), encode(t, p)))
		q := proto.Clone(m.Proto()).(*onnx.Model)
		var want []byte
		for _, name := range []string{"laid 1", "laid 2"} {
			laid := must.Value(m.Panels(name, Matrix{Tensor: allTensors(q)["v"]}))(t)
			want = mustData(t, m, laid)
			q.Graph.Initializer = append(q.Graph.Initializer, laid)
		}
		to := filepath.Join(t.TempDir(), "out.onnx")
		must.Succeed(t, m.Write(context.Background(), q, to, WriteOptions{InlineLimit: limit}))
		back := mustOpen(t, to)
		for _, name := range []string{"laid 1", "laid 2"} {
			if !bytes.Equal(mustData(t, back, allTensors(back.Proto())[name]), want) {
				t.Errorf("limit %d: %s is not what it was", limit, name)
			}
		}
		if ext := externals(t, content(t, to)); limit > 0 && ext["laid 1"]["offset"] != ext["laid 2"]["offset"] {
			t.Errorf("equal panels lie at %v and %v", ext["laid 1"], ext["laid 2"])
		}
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	b := must.Value(os.ReadFile(path))(t)
	return b
}

// TestPanelsRefuse what is no matrix of float32, or does not lie side by side.
func TestPanelsRefuse(t *testing.T) {
	p, _ := panelled(t)
	p.Graph.Initializer = append(p.Graph.Initializer, rawTensor("list", onnx.Tensor_FLOAT, make([]byte, 4000), 1000),
		rawTensor("ints", onnx.Tensor_INT32, make([]byte, 4000), 40, 25),
		rawTensor("none", onnx.Tensor_FLOAT, nil, 40, 0))
	m := mustParse(t, encode(t, p), "")
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"list"},
			`model bytes: tensor "list" cannot be laid out in panels: found [1000] of float32, needed a matrix of float32`},
		{[]string{"ints"},
			`model bytes: tensor "ints" cannot be laid out in panels: found [40 25] of int32, needed a matrix of float32`},
		{[]string{"none"},
			`model bytes: tensor "none" cannot be laid out in panels: found 40 rows of 0 columns, needed as many rows as the matrices beside it, and whole panels`},
		{[]string{"v", "q"},
			`model bytes: tensor "v" cannot be laid out in panels: found 40 rows of 21 columns, needed as many rows as the matrices beside it, and whole panels`},
		{[]string{"q", "small"},
			`model bytes: tensor "small" cannot be laid out in panels: found 2 rows of 3 columns, needed as many rows as the matrices beside it, and whole panels`},
	} {
		var list []Matrix
		for _, name := range c.names {
			list = append(list, Matrix{Tensor: allTensors(m.Proto())[name]})
		}
		_, err := m.Panels("laid", list...)
		wantError(t, err, c.want)
	}
}
