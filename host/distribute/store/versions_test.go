package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
	"github.com/opgraft/graft/internal/must"
)

// toys are folders of versions of the fixture, by version.
func toys(t testing.TB, versions ...string) map[string]string {
	t.Helper()
	folders, top := map[string]string{}, t.TempDir()
	for _, v := range versions {
		folders[v] = plugintest.Versioned(t, filepath.Join(top, v), v)
	}
	return folders
}

// shelf is what a store holds of the fixture, "0.2.0 (0.1.0)": the current version, and those beside it. All of them
// are ones that a program loads.
func shelf(t testing.TB, s *Store) string {
	t.Helper()
	list := must.Value(s.List())(t)
	if len(list) == 0 {
		return ""
	}
	text := list[0].Version
	for _, in := range append(list[:1:1], list[0].Retained...) {
		if err := plugin.Check(in.Folder, plugin.OpenOptions{Trust: s.Trust()}); err != nil || in.Problem != "" {
			t.Errorf("version %s: %v, %s", in.Version, err, in.Problem)
		}
	}
	for _, in := range list[0].Retained {
		text += " (" + in.Version + ")"
	}
	found := discovery.Find(discovery.Options{Folders: []string{s.root}, Only: true}).Found
	if len(found) != 1 || found[0].Manifest == nil || found[0].Manifest.Version != list[0].Version ||
		found[0].Folder != list[0].Folder {
		t.Errorf("a search finds %+v", found)
	}
	return text
}

// TestVersions: what stands side by side after installations, upgrades, returns and removals.
func TestVersions(t *testing.T) {
	plugintest.Places(t)
	from := toys(t, "0.1.0", "0.2.0", "0.3.0")
	for _, test := range []struct{ name, steps, want string }{
		{"an upgrade retains the version before", "install 0.1.0, upgrade 0.2.0", "0.2.0 (0.1.0)"},
		{"upgrades retain all", "install 0.1.0, upgrade 0.2.0, upgrade 0.3.0", "0.3.0 (0.1.0) (0.2.0)"},
		{"an installation does not", "install 0.1.0, install 0.2.0", "0.2.0"},
		{"an installation leaves what is retained", "install 0.1.0, upgrade 0.2.0, install 0.3.0", "0.3.0 (0.1.0)"},
		{"a return retains the newer one", "install 0.1.0, upgrade 0.2.0, rollback", "0.1.0 (0.2.0)"},
		{"a return goes to the one before, not to the next lower",
			"install 0.1.0, upgrade 0.2.0, rollback, upgrade 0.3.0, rollback", "0.1.0 (0.2.0) (0.3.0)"},
		{"returns go back step by step", "install 0.1.0, upgrade 0.2.0, upgrade 0.3.0, rollback, rollback",
			"0.1.0 (0.3.0) (0.2.0)"},
		{"a return may name a version, older or newer",
			"install 0.1.0, upgrade 0.2.0, upgrade 0.3.0, rollback 0.1.0, rollback 0.3.0", "0.3.0 (0.1.0) (0.2.0)"},
		{"a return to the current version is none", "install 0.1.0, upgrade 0.2.0, rollback 0.2.0", "0.2.0 (0.1.0)"},
		{"an upgrade to what is retained", "install 0.1.0, upgrade 0.2.0, rollback, upgrade 0.2.0", "0.2.0 (0.1.0)"},
		{"an upgrade to what is there", "install 0.1.0, upgrade 0.1.0", "0.1.0"},
		{"an installation of what is retained", "install 0.1.0, upgrade 0.2.0, install 0.1.0", "0.1.0"},
		{"a version may be removed", "install 0.1.0, upgrade 0.2.0, remove @0.1.0", "0.2.0"},
		{"the only version may be named", "install 0.1.0, remove @0.1.0", ""},
		{"all may", "install 0.1.0, upgrade 0.2.0, remove", ""},
		{"and installed again", "install 0.1.0, upgrade 0.2.0, remove, install 0.1.0", "0.1.0"},
	} {
		for _, kind := range []string{" in a store of an older graft", ""} {
			if kind == "" && testing.Short() {
				continue
			}
			t.Run(test.name+kind, func(t *testing.T) {
				s := At(t.TempDir())
				for i, step := range strings.Split(test.steps, ", ") {
					must.Succeed(t, do(t, s, from, step), step)
					if i == 0 && kind != "" {
						asOlder(t, s)
						if got := shelf(t, s); got != "0.1.0" {
							t.Fatalf("an older store holds %q", got)
						}
					}
				}
				must.Equal(t, shelf(t, s), test.want)
				known, err := s.Trust().Read()
				if want := strings.Count(test.want, "0."); err != nil || len(known.Plugins) != want {
					t.Errorf("%d plugins are recorded, %v; want %d", len(known.Plugins), err, want)
				}
				if test.want == "" && plugintest.Exists(filepath.Join(s.root, discovery.VersionsFolder)) {
					t.Error("the folder of versions is left")
				}
			})
		}
	}
}

// do is one step.
func do(t *testing.T, s *Store, from map[string]string, step string) (err error) {
	verb, version, _ := strings.Cut(step, " ")
	switch verb {
	case "install":
		_, err = s.Install(t.Context(), from[version], verification.Options{Replace: "toy"})
	case "upgrade":
		_, err = s.Upgrade(t.Context(), "toy", from[version], verification.Options{})
	case "rollback":
		_, err = s.Rollback(t.Context(), "toy", version)
	case "remove":
		err = s.Remove(t.Context(), "toy"+version)
	default:
		t.Fatal(step)
	}
	return err
}

// asOlder makes a store what one of an older graft is: a folder where the link is, and its place in the record.
func asOlder(t *testing.T, s *Store) {
	t.Helper()
	link := filepath.Join(s.root, "toy")
	folder := discovery.Current(link)
	record := filepath.Join(filepath.Dir(s.root), "verified.json")
	text := strings.ReplaceAll(string(plugintest.ReadFile(t, record)), folder, link)
	plugintest.WriteFile(t, record, []byte(text))
	must.Succeed(t, errors.Join(os.Remove(link), os.Rename(folder, link),
		os.RemoveAll(filepath.Join(s.root, discovery.VersionsFolder))))
}

// TestVersionsRefused: what is refused leaves the store as it was.
func TestVersionsRefused(t *testing.T) {
	plugintest.Places(t)
	from := toys(t, "0.1.0", "0.2.0", "0.3.0")
	from["0.2.0 of other files"] = plugintest.Versioned(t, filepath.Join(t.TempDir(), "other"), "0.2.0", "-O2")
	from["crash"] = plugintest.Versioned(t, filepath.Join(t.TempDir(), "crash"), "0.9.0", "-DCRASH_IN_RUN")
	s := At(t.TempDir())
	for _, step := range []string{"upgrade 0.2.0", "rollback", "remove"} {
		want := s.root + `: found no plugin "toy", needed the name of an installed one; run: graft plugin list`
		must.FailExactly(t, do(t, s, from, step), want, refusal.ErrNotFound)
	}
	for _, step := range []string{"install 0.1.0", "upgrade 0.2.0"} {
		must.Succeed(t, do(t, s, from, step))
	}
	for _, test := range []struct{ step, want string }{
		{"upgrade 0.1.0", from["0.1.0"] +
			": found version 0.1.0, needed a newer version than 0.2.0, which is installed; run: graft plugin rollback toy " +
			"--to 0.1.0"},
		{"upgrade 0.2.0 of other files",
			from["0.2.0 of other files"] +
				": found version 0.2.0 with other files, needed a newer version than 0.2.0, which is installed; run: graft " +
				"plugin install --replace toy " + from["0.2.0 of other files"] + ", if that is meant"},
		{"upgrade crash", from["crash"] +
			"/libtoy.so: it was ended by SIGSEGV (segmentation fault) in a child process (case \"twice\"); report this to " +
			"its author; do not install it"},
		{"rollback 0.3.0", s.root + ": found no version 0.3.0 of toy, but 0.1.0, 0.2.0, needed the name of an installed " +
			"one; run: graft plugin list"},
		{"remove @0.2.0", discovery.Current(filepath.Join(s.root, "toy")) +
			": found the version of toy that is current, needed one beside it; run: graft plugin rollback toy, then remove " +
			"it; graft plugin remove toy removes all versions"},
		{"remove @0.3.0", s.root + ": found no version 0.3.0 of toy, but 0.1.0, 0.2.0, needed the name of an installed " +
			"one; run: graft plugin list"},
	} {
		must.FailExactly(t, do(t, s, from, test.step), test.want)
		must.Equal(t, shelf(t, s), "0.2.0 (0.1.0)", test.step)
	}
	if _, err := s.Upgrade(t.Context(), "tory", from["0.3.0"], verification.Options{}); err == nil ||
		!strings.Contains(err.Error(), `found no plugin "tory"`) {
		t.Errorf("an upgrade of another name: %v", err)
	}
	// A version that was changed since is not returned to.
	old := discovery.Versions(s.root, "toy")[0]
	must.Succeed(t, appendTo(filepath.Join(old, "plugin.yaml"), "# x\n"))
	if err := do(t, s, from, "rollback"); err == nil ||
		!strings.HasPrefix(err.Error(), old+"/plugin.yaml: found sha256 ") || !errors.Is(err, refusal.ErrVerification) {
		t.Errorf("a changed version: %v", err)
	}
	must.Succeed(t, do(t, s, from, "upgrade 0.3.0"))
	for range 2 {
		must.Succeed(t, do(t, s, from, "rollback 0.2.0"))
	}
}

// TestInstalledAlready: the same files from the same source run no second time, and whoever comes second is told so.
func TestInstalledAlready(t *testing.T) {
	plugintest.Places(t)
	s := At(t.TempDir())
	from := toys(t, "0.1.0")["0.1.0"]
	var runs []string
	for i := range 3 {
		steps := 0
		in := must.Value(s.Install(t.Context(), from,
			verification.Options{Progress: func(p verification.Progress) { steps = max(steps, p.Total) }}))(t)
		runs = append(runs, fmt.Sprintf("%v %v", in.Already, steps > 0))
		if i == 1 { // damaged, it is installed again, and runs
			must.Succeed(t, appendTo(filepath.Join(in.Folder, "libtoy.so"), "x"))
		}
	}
	must.Equal(t, fmt.Sprint(runs), "[false true true false false true]", runs)
	must.Equal(t, shelf(t, s), "0.1.0")
}
