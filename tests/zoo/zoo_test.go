package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestMain is the program where the test starts it as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-one" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestWalk(t *testing.T) {
	folder := t.TempDir()
	put := func(exporter, name, to string) {
		t.Helper()
		f := must.Value(models.Lookup(exporter, name))(t)
		must.Succeed(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, to)), 0o755))
		must.Succeed(t, f.Write(filepath.Join(folder, to), 1))
	}
	put("optimum", "bert", "a/model.onnx")
	put("optimum", "bert", "same.onnx")
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "text.onnx"), []byte("no model"), 0o644))
	t.Chdir("../..")
	rows := must.Value(walk(t.Context(), []string{folder}, "build/peers/new/bin/python", time.Minute))(t)
	if len(rows) != 2 {
		t.Fatalf("%d rows of three files, two of them equal", len(rows))
	}
	if r := rows[0]; r.Path != "a/model.onnx" || r.Verdict != right || r.Forced < 2 || len(r.Runs) != 3 ||
		r.Shapes != most || len(r.Runs[0].Shapes) != most || len(r.Runs[1].Shapes) != enough {
		t.Errorf("the row of a model is %+v", r)
	}
	must.Equal(t, rows[1].Verdict, refused)
	if !good(rows) {
		t.Error("nothing is wrong, the verdict is that something is")
	}
	var b bytes.Buffer
	must.Succeed(t, table(&b, rows))
	if !strings.HasSuffix(b.String(), "\n2 files, 1 right, 0 different, 0 broken, 0 untried, 1 refused.\n") {
		t.Errorf("the table ends in %q", b.String())
	}
}

// TestTimeLimit holds that a file which takes too long is a row.
func TestTimeLimit(t *testing.T) {
	self := must.Value(os.Executable())(t)
	r := child(t.Context(), self, "none.onnx", "", 0)
	if r.Verdict != broken || !strings.Contains(r.Problem, "longer than 0s") || good([]row{r}) {
		t.Errorf("the row is %+v", r)
	}
}

// TestWorse holds that the worst verdict stays.
func TestWorse(t *testing.T) {
	v := &visit{row: row{Verdict: right}}
	for _, step := range []struct{ say, want string }{{untried, untried}, {different, different}, {broken, broken},
		{different, broken}} {
		if v.worse(step.say, step.say); v.row.Verdict != step.want || v.row.Problem != step.want {
			t.Errorf("after %s the verdict is %s", step.say, v.row.Verdict)
		}
	}
}
