//go:build linux && (amd64 || arm64)

package model

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/tests/faults"
)

// writeTwo makes the tests' executable write a model in two files, over an older pair.
const writeTwo = "GRAFT_TEST_WRITE_TWO"

func TestMain(m *testing.M) {
	faults.Main()
	if folder := os.Getenv(writeTwo); folder != "" {
		in, err := Open(filepath.Join(folder, "in", "m.onnx"))
		if err == nil {
			err = in.Write(context.Background(), in.Proto(), filepath.Join(folder, "out", "m.onnx"),
				WriteOptions{InlineLimit: 1})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// With GRAFT_TEST_FAULTS_ALL=1 every call of writing two files fails once, and is its end once; else some do: what is
// there is the old pair, the new one or no model, never one with the other's data; and the next run leaves nothing of
// the one before.
func TestFaultsOfTwoFiles(t *testing.T) {
	_, in := spread(t)
	in = must.Value(filepath.EvalSymlinks(in))(t)
	names := []string{"m.onnx", "m.onnx.data"}
	hold := func(folder string) string {
		var held []string
		for _, name := range names {
			data, err := os.ReadFile(filepath.Join(folder, "out", name))
			switch {
			case err != nil:
				held = append(held, "none")
			case strings.HasPrefix(string(data), "old"):
				held = append(held, "old")
			default:
				held = append(held, fmt.Sprint("new ", len(data)))
			}
		}
		return strings.Join(held, ", ")
	}
	run := func(folder string, fault faults.Fault) *faults.Run {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), writeTwo+"="+folder)
		run := must.Value(faults.Start(t.Context(), c, []string{filepath.Join(folder, "out")}, fault))(t)
		return run
	}
	fresh := func() string {
		folder := must.Value(filepath.EvalSymlinks(t.TempDir()))(t)
		must.Succeed(t, os.Mkdir(filepath.Join(folder, "out"), 0o755))
		must.Succeed(t, os.Symlink(in, filepath.Join(folder, "in")))
		for _, name := range names {
			writeFile(t, filepath.Join(folder, "out", name), []byte("old "+name))
		}
		return folder
	}
	folder := fresh()
	clean := run(folder, faults.Fault{})
	whole := hold(folder)
	if clean.Code != 0 || strings.Count(whole, "new") != 2 {
		t.Fatalf("without a fault: %s, %+v", whole, clean)
	}
	hits, step := 0, 8
	if os.Getenv("GRAFT_TEST_FAULTS_ALL") != "" {
		step = 1
	}
	for n := 1; n <= clean.Calls+2; n += step {
		for _, kill := range []bool{false, true} {
			folder := fresh()
			r := run(folder, faults.Fault{At: n, Kill: kill})
			if r.Hit == "" {
				continue
			}
			hits++
			switch held := hold(folder); {
			case held == whole, held == "old, old" && r.Code != 0, strings.HasPrefix(held, "none, ") && r.Code < 0:
			default:
				t.Errorf("%s (killed: %v): found %s, exit code %d %s", r.Hit, kill, held, r.Code, r.Stderr)
			}
			if again := run(folder, faults.Fault{}); again.Code != 0 || hold(folder) != whole {
				t.Errorf("%s (killed: %v): the next run: exit code %d, %s, %s", r.Hit, kill, again.Code, again.Stderr, hold(folder))
			}
			lists(t, filepath.Join(folder, "out"), names...)
		}
	}
	t.Logf("%d calls of the system on its files; %d faults, after each all was whole", clean.Calls, hits)
}
