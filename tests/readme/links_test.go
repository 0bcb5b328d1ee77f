package readme

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	dropped = regexp.MustCompile("[^a-z0-9 _-]")
)

// anchor is the name that a heading gets on the common hosts.
func anchor(text string) string {
	return strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
}

// TestLinks follows every link of every Markdown file to a file, and to a heading where it names one.
func TestLinks(t *testing.T) {
	var list []string
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md", "*/*/*/*.md"} {
		found := must.Value(filepath.Glob(filepath.Join(root(t), pattern)))(t)
		list = append(list, found...)
	}
	followed := 0
	for _, path := range list {
		name := must.Value(filepath.Rel(root(t), path))(t)
		if strings.HasPrefix(name, "build/") {
			continue
		}
		data := must.Value(os.ReadFile(path))(t)
		for _, m := range link.FindAllStringSubmatch(string(data), -1) {
			u, err := url.Parse(m[1])
			if err != nil {
				t.Errorf("%s: link %s: %v", name, m[1], err)
				continue
			}
			if u.Scheme != "" {
				continue
			}
			followed++
			target := path
			if u.Path != "" {
				target = filepath.Join(filepath.Dir(path), u.Path)
			}
			text, err := os.ReadFile(target)
			if info, e := os.Stat(target); e == nil && info.IsDir() {
				continue
			}
			if err != nil {
				t.Errorf("%s: link %s leads nowhere: %v", name, m[1], err)
				continue
			}
			if u.Fragment != "" && !hasHeading(string(text), u.Fragment) {
				t.Errorf("%s: link %s: no such heading", name, m[1])
			}
		}
	}
	if followed == 0 {
		t.Error("no document has a link")
	}
}

func hasHeading(text, fragment string) bool {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		if anchor(m[1]) == fragment {
			return true
		}
	}
	return false
}

// named are the code spans of a document that say where in the repository something is.
var named = regexp.MustCompile("`((?:abi|bench|cmd|docs|host|kernels-cuda|models|plugins|tests)/[A-Za-z0-9_./*-]+)`")

// TestNamedFilesExist looks for the files and folders that documents name without a link.
func TestNamedFilesExist(t *testing.T) {
	found := 0
	for _, document := range append(documents(t), "RATIONALE.md", "abi/README.md", "bench/README.md", "models/README.md",
		"tests/README.md") {
		for _, m := range named.FindAllStringSubmatch(text(t, document), -1) {
			found++
			if list, err := filepath.Glob(filepath.Join(root(t), m[1])); err != nil || len(list) == 0 {
				t.Errorf("%s names %s, which does not exist", document, m[1])
			}
		}
	}
	if found < 50 {
		t.Errorf("found %d names of files, there are more", found)
	}
}
