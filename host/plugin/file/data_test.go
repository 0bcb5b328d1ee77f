package file

import (
	"github.com/opgraft/graft/internal/must"
	"testing"
)

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
		must.Equal(t, got, test.want, test.xdg, test.home)
	}
}
