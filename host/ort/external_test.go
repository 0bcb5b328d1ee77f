package ort

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestExternalFolder: weights that the patched model leaves in files of the folder.
func TestExternalFolder(t *testing.T) {
	dir := t.TempDir()
	// The offset is odd on purpose: weights inside an .onnx file lie anywhere.
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "w.bin"), append([]byte{9}, rawFloats(10, 20)...), 0o644))
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
