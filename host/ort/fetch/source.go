package fetch

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// A source is a package in a registry that holds the library.
type source struct {
	client      client
	requirement string // the package and its version, as the client writes it
	platform    string // of the wheel, for pip
	digest      digest // of the archive
	member      string // the library's path in the archive
	library     digest
	extract     func(ctx context.Context, archive, member, to string) error
}

// A client is a package manager that downloads an archive without unpacking or running it.
type client struct {
	name string
	// commands are ways to start it; the first that exists is used.
	commands [][]string
	args     func(s source) []string
	suffix   string // of the archive that it leaves in its working folder
}

var npm = client{
	name:     "npm",
	commands: [][]string{{"npm"}},
	args: func(s source) []string {
		return []string{"pack", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", s.requirement}
	},
	suffix: ".tgz",
}

var pip = client{
	name:     "pip",
	commands: [][]string{{"python3", "-m", "pip"}, {"pip3"}, {"pip"}},
	args: func(s source) []string {
		// The wheel of one Python version is pinned; the library does not depend on it, and any
		// pip can download for a Python that it does not run on.
		return []string{"download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:",
			"--implementation=cp", "--python-version=3.12", "--abi=cp312", "--platform=" + s.platform, "--dest=.", s.requirement}
	},
	suffix: ".whl",
}

// download runs the client in a folder. The client and its children get their own process group,
// so that ending ctx ends all of them before the folder is removed.
func (s source) download(ctx context.Context, dir string, report func(string)) error {
	var missing []string
	for _, command := range s.client.commands {
		program, err := exec.LookPath(command[0])
		if err != nil {
			missing = append(missing, command[0])
			continue
		}
		report(fmt.Sprintf("fetching %s with %s", s.requirement, s.client.name))
		cmd := exec.CommandContext(ctx, program, append(command[1:len(command):len(command)], s.client.args(s)...)...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = 5 * time.Second
		var talk bytes.Buffer
		cmd.Stdout, cmd.Stderr = &talk, &talk
		if err := cmd.Run(); err != nil {
			return &diagnostic.Error{Path: strings.Join(cmd.Args, " "), Found: err.Error() + ": " + lastLines(talk.String(), 5),
				Cause: err}
		}
		return nil
	}
	return &diagnostic.Error{Found: "not installed", Needed: strings.Join(missing, " or ") + " in PATH"}
}

// archive is the one file that the client left.
func (s source) archive(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var found []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), s.client.suffix) && e.Type().IsRegular() {
			found = append(found, filepath.Join(dir, e.Name()))
		}
	}
	if len(found) != 1 {
		return "", &diagnostic.Error{Found: fmt.Sprintf("found %d files *%s after it ran", len(found), s.client.suffix),
			Needed: "one"}
	}
	return found[0], nil
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
