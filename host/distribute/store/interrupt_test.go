package store

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
	"github.com/opgraft/graft/internal/must"
)

func TestInstallConcurrently(t *testing.T) {
	data := t.TempDir()
	from := source(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := At(data).Install(context.Background(), from, verification.Options{}); err != nil {
				t.Error(err)
			}
		})
	}
	stop := make(chan struct{})
	watched := make(chan struct{})
	go func() { // from the first installation on, the plugin is there at every moment
		defer close(watched)
		s, there := At(data), false
		for {
			m, err := manifest.Read(filepath.Join(s.root, "toy"))
			if there && err != nil {
				t.Errorf("the plugin is not there: %v", err)
			}
			there = there || m != nil
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	all.Wait()
	close(stop)
	<-watched
	s := At(data)
	must.Equal(t, entries(t, s), []string{"toy"})
	must.Value(s.Verify(context.Background(), []string{"toy"}, verification.Options{}))(t, "verify")
}

func TestInstallInterrupted(t *testing.T) {
	s := At(t.TempDir())
	must.Value(s.Install(context.Background(), source(t), verification.Options{}))(t)
	for _, flags := range [][]string{{"-DHANG_IN_CONSTRUCTOR"}, {"-DHANG_IN_RUN"}} {
		ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
		_, err := s.Install(ctx, source(t, flags...), verification.Options{Replace: "toy"})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want the context's error", flags, err)
		}
		must.Equal(t, entries(t, s), []string{"toy"}, flags)
	}
	must.Value(s.Verify(context.Background(), []string{"toy"}, verification.Options{}))(t, "the plugin that was there")
}

// TestInstallKilled kills an installing process outright; the next installation sweeps up.
func TestInstallKilled(t *testing.T) {
	s := At(t.TempDir())
	if from := os.Getenv("GRAFT_TEST_INSTALL_FROM"); from != "" {
		_, err := At(os.Getenv("GRAFT_TEST_INSTALL_TO")).Install(context.Background(), from,
			verification.Options{Replace: "toy"})
		t.Fatal(err) // unreachable: it is killed while the library hangs
	}
	// What the killed process cannot clean up lies here; a socket's path must stay short.
	temp := must.Value(os.MkdirTemp("/tmp", "k"))(t)
	defer os.RemoveAll(temp)
	cmd := exec.Command(os.Args[0], "-test.run=^TestInstallKilled$")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "GRAFT_TEST_INSTALL_FROM="+source(t, "-DHANG_IN_CONSTRUCTOR"),
		"GRAFT_TEST_INSTALL_TO="+filepath.Dir(s.root))
	must.Succeed(t, cmd.Start())
	for deadline := time.Now().Add(20 * time.Second); len(entries(t, s)) == 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	if got := entries(t, s); len(got) != 1 || !strings.HasPrefix(got[0], stagingPrefix) {
		t.Errorf("during the installation the store holds %q", got)
	}
	must.Succeed(t, cmd.Process.Kill())
	_ = cmd.Wait()
	must.Empty(t, discovery.Find(discovery.Options{Folders: []string{s.root}, Only: true}).Found)
	must.Value(s.Install(context.Background(), source(t), verification.Options{}))(t)
	must.Equal(t, entries(t, s), []string{"toy"})
}

// TestInstallStoppedBeforeItsPlace: an install that fails after its plugin was recorded, and before it is current,
// leaves no record of it, and that of the version that is there.
func TestInstallStoppedBeforeItsPlace(t *testing.T) {
	s := At(t.TempDir())
	must.Value(s.Install(t.Context(), source(t), verification.Options{}))(t)
	before, err := s.Trust().Read()
	must.Succeed(t, err)
	newer := source(t)
	must.Succeed(t, os.WriteFile(filepath.Join(newer, "README"), []byte("newer"), 0o644))
	obstacle := filepath.Join(s.root, newLink) // what stands where the link is made
	must.Succeed(t, errors.Join(os.Mkdir(obstacle, 0o755), os.WriteFile(filepath.Join(obstacle, "x"), nil, 0o644)))
	if _, err = s.Install(t.Context(), newer, verification.Options{Replace: "toy"}); !errors.Is(err, refusal.ErrStore) {
		t.Fatalf("error %v, want that it cannot be put in its place", err)
	}
	after, err := s.Trust().Read()
	if err != nil || !reflect.DeepEqual(after, before) {
		t.Errorf("recorded before: %+v; after: %+v, %v", before, after, err)
	}
	if _, err := plugin.Open(filepath.Join(s.root, "toy"), plugin.OpenOptions{Trust: s.Trust()}); err != nil {
		t.Errorf("the version that is there: %v", err)
	}
	must.Succeed(t, os.RemoveAll(obstacle))
	if _, err = s.Install(t.Context(), newer, verification.Options{Replace: "toy"}); err != nil {
		t.Errorf("without the obstacle: %v", err)
	}
	if found := discovery.Versions(s.root, "toy"); len(found) != 1 {
		t.Errorf("the store holds %v, want the new version alone", found)
	}
}
