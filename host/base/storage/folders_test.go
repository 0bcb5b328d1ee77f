package storage

import (
	"github.com/opgraft/graft/internal/must"
	"testing"
)

func TestFolders(t *testing.T) {
	const data, cache = "neither XDG_DATA_HOME nor HOME is set to an absolute path; set one",
		"found no cache folder: neither XDG_CACHE_HOME nor HOME is set to an absolute path; set one"
	for _, test := range []struct{ xdg, home, data, cache string }{
		{"/x", "/h", "/x/graft", "/x/graft"},
		{"", "/h", "/h/.local/share/graft", "/h/.cache/graft"},
		{"relative", "/h", "/h/.local/share/graft", cache},
		{"", "", data, cache},
		{"", "h", data, cache},
	} {
		t.Setenv("XDG_DATA_HOME", test.xdg)
		t.Setenv("XDG_CACHE_HOME", test.xdg)
		t.Setenv("HOME", test.home)
		for what, c := range map[string]struct {
			folder func() (string, error)
			want   string
		}{"data": {DataFolder, test.data}, "cache": {CacheFolder, test.cache}} {
			got, err := c.folder()
			if err != nil {
				got = err.Error()
			}
			must.Equal(t, got, c.want, what, test.xdg, test.home)
		}
	}
}
