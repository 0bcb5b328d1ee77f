package imports

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestMovedBuild: a build of a tree that was moved or copied since says what to do, where CMake ends with pages.
func TestMovedBuild(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "cmake")
	must.Succeed(t, os.MkdirAll(folder, 0o755))
	cache := "CMAKE_HOME_DIRECTORY:INTERNAL=/a/former/place\n"
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "CMakeCache.txt"), []byte(cache), 0o600))
	build := exec.Command("abi/cmake/build-tree.sh", folder, "1")
	build.Dir = root
	out, err := build.CombinedOutput()
	want := folder + ": found a build of /a/former/place, needed one of "
	if err == nil || !strings.HasPrefix(string(out), want) || !strings.HasSuffix(string(out), "run: make clean\n") ||
		strings.Count(string(out), "\n") != 1 {
		t.Errorf("%v: %q, want %q... and to run make clean", err, out, want)
	}
}

// TestCommitIsKnown: the command that make builds says which commit it is of.
func TestCommitIsKnown(t *testing.T) {
	head := exec.Command("git", "rev-parse", "HEAD")
	head.Dir = root
	commit := must.Value(head.Output())(t)
	plan := exec.Command("make", "-n", "graft")
	plan.Dir = root
	out, err := plan.Output()
	if want := "-X main.commit=" + strings.TrimSpace(string(commit)); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("make graft: %v: found no %s in\n%s", err, want, out)
	}
}
