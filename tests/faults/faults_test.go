//go:build linux && (amd64 || arm64)

package faults

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opgraft/graft/internal/must"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// Every call of a shell and of what it starts fails once, and is its end once.
func TestEveryCall(t *testing.T) {
	for _, start := range []func(context.Context, *exec.Cmd, []string, Fault) (*Run, error){Start, bare} {
		var hits []string
		for n := 0; ; n++ {
			for _, kill := range []bool{false, true} {
				folder := must.Value(filepath.EvalSymlinks(t.TempDir()))(t)
				run := must.Value(start(context.Background(),
					exec.Command("/bin/sh", "-c", `(echo hello >"$0/a" && cat "$0/a" && mv "$0/a" "$0/b" && sleep 0.1) || exit 3`,
						folder), []string{folder}, Fault{n, kill}))(t)
				if run.Hit == "" && (run.Code != 0 || run.Stdout != "hello\n") {
					t.Fatalf("without a fault: %+v", run)
				}
				hits = append(hits, run.Hit)
			}
			if n > 0 && hits[len(hits)-1] == "" {
				break
			}
		}
		said := strings.Join(hits, "\n")
		for _, want := range []string{"openat of ", "write of ", "read of ", "close of ", "renameat2 of "} {
			if !strings.Contains(said, want) && !strings.Contains(said, "ms") {
				t.Errorf("no fault at %s among %s", want, said)
			}
		}
	}
}

// Programs come to their beginning however many begin at once, and whenever Go would like to have their threads.
func TestManyBeginAtOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 20 {
				run, err := Start(ctx, exec.Command("/bin/true"), []string{"/nonexistent"}, Fault{})
				if err != nil || run.Code != 0 {
					t.Error(run, err)
				}
			}
		})
	}
	all.Wait()
}
