package matching

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/internal/must"
)

// TestBadGraphs: each graph that is not as the manifest says is one error with its path.
func TestBadGraphs(t *testing.T) {
	text := plugintest.Head + plugintest.Variants +
		"operators:\n  - name: A\n    cost: {bandwidth: 1, flops: 1, overhead_us: 0}\n" +
		"    replaces: {pattern: {inputs: [x], outputs: [y], nodes: [{op: Neg, in: [x], out: [n]}, {op: Relu, in: [n], " +
		"out: [y]}]}}\n" +
		"    where: {x_rank: {max: 2}}\n    tests: {match: [FILE], no_match: [OTHER]}\n"
	const good = "g (float[2, 2] x) => (float[2, 2] y) { n = Neg (x)  y = Relu (n) }"
	const other = "g (float[2, 2] x) => (float[2, 2] y) { n = Abs (x)  y = Relu (n) }"
	for _, c := range []struct {
		name, file, content, want string
		make                      func(path string) error
	}{
		{name: "good", content: good},
		{name: "absent", want: "cannot read: no such file or directory, needed a graph that the manifest lists under " +
			"tests; add the file or take it off the list",
			make: func(string) error { return nil }},
		{name: "folder", want: "found a folder, needed a plain file",
			make: func(path string) error { return os.Mkdir(path, 0o755) }},
		{name: "pipe", want: "found a named pipe, needed a plain file",
			make: func(path string) error { return syscall.Mkfifo(path, 0o644) }},
		{name: "link that leads out", want: "cannot read: path escapes from parent",
			make: func(path string) error { return os.Symlink("/etc/passwd", path) }},
		{name: "large", content: strings.Repeat(" ", maxBytes+1),
			want: "found more than 1048576 bytes, needed a small graph"},
		{name: "syntax", content: "g (float[2] x)", want: ":1: found the end of the text, needed = of =>"},
		{name: "no graph", content: "g (float[2] x) => (float[2] y) { y = Neg (z) }",
			want: `reads "z", which nothing before it makes; correct the graph`},
		{name: "protobuf", file: "a.onnx", content: "not a model", want: "correct the graph"},
		{name: "other nodes", content: other,
			want: "the pattern of A is not in it (1 of 2 nodes were found: Neg (line 12) with x, n is not there, or has " +
				"other attributes or inputs), needed a match"},
		{name: "constraint", content: "g (float[2, 2, 2] x) => (float[2, 2, 2] y) { n = Neg (x)  y = Relu (n) }",
			want: "(x_rank is 3, needs at most 2)"},
		{name: "none like the last", content: "g (float[2] x) => (float[2] y) { y = Neg (x) }",
			want: "(no node is like the last of any form of the pattern)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			if c.file == "" {
				c.file = "a.onnxtxt"
			}
			m, err := manifest.Parse("p", []byte(strings.NewReplacer("FILE", c.file, "OTHER", "other.onnxtxt").Replace(text)))
			must.Succeed(t, err)
			path := filepath.Join(folder, c.file)
			if c.make == nil {
				c.make = func(path string) error { return os.WriteFile(path, []byte(c.content), 0o644) }
			}
			must.Succeed(t, errors.Join(c.make(path),
				os.WriteFile(filepath.Join(folder, "other.onnxtxt"), []byte(other), 0o644)))
			list, err := Test(t.Context(), folder, m)
			if err != nil || len(list) != 2 || list[1].Err != nil || list[1].Reason == "" {
				t.Fatalf("%+v, %v", list, err)
			}
			got := list[0]
			switch {
			case c.want == "" && (got.Err != nil || got.Matches != 1):
				t.Errorf("%+v", got)
			case c.want != "" && (got.Err == nil || !strings.Contains(got.Problem, c.want) ||
				!strings.HasPrefix(got.Problem, path) || !errors.Is(got.Err, refusal.ErrVerification)):
				t.Errorf("problem %q, want %q", got.Problem, c.want)
			}
		})
	}
	m, err := manifest.Parse("p", []byte(strings.NewReplacer("FILE", "a.onnxtxt", "OTHER", "a.onnxtxt").Replace(text)))
	must.Succeed(t, err)
	folder := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "a.onnxtxt"), []byte(good), 0o644))
	list, err := Test(t.Context(), folder, m)
	if want := "the pattern of A is in it, up to Relu -> y, needed no match, as it is listed under tests.no_match; " +
		"correct the graph or the pattern"; err != nil || !strings.HasSuffix(list[1].Problem, want) {
		t.Errorf("%+v, %v", list, err)
	}
}
