// Command release writes what people install, from one commit and from libraries that were built for it: archives,
// Debian packages, Python wheels, an npm package, an OCI image layout, and Go modules with plugins inside. Two runs
// give the same bytes.
//
//	go run ./cmd/release -libraries build/release -out dist
//
// The folder of libraries has one for each processor, x86_64 and aarch64: what CMake makes with
// abi/cmake/Portable.cmake. The sources are those of the commit that is checked out, not what the working tree holds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/opgraft/graft/host/base/storage"
)

// platform is what is built for.
type platform struct {
	goarch  string // as Go and Debian call the processor
	machine string // as Linux and Python do
	node    string // as Node does
	maximum string // the newest glibc whose symbols may be used
}

var platforms = []platform{
	{"amd64", "x86_64", "x64", "2.28"},
	{"arm64", "aarch64", "arm64", "2.28"},
}

// release is one run.
type release struct {
	ctx       context.Context
	libraries string // folder of what CMake made
	out       string // folder of the results
	work      string // folder that is removed
	sources   string // the commit's files, in work
	version   string
	commit    string
	date      time.Time // of the commit: the time of everything
	platforms []platform
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r := &release{ctx: ctx}
	var names string
	flag.StringVar(&r.libraries, "libraries", "build/release", "folder with x86_64/plugins and aarch64/plugins")
	flag.StringVar(&r.out, "out", "dist", "folder to write, in the place of an earlier release")
	flag.StringVar(&names, "platforms", "amd64,arm64", "processors, with commas between")
	flag.Parse()
	err := r.choose(names)
	if err == nil {
		err = r.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (r *release) choose(names string) error {
	for _, name := range strings.Split(names, ",") {
		before := len(r.platforms)
		for _, p := range platforms {
			if p.goarch == name {
				r.platforms = append(r.platforms, p)
			}
		}
		if len(r.platforms) == before {
			return fmt.Errorf("-platforms %s: found %q, needed amd64 or arm64", names, name)
		}
	}
	return nil
}

// unreleased is the heading of the version that is being made.
var unreleased = regexp.MustCompile(`(?m)^## \[Unreleased\]: (\d+\.\d+\.\d+)$|^## \[?(\d+\.\d+\.\d+)\]?`)

func (r *release) run() error {
	to, err := filepath.Abs(r.out)
	if err == nil {
		err = replaceable(to)
	}
	if err != nil {
		return err
	}
	work, err := storage.Temporary(filepath.Dir(to)) // from where the result can be moved
	if err != nil {
		return err
	}
	defer work.Remove()
	r.work, r.out = work.Path, filepath.Join(work.Path, "dist")
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"reading the commit", r.checkOut},
		{"checking libraries", r.checkLibraries},
		{"embedding plugins", r.embed},
		{"building graft", r.buildAll},
		{"collecting licences and contents", r.describe},
		{"archives", r.archives},
		{"Debian packages", r.debian},
		{"wheels", r.wheels},
		{"npm package", r.npm},
		{"image", r.image},
		{"Go modules", r.modules},
		{"sums", r.sums},
	} {
		fmt.Fprintln(os.Stderr, "release:", step.name)
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := storage.Place(r.out, to); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "release: graft %s, commit %.12s, in %s\n", r.version, r.commit, to)
	return nil
}

// replaceable refuses a folder that holds anything but a release.
func replaceable(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(folder, "SHA256SUMS")); err != nil {
		return fmt.Errorf("-out %s: found a folder with other files, needed one that is not there, is empty, or holds a "+
			"release", folder)
	}
	return nil
}

// command runs a program in a folder, and gives what it prints.
func (r *release) command(folder string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(r.ctx, name, args...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	var talk strings.Builder
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, talk.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// checkOut takes the commit's files, its date and the version.
func (r *release) checkOut() error {
	head, err := r.command("", nil, "git", "show", "-s", "--format=%H %ct", "HEAD")
	if err != nil {
		return err
	}
	commit, seconds, _ := strings.Cut(head, " ")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	r.commit, r.date = commit, time.Unix(at, 0).UTC()
	top, err := r.command("", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if changed, err := r.command(top, nil, "git", "status", "--porcelain", "--untracked-files=no"); err == nil &&
		changed != "" {
		fmt.Fprintln(os.Stderr, "release: the working tree has changes, which are left out")
	}
	archive := filepath.Join(r.work, "sources.tar")
	if _, err := r.command(top, nil, "git", "archive", "-o", archive, "HEAD"); err != nil {
		return err
	}
	r.sources = filepath.Join(r.work, "sources")
	if err := os.Mkdir(r.sources, 0o755); err != nil {
		return err
	}
	if _, err := r.command(r.sources, nil, "tar", "-xf", archive); err != nil {
		return err
	}
	changes, err := os.ReadFile(filepath.Join(r.sources, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	found := unreleased.FindSubmatch(changes)
	if found == nil {
		return errors.New("CHANGELOG.md: found no heading of a version, needed \"## [Unreleased]: X.Y.Z\" or \"## X.Y.Z\"")
	}
	r.version = string(found[1]) + string(found[2])
	if r.libraries, err = filepath.Abs(r.libraries); err != nil {
		return err
	}
	return os.MkdirAll(r.out, 0o755)
}

// built is the binary of a platform.
func (r *release) built(p platform) string { return filepath.Join(r.work, "graft-"+p.goarch) }

// library is what programs of other languages load; "" where there is none.
func (r *release) library(p platform) string {
	path := filepath.Join(r.libraries, p.machine, "libgraft.so")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// buildAll builds the command line with the plugins inside.
func (r *release) buildAll() error {
	flags := fmt.Sprintf("-s -w -X main.release=%s -X main.commit=%s -X main.date=%s", r.version, r.commit,
		r.date.Format(time.RFC3339))
	for _, p := range r.platforms {
		env := []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + p.goarch, "GOFLAGS=", "GOWORK=off", "GOAMD64=v1"}
		if _, err := r.command(r.sources, env, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o",
			r.built(p), "./cmd/graft"); err != nil {
			return err
		}
		if err := portable(r.built(p), p); err != nil {
			return err
		}
	}
	return nil
}
