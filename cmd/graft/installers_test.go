//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"fmt"
	"github.com/opgraft/graft/internal/must"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// atOnce runs a command in so many processes, and gives what each printed, errors after "error: ".
func (p *place) atOnce(processes int, args func(i int) []string) []string {
	p.t.Helper()
	out := make([]string, processes)
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range out {
		all.Go(func() {
			var stdout, stderr bytes.Buffer
			c := exec.Command(os.Args[0], args(i)...)
			c.Dir, c.Stdout, c.Stderr = p.folder, &stdout, &stderr
			c.Env = append(os.Environ(), asCommand+"=1", "GRAFT_PLUGIN_PATH=", "GRAFT_PLUGIN_UNVERIFIED=", "TMPDIR="+p.at("tmp"),
				"XDG_DATA_HOME="+p.at("data"), "XDG_CACHE_HOME="+p.at("cache"))
			<-start
			if err := c.Run(); err != nil {
				out[i] = fmt.Sprintf("error: %v: %s", err, stderr.String())
				return
			}
			out[i] = stdout.String()
		})
	}
	close(start)
	all.Wait()
	return out
}

// TestManyInstallers: 32 processes that do the same at once give one result. One of them did it, and the others say
// that it is done already; none fails.
func TestManyInstallers(t *testing.T) {
	processes := 32
	if testing.Short() {
		processes = 6
	}
	p := newPlace(t)
	p.layToys()
	one := func(what string, args []string, did, already string, versions int) {
		t.Helper()
		first, later := 0, 0
		for _, text := range p.atOnce(processes, func(int) []string { return args }) {
			switch {
			case strings.Contains(text, already):
				later++
			case strings.Contains(text, did):
				first++
			default:
				t.Errorf("%s: %s", what, text)
			}
		}
		if first != 1 || later != processes-1 {
			t.Errorf("%s: %d did it and %d of %d found it done", what, first, later, processes)
		}
		if err := tidy(p, versions); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	one("install", []string{"plugin", "install", "-q", "in/0.1.0"}, "installed toy 0.1.0 into",
		"toy 0.1.0 is installed already", 1)
	must.Succeed(t, p.is("0.1.0"))
	one("upgrade", []string{"plugin", "upgrade", "-q", "toy", "in/0.2.0"}, "installed toy 0.2.0 into",
		"toy 0.2.0 is installed already", 2)
	must.Succeed(t, p.is("0.2.0", "0.1.0"))
	one("rollback", []string{"plugin", "rollback", "-q", "toy", "--to", "0.1.0"},
		"toy 0.1.0 is current, and 0.2.0 is retained", "toy 0.1.0 is current already", 2)
	must.Succeed(t, p.is("0.1.0", "0.2.0"))
}

// TestInstallersOfOneName: of installers of two plugins of one name, those of one are through; those of the other are
// told that the name is taken. Whatever comes first, the store has one of them, whole.
func TestInstallersOfOneName(t *testing.T) {
	p := newPlace(t)
	p.layToys()
	sources := []string{"0.1.0", "0.2.0"}
	through := map[string]int{}
	for i, text := range p.atOnce(8,
		func(i int) []string { return []string{"plugin", "install", "-q", "in/" + sources[i%2]} }) {
		switch {
		case !strings.HasPrefix(text, "error: "):
			through[sources[i%2]]++
		case !strings.Contains(text, "exit status 3") || !strings.Contains(text, "found that a plugin toy is there already"):
			t.Error(text)
		}
	}
	now, _, err := p.versions()
	if err != nil || len(through) != 1 || through[now] != 4 {
		t.Errorf("%v were through, and %s is installed, %v", through, now, err)
	}
	must.Succeed(t, tidy(p, 1))
}
