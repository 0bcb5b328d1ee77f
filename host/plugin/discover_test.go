package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// places gives a test its own data folder and no GRAFT_PLUGIN_PATH.
func places(t *testing.T) (data string) {
	t.Helper()
	data = t.TempDir()
	t.Setenv("XDG_DATA_HOME", data)
	t.Setenv(PathVariable, "")
	return filepath.Join(data, "graft")
}

func TestDiscoverOrder(t *testing.T) {
	data := places(t)
	root := t.TempDir()
	named := func(name string) string { return strings.Replace(toyManifest, "name: toy", "name: "+name, 1) }
	option := writePlugin(t, filepath.Join(root, "option"), named("one"), "")
	variable := filepath.Join(root, "variable")
	writePlugin(t, filepath.Join(variable, "one"), named("one"), "")
	writePlugin(t, filepath.Join(variable, "two"), named("two"), "")
	user := writePlugin(t, filepath.Join(data, "plugins", "three"), named("three"), "")
	writePlugin(t, filepath.Join(data, "plugins", ".staging-1"), named("four"), "")
	broken := writePlugin(t, filepath.Join(data, "plugins", "broken"), "schema_version: 9\n", "")
	// A plugin in the working directory is never seen, nor are relative and empty entries.
	t.Chdir(writePlugin(t, filepath.Join(root, "here"), named("here"), ""))
	t.Setenv(PathVariable, strings.Join([]string{"", ".", variable, variable}, string(os.PathListSeparator)))

	s := Discover(DiscoverOptions{Folders: []string{option, filepath.Join(root, "absent")}})
	type row struct{ Source, Folder, ShadowedBy string }
	var got []row
	for _, f := range s.Found {
		got = append(got, row{f.Source, f.Folder, f.ShadowedBy})
	}
	want := []row{
		{SourceOption, option, ""},
		{SourceVariable, filepath.Join(variable, "one"), option},
		{SourceVariable, filepath.Join(variable, "two"), ""},
		{SourceUser, broken, ""},
		{SourceUser, user, ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	beside, err := besideExecutable()
	if err != nil {
		t.Fatal(err)
	}
	wantPlaces := []Place{
		{SourceOption, option, ""},
		{SourceOption, filepath.Join(root, "absent"), "no such folder"},
		{SourceVariable, ".", "relative; write an absolute path"},
		{SourceVariable, variable, ""},
		{SourceUser, filepath.Join(data, "plugins"), ""},
		{SourceExecutable, beside, "no such folder"},
	}
	if diff := cmp.Diff(wantPlaces, s.Places); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
	if names := len(s.Plugins()); names != 3 || s.Err() != nil {
		t.Errorf("%d plugins in use, error %v; want 3 and none", names, s.Err())
	}
	if f, err := s.ByName("one"); err != nil || f.Folder != option {
		t.Errorf("one: %+v, %v; want the option's", f, err)
	}
	if only := Discover(DiscoverOptions{Folders: []string{variable}, Only: true}); len(only.Places) != 1 || len(only.Found) != 2 {
		t.Errorf("only the option's folder: %+v", only)
	}
}

func TestDiscoverNothing(t *testing.T) {
	data := places(t)
	broken := writePlugin(t, filepath.Join(t.TempDir(), "broken"), "schema_version: 9\n", "")
	t.Setenv(PathVariable, broken)
	s := Discover(DiscoverOptions{})
	beside, _ := besideExecutable()
	want := `found no plugin; looked in:
  ` + broken + ` (GRAFT_PLUGIN_PATH)
  ` + data + `/plugins (user data folder): no such folder
  ` + beside + ` (beside the executable): no such folder
  not usable: ` + broken + `/plugin.yaml:1: schema_version is 9, needed 1; install a graft that reads it
install one with: graft plugin install DIR, or set GRAFT_PLUGIN_PATH to a folder of plugins`
	err := s.Err()
	if err == nil || err.Error() != want {
		t.Errorf("error\n%v\nwant\n%s", err, want)
	}
	if !errors.Is(err, ErrNotFound) || !errors.Is(err, ErrManifest) {
		t.Error("error is not of kinds ErrNotFound and ErrManifest")
	}
	if _, err := s.ByName("x"); err == nil || !strings.HasPrefix(err.Error(), `found no plugin "x"; looked in:`) {
		t.Errorf("by name: %v", err)
	}
}

func TestDataFolder(t *testing.T) {
	for _, test := range []struct{ xdg, home, want string }{
		{"/x", "/h", "/x/graft"},
		{"", "/h", "/h/.local/share/graft"},
		{"relative", "/h", "/h/.local/share/graft"},
		{"", "", "neither XDG_DATA_HOME nor HOME is set to an absolute path; set one"},
		{"", "h", "neither XDG_DATA_HOME nor HOME is set to an absolute path; set one"},
	} {
		t.Setenv("XDG_DATA_HOME", test.xdg)
		t.Setenv("HOME", test.home)
		got, err := DataFolder()
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("XDG_DATA_HOME=%q HOME=%q: %s, want %s", test.xdg, test.home, got, test.want)
		}
	}
}

func TestVariantFor(t *testing.T) {
	m := &Manifest{Name: "toy", path: "/p/plugin.yaml", Variants: []Variant{
		{Device: "cpu", OS: "linux", Arch: "amd64", File: "a.so"}, {Device: "cuda", OS: "linux", Arch: "arm64", File: "b.so"},
	}}
	if v, err := m.VariantFor("cuda", Platform{"linux", "arm64"}); err != nil || v.File != "b.so" {
		t.Errorf("cuda on linux/arm64: %v, %v", v, err)
	}
	_, err := m.VariantFor("cpu", Platform{"darwin", "arm64"})
	want := "/p/plugin.yaml: found variants cpu on linux/amd64, cuda on linux/arm64 of toy, needed cpu on darwin/arm64; install a release of the plugin for this platform"
	if err == nil || err.Error() != want || !errors.Is(err, ErrIncompatible) {
		t.Errorf("cpu on darwin: %v", err)
	}
}

func TestBest(t *testing.T) {
	cpu, cuda := &Variant{Device: "cpu", OS: "linux", Arch: "amd64"}, &Variant{Device: "cuda", OS: "linux", Arch: "amd64"}
	if v, err := Best("/p", []Probed{{cpu, 10, ""}, {cuda, 90, ""}}); err != nil || v != cuda {
		t.Errorf("the higher score: %v, %v", v, err)
	}
	_, err := Best("/p", []Probed{{cpu, 0, "needs AVX2"}, {cuda, 0, ""}})
	want := "/p: found no variant that runs on this machine (cpu on linux/amd64: needs AVX2; cuda on linux/amd64: no reason given), needed one; install a release of the plugin for this machine"
	if err == nil || err.Error() != want || !errors.Is(err, ErrIncompatible) {
		t.Errorf("none: %v", err)
	}
}
