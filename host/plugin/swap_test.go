package plugin

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/host/plugin/trust"
	"github.com/opgraft/graft/internal/must"
)

// TestSwapsDuringLoad exchanges library and manifest of verified plugins, over and over, with others that were not
// verified, while they are loaded. Each is another content, which a process loads once. What was not verified leaves
// a mark when any of it runs.
func TestSwapsDuringLoad(t *testing.T) {
	tries := 200
	if testing.Short() {
		tries = 40
	}
	mark := filepath.Join(t.TempDir(), "ran")
	good, bad := plugintest.ReadFile(t, plugintest.Build(t)),
		plugintest.ReadFile(t, plugintest.Build(t, `-DMARK_IN_CONSTRUCTOR="`+mark+`"`))
	loads, refusals := 0, 0
	for try := range tries {
		outside := t.TempDir()
		folder := plugintest.Write(t, filepath.Join(outside, "toy"), plugintest.Manifest, "")
		library := filepath.Join(folder, "libtoy.so")
		plugintest.WriteFile(t, library, append(good[:len(good):len(good)], strconv.Itoa(try)...))
		// in the record as a file, and not as a library that ran
		plugintest.WriteFile(t, filepath.Join(folder, "libother.so"), bad)
		record := recordFolder(t, outside, folder)
		// The others.
		plugintest.WriteFile(t, filepath.Join(outside, "libtoy.so"), bad)
		other := plugintest.Write(t, filepath.Join(outside, "other"), plugintest.Manifest, "")
		renamed := bytes.ReplaceAll(plugintest.ReadFile(t, filepath.Join(other, manifest.FileName)), []byte("libtoy.so"),
			[]byte("libother.so"))
		plugintest.WriteFile(t, filepath.Join(outside, manifest.FileName), renamed)

		stop := make(chan struct{})
		var swapper sync.WaitGroup
		swapper.Go(func() {
			for {
				for _, name := range []string{"libtoy.so", manifest.FileName, "libtoy.so"} {
					select {
					case <-stop:
						return
					default:
					}
					if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(folder, name), unix.AT_FDCWD, filepath.Join(outside, name),
						unix.RENAME_EXCHANGE); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
		for range 4 {
			switch _, err := Open(folder, OpenOptions{Trust: record}); {
			case err == nil:
				loads++
			case errors.Is(err, refusal.ErrVerification):
				refusals++
			default:
				t.Errorf("try %d: %v", try, err)
			}
		}
		close(stop)
		swapper.Wait()
		if plugintest.Exists(mark) {
			t.Fatalf("try %d: a library that was not verified ran", try)
		}
		must.Succeed(t, os.RemoveAll(folder))
	}
	t.Logf("%d tries: %d loads, %d refusals", tries, loads, refusals)
	if loads == 0 || refusals == 0 {
		t.Errorf("%d loads, %d refusals; want some of both", loads, refusals)
	}
}

// TestContentIsTheRecord changes each part of a verified plugin's folder.
func TestContentIsTheRecord(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(folder string) error
		want   string // after the folder
	}{
		{"nothing", func(string) error { return nil }, ""},
		{"manifest", func(f string) error {
			return os.WriteFile(f+"/plugin.yaml", append(plugintest.ReadFile(t, f+"/plugin.yaml"), "# x\n"...), 0o644)
		}, "/plugin.yaml: found sha256 "},
		{"table", func(f string) error { return os.WriteFile(f+"/table", []byte("other"), 0o644) }, "/table: found sha256 "},
		{"table gone", func(f string) error { return os.Remove(f + "/table") }, "/table: found that the file is gone"},
		{"added", func(f string) error { return os.WriteFile(f+"/libhelper.so", nil, 0o644) },
			"/libhelper.so: found a file that was not there"},
		{"library", func(f string) error {
			return errors.Join(os.Remove(f+"/libtoy.so"),
				os.WriteFile(f+"/libtoy.so", plugintest.ReadFile(t, plugintest.Build(t, "-DSCORE=40")), 0o644))
		}, "/libtoy.so: found a library that has not been verified here"},
		{"open to others", func(f string) error { return errors.Join(os.Chmod(filepath.Dir(f), 0o755), os.Chmod(f, 0o777)) },
			": found that others can write to it (mode 777)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			plugintest.Write(t, folder, plugintest.Manifest, plugintest.Build(t))
			plugintest.WriteFile(t, folder+"/table", []byte("numbers"))
			record := recordFolder(t, t.TempDir(), folder)
			must.Succeed(t, test.change(folder))
			_, err := Open(folder, OpenOptions{Trust: record})
			if test.want == "" {
				must.Succeed(t, err)
				return
			}
			if err == nil || len(err.Error()) < len(folder+test.want) ||
				err.Error()[:len(folder+test.want)] != folder+test.want || !errors.Is(err, refusal.ErrVerification) {
				t.Errorf("error\n%v\nwant\n%s%s", err, folder, test.want)
			}
			must.FailExactly(t, Check(folder, OpenOptions{Trust: record}), err.Error())
			// Its author's own choice, and the child's: only what the parent has seen.
			must.Value(Open(folder, OpenOptions{AcceptUnverified: true}))(t, "accepted unverified")
		})
	}
}

// TestRecordOfOthers holds that a record which others can change says nothing.
func TestRecordOfOthers(t *testing.T) {
	data, folder := t.TempDir(), t.TempDir()
	plugintest.Write(t, folder, plugintest.Manifest, plugintest.Build(t))
	record := recordFolder(t, data, folder)
	path := filepath.Join(data, trust.FileName)
	must.Succeed(t, os.Chmod(path, 0o666))
	want := path + ": cannot read the record of verified libraries: found that others can write to it (mode 666), " +
		"needed what only its owner can change; run: chmod go-w " + path
	if _, err := Open(folder, OpenOptions{Trust: record}); err == nil ||
		err.Error()[:len(path)+60] != want[:len(path)+60] || !errors.Is(err, refusal.ErrStore) {
		t.Errorf("error %v, want %s", err, want)
	}
	must.Succeed(t, errors.Join(os.Chmod(path, 0o644), os.Chmod(filepath.Dir(data), 0o755), os.Chmod(data, 0o777)))
	want = data + ": found that others can write to it (mode 777), needed a place for verified plugins that only its " +
		"owner can change; run: chmod go-w " + data
	must.FailExactly(t, must.Error(Open(folder, OpenOptions{Trust: record})), want)
}

// TestDescriptorIsTaken closes a loaded library's descriptor, as programs do that close all they do not know, and
// loads another version: the C library, which knows the first by that descriptor's path, must not hand it out for the
// second.
func TestDescriptorIsTaken(t *testing.T) {
	first := must.Value(open(t, "-DSCORE=41"))(t)
	loaded.Lock()
	err := loaded.code[first.SHA256].content.Close()
	loaded.Unlock()
	must.Succeed(t, err)
	second := must.Value(open(t, "-DSCORE=42"))(t)
	for want, p := range map[int]*Plugin{41: first, 42: second} {
		if score, _, err := p.Probe(tensor.CPU); score != want || err != nil {
			t.Errorf("score %d, %v; want %d", score, err, want)
		}
	}
}

// TestOldRecord holds that a record of libraries alone, as graft wrote it before, verifies no folder.
func TestOldRecord(t *testing.T) {
	data := t.TempDir()
	folder := plugintest.Write(t, t.TempDir(), plugintest.Manifest, plugintest.Build(t))
	sum := plugintest.SHA256(t, filepath.Join(folder, "libtoy.so"))
	plugintest.WriteFile(t, filepath.Join(data, trust.FileName),
		fmt.Appendf(nil, `{"schema_version": 1, "libraries": {%q: {"name": "toy", "folders": [%q]}}}`, sum, folder))
	if _, err := Open(folder, OpenOptions{Trust: trust.At(data)}); err == nil ||
		!strings.Contains(err.Error(), "found a library that has not been verified here") {
		t.Errorf("error %v", err)
	}
}
