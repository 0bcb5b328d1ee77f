package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
	"github.com/opgraft/graft/internal/must"
)

func TestInstall(t *testing.T) {
	s := At(t.TempDir())
	from := source(t)
	var steps []string
	opts := verification.Options{Progress: func(
		p verification.Progress) {
		steps = append(steps, fmt.Sprintf("%d/%d %s", p.Done, p.Total, p.Step))
	}}
	in := must.Value(s.Install(context.Background(), from, opts))(t)
	want := filepath.Join(s.root, "toy")
	if in.Name != "toy" || in.Version != "0.1.0" || in.Folder != want || in.Replaced != "" || len(in.Checked) != 1 ||
		in.Checked[0].Path != filepath.Join(want, "libtoy.so") || len(in.Checked[0].Cases) != 3 || in.Checked[0].Score != 50 {
		t.Errorf("installation %+v", in)
	}
	wantSteps := []string{"0/0 copying " + from, "0/5 loading libtoy.so in a child process", "1/5 probing libtoy.so",
		"2/5 case twice", "3/5 case by three", "4/5 case nothing"}
	must.Equal(t, steps, wantSteps)
	must.Equal(t, entries(t, s), []string{"toy"})
	must.Value(plugin.Open(in.Folder, plugin.OpenOptions{Trust: s.Trust()}))(t, "open")

	list, err := s.List()
	if err != nil || len(list) != 1 || list[0].Name != "toy" || list[0].Version != "0.1.0" || list[0].Source != from ||
		list[0].Problem != "" {
		t.Errorf("list %+v, %v", list, err)
	}
	if checks, err := s.Verify(context.Background(), nil, verification.Options{}); err != nil || len(checks) != 1 ||
		checks[0].Name != "toy" || len(checks[0].Checked) != 1 {
		t.Errorf("verify %+v, %v", checks, err)
	}

	// A newer version takes its place.
	newer := plugintest.Write(t, filepath.Join(t.TempDir(), "newer"),
		strings.Replace(plugintest.Manifest, "0.1.0", "0.2.0", 1), "")
	if _, err := s.Install(context.Background(), newer, verification.Options{Replace: "toy"}); err == nil {
		t.Error("a plugin without its library is installed")
	}
	plugintest.WriteFile(t, filepath.Join(newer, "libtoy.so"), plugintest.ReadFile(t, plugintest.Build(t)))
	_, err = s.Install(context.Background(), newer, verification.Options{Replace: "toy"})
	wantErr := newer +
		`/libtoy.so: found version "0.1.0" in its ELF note, needed "0.2.0" as in plugin.yaml; build the library and the manifest from the same source`
	must.FailExactly(t, err, wantErr, refusal.ErrIncompatible)
	plugintest.WriteFile(t, filepath.Join(newer, manifest.FileName),
		[]byte(strings.ReplaceAll(plugintest.Manifest+plugintest.Cases, "amd64", runtime.GOARCH)+"# a newer one\n"))
	plugintest.WriteFile(t, filepath.Join(newer, "NOTES"), []byte("new"))
	in, err = s.Install(context.Background(), newer, verification.Options{Replace: "toy"})
	if err != nil || in.Replaced != "0.1.0" {
		t.Fatalf("replacing: %+v, %v", in, err)
	}
	must.Equal(t, string(plugintest.ReadFile(t, filepath.Join(in.Folder, "NOTES"))), "new")
	must.Equal(t, entries(t, s), []string{"toy"})

	must.Succeed(t, s.Remove(context.Background(), "toy"))
	must.Empty(t, entries(t, s))
	content, err := s.Trust().Read()
	if err != nil || len(content.Plugins) != 0 {
		t.Errorf("after removal the record holds %v, %v", content, err)
	}
	wantErr = s.root + `: found no plugin "toy", needed the name of an installed one; run: graft plugin list`
	must.FailExactly(t, s.Remove(context.Background(), "toy"), wantErr, refusal.ErrNotFound)
	must.Fail(t, s.Remove(context.Background(), "../toy"), refusal.ErrNotFound)
}

func TestInstallRefusals(t *testing.T) {
	crashes := "; report this to its author; do not install it"
	for _, test := range []struct {
		name     string
		flags    []string
		deadline time.Duration
		kind     error
		want     string // after the library's path
	}{
		{"crash in a constructor", []string{"-DCRASH_IN_CONSTRUCTOR"}, 0, refusal.ErrVerification,
			": it was ended by SIGSEGV (segmentation fault) in a child process (task describe)" + crashes},
		{"hang in a constructor", []string{"-DHANG_IN_CONSTRUCTOR"}, 500 * time.Millisecond, refusal.ErrVerification,
			": it gave no answer within 500ms and was ended in a child process (task describe); report this to its author, " +
				"or allow more time when the machine is slow"},
		{"abort in a constructor", []string{"-DABORT_IN_CONSTRUCTOR"}, 0, refusal.ErrVerification,
			`: it was ended by SIGABRT (aborted) in a child process (task describe), printing "the fixture gives up"` + crashes},
		{"exit in a constructor", []string{"-DEXIT_IN_CONSTRUCTOR"}, 0, refusal.ErrVerification,
			": it ended the process with exit code 0 in a child process (task describe); report this to its author: a plugin " +
				"must never end the process"},
		{"crash in run", []string{"-DCRASH_IN_RUN"}, 0, refusal.ErrVerification,
			": it was ended by SIGSEGV (segmentation fault) in a child process (case \"twice\")" + crashes},
		{"hang in run", []string{"-DHANG_IN_RUN"}, 500 * time.Millisecond, refusal.ErrVerification,
			": it gave no answer within 500ms and was ended in a child process (case \"twice\"); report this to its author, " +
				"or allow more time when the machine is slow"},
		{"error from create", []string{"-DCREATE_FAILS"}, 0, refusal.ErrVerification,
			`: case "twice" failed: create of Scale failed: the fixture makes no kernels (not supported); report this to the plugin's author; do not use it`},
		{"error from run", []string{"-DRUN_FAILS"}, 0, refusal.ErrVerification,
			`: case "twice" failed: run of Scale failed: the fixture cannot run (internal error); report this to the plugin's author; do not use it`},
		{"non-finite values", []string{"-DWRITE_NAN"}, 0, refusal.ErrVerification,
			`: case "twice" failed: output y[2 4] is NaN, expected is -0.256138414144516 within 0 + 0 relative (1 threads); report this to the plugin's author; do not use it`},
		{"wrong values", []string{"-DWRITE_WRONG"}, 0, refusal.ErrVerification,
			`: case "twice" failed: output y[0 0] is 1.2662463188171387, expected is 0.2662462890148163 within 0 + 0 relative (1 threads); report this to the plugin's author; do not use it`},
		{"values beyond", []string{"-DWRITE_BEYOND"}, 0, refusal.ErrVerification,
			`: case "twice" failed: it wrote outside output y (1 threads); report this to the plugin's author; do not use it`},
		{"another description", []string{`-DDESCRIBED_NAME="tory"`}, 0, refusal.ErrIncompatible,
			`: found name "tory" in the library's description, needed "toy" as in plugin.yaml; build the library and the manifest from the same source`},
		{"a machine it does not like", []string{"-DSCORE=0"}, 0, refusal.ErrIncompatible,
			": found that it cannot run on this machine: the fixture does not like this machine; install a plugin or a build " +
				"that suits this machine"},
		{"a score beyond", []string{"-DSCORE=101"}, 0, refusal.ErrKernel, ": probe gave the score 101, needed 0 to 100"},
		{"no symbol", []string{"-DNO_ENTRY"}, 0, refusal.ErrIncompatible,
			": found no symbol graft_plugin_v1, needed the entry point of a graft plugin; export it from the library " +
				"(abi/graft_plugin.h), or point at a library that is a graft plugin"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := At(t.TempDir())
			from := source(t, test.flags...)
			_, err := s.Install(context.Background(), from, verification.Options{Deadline: test.deadline})
			must.FailExactly(t, err, from+"/libtoy.so"+test.want)
			must.Fail(t, err, test.kind)
			if e := (*diagnostic.Error)(nil); !errors.As(err, &e) || e.Path != from+"/libtoy.so" ||
				strings.Contains(e.Found, stagingPrefix) {
				t.Errorf("the error's parts are %+v, want the path of what the user has", e)
			}
			must.Empty(t, entries(t, s))
			if content, err := s.Trust().Read(); err != nil || len(content.Plugins) != 0 {
				t.Errorf("the record holds %v, %v", content, err)
			}
		})
	}
}

func TestInstallNoisyLibrary(t *testing.T) {
	s := At(t.TempDir())
	if _, err := s.Install(context.Background(), source(t, "-DPRINT_IN_CONSTRUCTOR"), verification.Options{}); err != nil {
		t.Errorf("a library that prints: %v", err)
	}
}

func TestInstallSources(t *testing.T) {
	s := At(t.TempDir())
	from := source(t)
	library := filepath.Join(from, "libtoy.so")
	for _, test := range []struct{ source, want string }{
		{filepath.Join(from, "none"), from + "/none: cannot read: no such file or directory, needed a plugin's folder or " +
			"an archive of it"},
		{library, library + ": found a single file, needed a plugin's folder or an archive of it (.tar.gz, .tgz, " +
			".tar); run: graft plugin install " + from},
		{filepath.Join(from, manifest.FileName),
			from +
				"/plugin.yaml: found a single file, needed a plugin's folder or an archive of it (.tar.gz, .tgz, .tar)"},
		{s.root, s.root + ": found no plugin.yaml, needed it at the top, beside the libraries; point at the folder that " +
			"holds plugin.yaml"},
	} {
		if _, err := s.Install(context.Background(), test.source, verification.Options{}); err == nil ||
			err.Error() != test.want {
			// The last source exists once the store does.
			t.Errorf("error\n%v\nwant\n%s", err, test.want)
		}
		must.Succeed(t, os.MkdirAll(s.root, 0o755))
	}
	outside := filepath.Join(t.TempDir(), "secret")
	plugintest.WriteFile(t, outside, []byte("x"))
	must.Succeed(t, os.Symlink(outside, filepath.Join(from, "notes")))
	want := from + "/notes: cannot follow the link: path escapes from parent, needed links that stay inside the " +
		"folder; replace it by the file"
	must.FailExactly(t, must.Error(s.Install(context.Background(), from, verification.Options{})), want)
	must.Succeed(t, os.Remove(filepath.Join(from, "notes")))
	must.Succeed(t, syscall.Mkfifo(filepath.Join(from, "pipe"), 0o600))
	want = from + "/pipe: found a named pipe, needed plain files and folders; remove it from the folder"
	must.FailExactly(t, must.Error(s.Install(context.Background(), from, verification.Options{})), want)
	must.Succeed(t, os.Remove(filepath.Join(from, "pipe")))
	// A link that stays inside is copied as a file.
	must.Succeed(t, os.Rename(library, library+".1"))
	must.Succeed(t, os.Symlink("libtoy.so.1", library))
	in := must.Value(s.Install(context.Background(), from, verification.Options{}))(t)
	if info, err := os.Lstat(filepath.Join(in.Folder, "libtoy.so")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the installed library is %v, %v; want a file", info.Mode(), err)
	}
}
