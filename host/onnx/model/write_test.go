package model

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
	"google.golang.org/protobuf/proto"
)

// lists checks which names a folder holds.
func lists(t testing.TB, dir string, want ...string) {
	t.Helper()
	entries := must.Value(os.ReadDir(dir))(t)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	must.Equal(t, strings.Join(got, " "), strings.Join(want, " "), got)
}

// spread is a model with weights inline and external, opened from a file.
func spread(t testing.TB) (*Model, string) {
	dir := t.TempDir()
	_, w := floats(20, 400000)
	writeFile(t, filepath.Join(dir, "w.bin"), append([]byte("12345"), w...))
	p := nested(t)
	p.Graph.Initializer = append(p.Graph.Initializer,
		externalTensor("external", "w.bin", 5, 1600000, 400000), externalTensor("again", "w.bin", 5, 1600000, 1000, 400))
	return mustOpen(t, writeFile(t, filepath.Join(dir, "m.onnx"), encode(t, p))), dir
}

func TestWriteOneFile(t *testing.T) {
	m, _ := spread(t)
	out := t.TempDir()
	path := filepath.Join(out, "out.onnx")
	var last, total int64
	must.Succeed(t, m.Write(t.Context(), m.Proto(), path, WriteOptions{Progress: func(done, all int64) {
		if done <= last || done > all {
			t.Errorf("progress %d of %d after %d", done, all, last)
		}
		last, total = done, all
	}}))
	lists(t, out, "out.onnx")
	info, _ := os.Stat(path)
	if info.Size() != total || last != total {
		t.Errorf("%d bytes, progress ended at %d of %d", info.Size(), last, total)
	}
	if reference, _ := os.Stat(writeFile(t, filepath.Join(t.TempDir(), "x"), nil)); info.Mode() != reference.Mode() {
		t.Errorf("mode %v", info.Mode())
	}
	sameContent(t, m, mustOpen(t, path))
	// It stands alone: nothing in it is external, and any protobuf reader takes it.
	b, _ := os.ReadFile(path)
	must.Equal(t, len(externals(t, b)), 0)
}

func TestWriteTwoFiles(t *testing.T) {
	m, _ := spread(t)
	out := t.TempDir()
	path := filepath.Join(out, "out.onnx")
	_, folded := floats(30, 300000)
	p := proto.Clone(m.Proto()).(*onnx.Model)
	p.Graph.Initializer = append(p.Graph.Initializer, rawTensor("folded", onnx.Tensor_FLOAT, folded, 300000),
		rawTensor("held", onnx.Tensor_FLOAT, folded[:8000], 2000))
	var last, total int64
	must.Succeed(t, m.Write(t.Context(), p, path,
		WriteOptions{InlineLimit: 1 << 20, Progress: func(done, all int64) { last, total = done, all }}))
	lists(t, out, "out.onnx", "out.onnx.data")
	b, _ := os.ReadFile(path)
	data, _ := os.ReadFile(path + ".data")
	if last != total || total != int64(len(b)+len(data)) {
		t.Errorf("progress ended at %d of %d; %d bytes written", last, total, len(b)+len(data))
	}
	ext := externals(t, b)
	must.Equal(t, ext["external"]["offset"], ext["again"]["offset"])
	for name, e := range ext {
		at, _ := strconv.Atoi(e["offset"])
		step := 64
		if n, _ := strconv.Atoi(e["length"]); n >= 1<<20 {
			step = 4096
		}
		if at%step != 0 || e["location"] != "out.onnx.data" {
			t.Errorf("%q is at %v", name, e)
		}
	}
	back := mustOpen(t, path)
	tensors := allTensors(back.Proto())
	for name, want := range map[string][]byte{"folded": folded, "held": folded[:8000], "external": nil, "weight": nil,
		"constant": nil, "inner weight": nil, "sparse": nil, "function constant": nil} {
		if want == nil {
			want = mustData(t, m, allTensors(m.Proto())[name])
		}
		if !bytes.Equal(mustData(t, back, tensors[name]), want) {
			t.Errorf("bytes of %q changed", name)
		}
	}
	// A second writing replaces both and leaves their permissions.
	must.Succeed(t, os.Chmod(path, 0o600))
	must.Succeed(t, m.Write(t.Context(), m.Proto(), path, WriteOptions{InlineLimit: 1 << 20}))
	lists(t, out, "out.onnx", "out.onnx.data")
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

// limits at the edge: exactly fitting is one file, one byte less is two.
func TestWriteSplitsAtTheLimit(t *testing.T) {
	m, _ := spread(t)
	out := t.TempDir()
	path := filepath.Join(out, "out.onnx")
	must.Succeed(t, m.Write(t.Context(), m.Proto(), path, WriteOptions{}))
	info, _ := os.Stat(path)
	for _, c := range []struct {
		limit int64
		files []string
	}{{info.Size(), []string{"a.onnx"}}, {info.Size() - 1, []string{"a.onnx", "a.onnx.data"}}} {
		dir := t.TempDir()
		must.Succeed(t, m.Write(t.Context(), m.Proto(), filepath.Join(dir, "a.onnx"),
			WriteOptions{InlineLimit: c.limit}))
		lists(t, dir, c.files...)
	}
}

func TestWriteNeverOverwritesItsSource(t *testing.T) {
	m, dir := spread(t)
	before := map[string][]byte{}
	for _, name := range []string{"m.onnx", "w.bin"} {
		before[name], _ = os.ReadFile(filepath.Join(dir, name))
	}
	elsewhere := t.TempDir()
	link(t, m.Path(), filepath.Join(elsewhere, "link.onnx"))
	must.Succeed(t, os.Link(m.Path(), filepath.Join(elsewhere, "hard.onnx")))
	must.Succeed(t, os.Link(filepath.Join(dir, "w.bin"), filepath.Join(elsewhere, "split.onnx.data")))
	real, _ := filepath.EvalSymlinks(dir)
	for _, c := range []struct{ path, names, found string }{
		{m.Path(), "", "m.onnx"},
		{filepath.Join(dir, "w.bin"), "", "w.bin"},
		{filepath.Join(elsewhere, "link.onnx"), "", "m.onnx"},
		{filepath.Join(elsewhere, "hard.onnx"), "", "m.onnx"},
		{filepath.Join(elsewhere, "split.onnx"), ".data", "w.bin"},
	} {
		err := m.Write(t.Context(), m.Proto(), c.path, WriteOptions{InlineLimit: 1})
		wantError(t, err, c.path+c.names+": refusing to overwrite a file that the model is read from: found "+filepath.Join(
			real, c.found)+", needed another file; choose another output path")
	}
	for name, want := range before {
		if got, _ := os.ReadFile(filepath.Join(dir, name)); !bytes.Equal(got, want) {
			t.Errorf("%s changed", name)
		}
	}
	lists(t, dir, "m.onnx", "w.bin")
	lists(t, elsewhere, "hard.onnx", "link.onnx", "split.onnx.data")
}

func TestWriteInterruptedLeavesNothing(t *testing.T) {
	m, _ := spread(t)
	for _, limit := range []int64{0, 1 << 20} {
		for _, at := range []int64{0, 1, 1 << 20, 1600000} {
			dir := t.TempDir()
			old := writeFile(t, filepath.Join(dir, "out.onnx"), []byte("old"))
			ctx, cancel := context.WithCancel(t.Context())
			if at == 0 {
				cancel()
			}
			err := m.Write(ctx, m.Proto(), old, WriteOptions{InlineLimit: limit, Progress: func(done, _ int64) {
				if done >= at {
					cancel()
				}
			}})
			cancel()
			if !errors.Is(err, context.Canceled) ||
				!strings.Contains(err.Error(),
					": writing was interrupted: found context canceled; nothing was left behind; run it again") {
				t.Errorf("error %v", err)
			}
			lists(t, dir, "out.onnx")
			if b, _ := os.ReadFile(old); string(b) != "old" {
				t.Error("the old file changed")
			}
		}
	}
}

func TestWriteWhereItCannot(t *testing.T) {
	m, _ := spread(t)
	dir := t.TempDir()
	gone := filepath.Join(dir, "gone", "out.onnx")
	wantError(t, m.Write(t.Context(), m.Proto(), gone, WriteOptions{}),
		gone+": cannot create a file in its folder: found no such file or directory; check the path")
	wantError(t, m.Write(t.Context(), m.Proto(), dir, WriteOptions{}),
		dir+": cannot write the model: found a folder, needed the path of a file; name a file inside it")
	wantError(t, m.Write(t.Context(), m.Proto(), "", WriteOptions{}),
		m.Path()+": no path was given to write to, needed the path of an .onnx file; name the file to write")
	// A folder where the data should go: found before anything is written.
	must.Succeed(t, os.MkdirAll(filepath.Join(dir, "out.onnx.data"), 0o755))
	path := filepath.Join(dir, "out.onnx")
	wantError(t, m.Write(t.Context(), m.Proto(), path, WriteOptions{InlineLimit: 1}),
		path+".data: cannot write the model: found a folder, needed the path of a file; name a file inside it")
	lists(t, dir, "out.onnx.data")
	if os.Getuid() != 0 {
		closed := t.TempDir()
		must.Succeed(t, os.Chmod(closed, 0o555))
		path := filepath.Join(closed, "out.onnx")
		wantError(t, m.Write(t.Context(), m.Proto(), path, WriteOptions{}),
			path+": cannot create a file in its folder: found permission denied; check the permissions of the file and its "+
				"folder")
	}
}

// When the second of two files cannot be put in place, the first goes away and
// what stood there before comes back.
func TestCommitThatFailsPutsTheOldFilesBack(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	writeFile(t, at("m"), []byte("old model"))
	writeFile(t, at("m.data"), []byte("old data"))
	job := &writeJob{ctx: t.Context()}
	for _, name := range []string{"m.data", "m"} {
		s := &splice{}
		s.bytes([]byte("new"))
		must.Succeed(t, job.stage(at(name), s.pieces))
	}
	unfinished, _ := filepath.Glob(at(".m.????????????????.tmp"))
	if len(unfinished) != 1 || os.Remove(unfinished[0]) != nil {
		t.Fatalf("the unfinished files are %q", unfinished)
	}
	err := job.commit()
	wantError(t, err, at("m")+": cannot put the file in place: found no such file or directory; check the path")
	job.cleanUp()
	lists(t, dir, "m", "m.data")
	for name, want := range map[string]string{"m": "old model", "m.data": "old data"} {
		if b, _ := os.ReadFile(at(name)); string(b) != want {
			t.Errorf("%s is %q, want %q", name, b, want)
		}
	}
}

// A run that is killed between the renames of two files leaves what the next one puts back, or away.
func TestKilledBetweenTwoFiles(t *testing.T) {
	for _, c := range []struct{ there, want string }{
		{".m.graft-aside m.data", "m=m.graft-aside m.data=m.data"},
		{".m.graft-aside .m.data.graft-aside", "m=m.graft-aside m.data=m.data.graft-aside"},
		{".m.graft-aside .m.data.graft-aside m.data", "m=m.graft-aside m.data=m.data.graft-aside"},
		{".m.graft-aside .m.data.graft-aside m m.data", "m=m m.data=m.data"},
		{".m.data.graft-aside m m.data", "m=m m.data=m.data"},
		{".m.graft-aside m", "m=m"},
		{"m", "m=m"},
		{"", ""},
	} {
		dir := t.TempDir()
		for _, name := range strings.Fields(c.there) {
			writeFile(t, filepath.Join(dir, name), []byte(strings.TrimPrefix(name, ".")))
		}
		must.Succeed(t, putBack(filepath.Join(dir, "m")))
		entries := must.Value(os.ReadDir(dir))(t)
		var got []string
		for _, e := range entries {
			b, _ := os.ReadFile(filepath.Join(dir, e.Name()))
			got = append(got, e.Name()+"="+string(b))
		}
		must.Equal(t, strings.Join(got, " "), c.want, c.there, got)
	}
}
