package ort

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/model/onnx"
)

// TestExternalFolder: weights that the patched model leaves in files of the folder.
func TestExternalFolder(t *testing.T) {
	dir := t.TempDir()
	// The offset is odd on purpose: weights inside an .onnx file lie anywhere.
	if err := os.WriteFile(filepath.Join(dir, "w.bin"), append([]byte{9}, rawFloats(10, 20)...), 0o644); err != nil {
		t.Fatal(err)
	}
	skeleton := marshal(t, sum(external("w", "w.bin", 1, 2)))
	relu := marshal(t, unary("Relu"))
	patch := func(p Patch) Hook {
		p.Model = skeleton
		return Hook{Strict: true, Patcher: func(Request) (*Patch, error) { return &p, nil }}
	}
	t.Run("of the patch", func(t *testing.T) {
		install(t, patch(Patch{ExternalFolder: dir}))
		expect(t, "y", run(t, session(t, relu, SessionOptions{}), 1, 2), 11, 22)
	})
	t.Run("of the program", func(t *testing.T) {
		var told string
		install(t, Hook{Strict: true, Patcher: func(r Request) (*Patch, error) {
			told, _ = r.Config(ConfigExternalFolder)
			return &Patch{Model: skeleton}, nil
		}})
		o := SessionOptions{Config: map[string]string{ConfigExternalFolder: dir}}
		expect(t, "y", run(t, session(t, relu, o), 1, 2), 11, 22)
		if told != dir {
			t.Errorf("the patcher was told of the folder %q, want %q", told, dir)
		}
	})
	t.Run("of both", func(t *testing.T) {
		// The patch knows better: it resolved the links.
		install(t, patch(Patch{ExternalFolder: dir}))
		o := SessionOptions{Config: map[string]string{ConfigExternalFolder: t.TempDir()}}
		expect(t, "y", run(t, session(t, relu, o), 1, 2), 11, 22)
	})
}

// TestExternalFilesInMemory: weights that the patched model leaves in the caller's bytes. The
// bytes are overwritten after creation: nothing may refer to them.
func TestExternalFilesInMemory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "disk.bin"), rawFloats(100, 200), 0o644); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name  string
		model *onnx.Model
		files []string
		want  []float32
	}{
		{"one", sum(external("w", "bytes", 1, 2)), []string{"bytes"}, []float32{11, 22}},
		{"two files", sum(external("v", "a", 1, 2), external("w", "b", 1, 2)), []string{"a", "b"}, []float32{21, 42}},
		{"used in a branch", branches(external("w", "bytes", 1, 2), false), []string{"bytes"}, []float32{11, 22}},
	}
	t.Run("beside the program's own", func(t *testing.T) {
		// The program has v in memory, the patch has w.
		r := newRaw(t)
		options := r.options()
		own := rawFloats(100, 200)
		r.bytes(own)
		if err := library.addExternalFiles(options, map[string][]byte{"own": own}); err != nil {
			t.Fatal(err)
		}
		install(t, Hook{Strict: true, Patcher: func(r Request) (*Patch, error) {
			return &Patch{Model: marshal(t, sum(external("v", "own", 0, 2), external("w", "bytes", 0, 2))),
				ExternalFiles: map[string][]byte{"bytes": rawFloats(10, 20)}}, nil
		}})
		at, size := r.bytes(marshal(t, sum(external("v", "own", 0, 2))))
		s, err := r.session(slotCreateSessionFromArray, at, size, options)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "y", run(t, s, 1, 2), 111, 222)
	})
	t.Run("memory and disk", func(t *testing.T) {
		// Once there are files in memory, ONNX Runtime looks for no others.
		o := SessionOptions{Patcher: func(r Request) (*Patch, error) {
			return &Patch{Model: marshal(t, sum(external("v", "bytes", 0, 2), external("w", "disk.bin", 0, 2))),
				ExternalFiles: map[string][]byte{"bytes": rawFloats(10, 20)}, ExternalFolder: dir}, nil
		}}
		if _, err := library.NewSessionFromBytes(marshal(t, unary("Relu")), o); err == nil || !strings.Contains(err.Error(), "disk.bin") {
			t.Errorf("got %v, want a refusal that names disk.bin", err)
		}
	})
	t.Run("initializer of a branch", func(t *testing.T) {
		// ONNX Runtime does not look there, which is why Patch.ExternalFiles says so.
		o := SessionOptions{Patcher: func(r Request) (*Patch, error) {
			return &Patch{Model: marshal(t, branches(external("w", "bytes", 0, 2), true)),
				ExternalFiles: map[string][]byte{"bytes": rawFloats(10, 20)}}, nil
		}}
		if _, err := library.NewSessionFromBytes(marshal(t, unary("Relu")), o); err == nil {
			t.Error("works now: the restriction on Patch.ExternalFiles can go")
		}
		// From a folder it does.
		if err := os.WriteFile(filepath.Join(dir, "branch.bin"), rawFloats(10, 20), 0o644); err != nil {
			t.Fatal(err)
		}
		o.Patcher = func(r Request) (*Patch, error) {
			return &Patch{Model: marshal(t, branches(external("w", "branch.bin", 0, 2), true)), ExternalFolder: dir}, nil
		}
		expect(t, "from a folder", run(t, session(t, marshal(t, unary("Relu")), o), 1, 2), 11, 22)
	})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			files := map[string][]byte{}
			for _, name := range c.files {
				files[name] = append([]byte{9}, rawFloats(10, 20)...)
			}
			o := SessionOptions{Patcher: func(r Request) (*Patch, error) {
				return &Patch{Model: marshal(t, c.model), ExternalFiles: files, ExternalFolder: dir}, nil
			}}
			s := session(t, marshal(t, unary("Relu")), o)
			for _, b := range files {
				clear(b)
			}
			expect(t, "y", run(t, s, 1, 2), c.want...)
		})
	}
}

// TestLargeFilesInMemory is the same for weights so large that a runtime would rather refer to
// them than copy them.
func TestLargeFilesInMemory(t *testing.T) {
	const n = 1 << 20
	content := bytes.Repeat(rawFloats(3), n)
	m := model(&onnx.Graph{
		Node: []*onnx.Node{node("MatMul", []string{"x", "w"}, []string{"a"}),
			node("Gather", []string{"w", "i"}, []string{"b"}), node("Add", []string{"a", "b"}, []string{"y"})},
		Input:  []*onnx.ValueInfo{value("x", tensorType(Float32, 1024))},
		Output: []*onnx.ValueInfo{value("y", tensorType(Float32, 1024))},
		Initializer: []*onnx.Tensor{external("w", "bytes", 0, n),
			{Name: proto.String("i"), DataType: proto.Int32(int32(Int64)), Int64Data: []int64{5}}},
	})
	m.Graph.Initializer[0].Dims = []int64{1024, 1024}
	m.Graph.Initializer[1].Dims = nil
	s := session(t, marshal(t, unary("Relu")), SessionOptions{Patcher: func(Request) (*Patch, error) {
		return &Patch{Model: marshal(t, m), ExternalFiles: map[string][]byte{"bytes": content}}, nil
	}})
	clear(content)
	x := make([]float32, 1024)
	x[0] = 2
	if y := run(t, s, x...); y[0] != 9 || y[1023] != 9 {
		t.Errorf("y[0] is %v and y[1023] is %v, want 2*3+3", y[0], y[1023])
	}
}

// TestConfigOfPatch: entries of the patch reach the session, over the program's own, without a
// word where they are equal.
func TestConfigOfPatch(t *testing.T) {
	var log bytes.Buffer
	install(t, Hook{Logger: slog.New(slog.NewTextHandler(&log, nil)), Patcher: func(r Request) (*Patch, error) {
		return &Patch{Model: r.Model, Config: map[string]string{"session.disable_prepacking": "1", "bad": "x\x00y"}}, nil
	}})
	s := session(t, marshal(t, unary("Relu")), SessionOptions{})
	expect(t, "y", run(t, s, -1), 0)
	if !bytes.Contains(log.Bytes(), []byte("has a zero byte at 1")) {
		t.Errorf("an entry that C cannot hold: logged %s", log.Bytes())
	}
}
