package hook

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// TestExternalFolder: weights that the patched model leaves in files of the folder.
func TestExternalFolder(t *testing.T) {
	dir := t.TempDir()
	// The offset is odd on purpose: weights inside an .onnx file lie anywhere.
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "w.bin"), append([]byte{9}, orttest.Floats(10, 20)...), 0o644))
	skeleton := orttest.Marshal(t, orttest.Sum(orttest.External("w", "w.bin", 1, 2)))
	relu := orttest.Marshal(t, orttest.Unary("Relu"))
	patch := func(p session.Patch) Hook {
		p.Model = skeleton
		return Hook{Strict: true, Patcher: func(session.Request) (*session.Patch, error) { return &p, nil }}
	}
	t.Run("of the patch", func(t *testing.T) {
		install(t, patch(session.Patch{ExternalFolder: dir}))
		orttest.Expect(t, "y", orttest.Run(t, orttest.Session(t, relu, session.Options{}), 1, 2), 11, 22)
	})
	t.Run("of the program", func(t *testing.T) {
		var told string
		install(t, Hook{Strict: true, Patcher: func(r session.Request) (*session.Patch, error) {
			told, _ = r.Config(session.ConfigExternalFolder)
			return &session.Patch{Model: skeleton}, nil
		}})
		o := session.Options{Config: map[string]string{session.ConfigExternalFolder: dir}}
		orttest.Expect(t, "y", orttest.Run(t, orttest.Session(t, relu, o), 1, 2), 11, 22)
		must.Equal(t, told, dir)
	})
	t.Run("of both", func(t *testing.T) {
		// The patch knows better: it resolved the links.
		install(t, patch(session.Patch{ExternalFolder: dir}))
		o := session.Options{Config: map[string]string{session.ConfigExternalFolder: t.TempDir()}}
		orttest.Expect(t, "y", orttest.Run(t, orttest.Session(t, relu, o), 1, 2), 11, 22)
	})
}

// TestConfigOfPatch: entries of the patch reach the session, over the program's own, without a
// word where they are equal.
func TestConfigOfPatch(t *testing.T) {
	var log bytes.Buffer
	install(t, Hook{Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Patcher: func(r session.Request) (*session.Patch, error) {
			return &session.Patch{Model: r.Model, Config: map[string]string{"session.disable_prepacking": "1", "bad": "x\x00y"}},
				nil
		}})
	s := orttest.Session(t, orttest.Marshal(t, orttest.Unary("Relu")), session.Options{})
	orttest.Expect(t, "y", orttest.Run(t, s, -1), 0)
	if !bytes.Contains(log.Bytes(), []byte("has a zero byte at 1")) {
		t.Errorf("an entry that C cannot hold: logged %s", log.Bytes())
	}
}
