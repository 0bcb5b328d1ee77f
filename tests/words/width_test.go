package words

import (
	"github.com/opgraft/graft/internal/must"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const maxColumns = 120

// TestLinesAreNarrow: lines of Go have at most 120 columns, a tab being one. Generated files may have longer ones, and
// what cannot be broken: text between backquotes, directives, and a word or a text without a blank.
func TestLinesAreNarrow(t *testing.T) {
	list := exec.Command("git", "ls-files", "*.go")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v; the test needs a checkout", err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		source, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) { // deleted, and not committed yet
			continue
		}
		must.Succeed(t, err)
		if strings.Contains(string(source[:min(len(source), 1000)]), "Code generated") {
			continue
		}
		unbroken := unbroken(source)
		number := 0
		for line := range strings.Lines(string(source)) {
			number++
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > maxColumns && !unbroken[number] {
				t.Errorf("%s:%d: %d columns, needed at most %d", name, number, n, maxColumns)
			}
		}
	}
}

// unbroken are the lines of a source with something that cannot be broken.
func unbroken(source []byte) map[int]bool {
	lines := map[int]bool{}
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			return lines
		}
		raw := kind == token.STRING && strings.HasPrefix(text, "`") || kind == token.COMMENT && strings.HasPrefix(text, "//go:")
		longest := 0
		for word := range strings.FieldsSeq(text) {
			longest = max(longest, utf8.RuneCountInString(word))
		}
		if raw || longest > maxColumns/2 {
			for n := 0; n <= strings.Count(text, "\n"); n++ {
				lines[file.Line(pos)+n] = true
			}
		}
	}
}
