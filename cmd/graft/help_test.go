package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestHelp: the help of every command says what it does and carries an example
// that begins with the command itself.
func TestHelp(t *testing.T) {
	var paths []string
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.Hidden {
			return
		}
		path := cmd.CommandPath()
		paths = append(paths, path)
		var out, talk bytes.Buffer
		args := append(strings.Fields(path)[1:], "--help")
		if code := run(args, &out, &talk); code != exitOK || talk.Len() > 0 {
			t.Errorf("%s --help: exit code %d, %s", path, code, talk.String())
		}
		if cmd.Short == "" || !strings.Contains(out.String(), "Usage:") {
			t.Errorf("%s --help does not say what it is for:\n%s", path, out.String())
		}
		_, after, found := strings.Cut(out.String(), "Examples:\n")
		if !found || !strings.HasPrefix(after, "  "+path) {
			t.Errorf("%s --help has no example of it:\n%s", path, out.String())
		}
		for _, line := range strings.Split(cmd.Example, "\n") {
			if len(line) > 100 {
				t.Errorf("%s: an example of %d columns: %s", path, len(line), line)
			}
		}
	}
	walk((&cli{}).root())
	for _, want := range []string{"graft", "graft ab", "graft doctor", "graft generate", "graft help", "graft inspect",
		"graft patch", "graft plugin",
		"graft plugin inspect", "graft plugin install", "graft plugin list", "graft plugin remove", "graft plugin verify",
		"graft version"} {
		if !slices.Contains(paths, want) {
			t.Errorf("there is no %s", want)
		}
	}
}
