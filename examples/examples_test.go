// Package examples_test runs the programs beside it, as go run does in the root of the module.
package examples_test

import (
	"github.com/opgraft/graft/internal/must"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestExamples(t *testing.T) {
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "./...").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, c := range map[string]struct {
		args []string
		want []string // parts of what it prints, errors included
	}{
		"enable":   {want: []string{"INFO graft: model planned"}},
		"patcher":  {want: []string{"1 of 2 sessions patched\n"}},
		"generate": {[]string{"soared", "bove"}, []string{"S AO1 R D\nB OW1 V\n"}},
		"stream":   {[]string{"The"}, []string{"refore thus saith the LORD,\n"}},
		"embed":    {[]string{"a text", "another text"}, []string{"1.000 a text\n", "another text\n"}},
		"rerank": {[]string{"What is a batch?", "Short.", "A batch holds the texts that waited."},
			[]string{" Short.\n", " A batch holds the texts that waited.\n"}},
	} {
		source := must.Value(os.ReadFile(filepath.Join(name, "main.go")))(t)
		if n := strings.Count(string(source), "\n"); n >= 40 {
			t.Errorf("%s has %d lines, needed fewer than 40", name, n)
		}
		program := exec.Command(filepath.Join(bin, name), c.args...)
		program.Dir = ".."
		out, err := program.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		for _, want := range c.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s printed\n%s\nwant %q in it", name, out, want)
			}
		}
	}
}
