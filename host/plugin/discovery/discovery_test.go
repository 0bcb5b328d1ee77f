package discovery

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/internal/must"
)

func TestDiscoverOrder(t *testing.T) {
	data := plugintest.Places(t)
	root := t.TempDir()
	named := func(name string) string { return strings.Replace(plugintest.Manifest, "name: toy", "name: "+name, 1) }
	option := plugintest.Write(t, filepath.Join(root, "option"), named("one"), "")
	variable := filepath.Join(root, "variable")
	plugintest.Write(t, filepath.Join(variable, "one"), named("one"), "")
	plugintest.Write(t, filepath.Join(variable, "two"), named("two"), "")
	user := plugintest.Write(t, filepath.Join(data, "plugins", "three"), named("three"), "")
	plugintest.Write(t, filepath.Join(data, "plugins", ".staging-1"), named("four"), "")
	broken := plugintest.Write(t, filepath.Join(data, "plugins", "broken"), "schema_version: 9\n", "")
	// A plugin in the working directory is never seen, nor are relative and empty entries.
	t.Chdir(plugintest.Write(t, filepath.Join(root, "here"), named("here"), ""))
	t.Setenv(PathVariable, strings.Join([]string{"", ".", variable, variable}, string(os.PathListSeparator)))

	s := Find(Options{Folders: []string{option, filepath.Join(root, "absent")}})
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
	must.Equal(t, cmp.Diff(want, got), "")
	beside := must.Value(besideExecutable())(t)
	wantPlaces := []Place{
		{SourceOption, option, ""},
		{SourceOption, filepath.Join(root, "absent"), "no such folder"},
		{SourceVariable, ".", "relative; write an absolute path"},
		{SourceVariable, variable, ""},
		{SourceUser, filepath.Join(data, "plugins"), ""},
		{SourceExecutable, beside, "no such folder"},
	}
	must.Equal(t, cmp.Diff(wantPlaces, s.Places), "")
	if names := len(s.Plugins()); names != 3 || s.Err() != nil {
		t.Errorf("%d plugins in use, error %v; want 3 and none", names, s.Err())
	}
	must.Equal(t, must.Value(s.ByName("one"))(t).Folder, option)
	if only := Find(Options{Folders: []string{variable}, Only: true}); len(only.Places) != 1 || len(only.Found) != 2 {
		t.Errorf("only the option's folder: %+v", only)
	}
}

func TestDiscoverNothing(t *testing.T) {
	data := plugintest.Places(t)
	broken := plugintest.Write(t, filepath.Join(t.TempDir(), "broken"), "schema_version: 9\n", "")
	t.Setenv(PathVariable, broken)
	s := Find(Options{})
	beside, _ := besideExecutable()
	want := `found no plugin; looked in:
  ` + broken + ` (GRAFT_PLUGIN_PATH)
  ` + data + `/plugins (user data folder): no such folder
  ` + beside + ` (beside the executable): no such folder
  not usable: ` + broken + `/plugin.yaml:1: schema_version is 9, needed 1; install a graft that reads it
install one with: graft plugin install DIR, or set GRAFT_PLUGIN_PATH to a folder of plugins`
	err := s.Err()
	must.FailExactly(t, err, want)
	must.Fail(t, err, refusal.ErrNotFound, refusal.ErrManifest)
	if _, err := s.ByName("x"); err == nil || !strings.HasPrefix(err.Error(), `found no plugin "x"; looked in:`) {
		t.Errorf("by name: %v", err)
	}
}
