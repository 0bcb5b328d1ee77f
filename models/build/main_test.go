package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

func TestRun(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o644))
	tests := []struct {
		name           string
		arguments      []string
		code           int
		stdout, stderr string
	}{
		{"list", []string{"--list"}, 0, "gpt2-124m\n", ""},
		{"fixture", []string{"optimum/bert", filepath.Join(dir, "bert")}, 0, "bert.onnx\n", "made optimum/bert in"},
		{"help", []string{"--help"}, 0, "", "Example: go run ./models/build"},
		{"nothing", nil, 2, "", "usage: build NAME DIR"},
		{"unknown option", []string{"--sed", "1"}, 2, "", "flag provided but not defined: -sed"},
		{"unknown name", []string{"gpt3", dir}, 2, "",
			`no subject or fixture "gpt3": the subjects are bart-large, bert-base,`},
		{"unknown subject", []string{"--cached", "gpt3"}, 1, "", "build: "},
		{"two ways", []string{"--cached", "gpt2-124m", dir}, 2, "", "usage: build NAME DIR"},
		{"file in the way", []string{"optimum/bert", file}, 1, "", "build: mkdir " + file},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(test.arguments, &stdout, &stderr); code != test.code {
				t.Errorf("exit code %d, need %d", code, test.code)
			}
			if !strings.Contains(stdout.String(), test.stdout) || test.stdout == "" && stdout.Len() > 0 {
				t.Errorf("stdout is %q, need %q", &stdout, test.stdout)
			}
			if !strings.Contains(stderr.String(), test.stderr) {
				t.Errorf("stderr is %q, need %q", &stderr, test.stderr)
			}
		})
	}
}
