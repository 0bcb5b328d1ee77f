package machine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/internal/must"
)

type content struct {
	SchemaVersion int   `json:"schema_version"`
	Numbers       []int `json:"numbers"`
}

func TestRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b.json")
	var got content
	must.Fail(t, ReadRecord(path, 3, &got), os.ErrNotExist)
	must.Succeed(t, WriteRecord(path, content{3, []int{1, 2}}))
	must.Succeed(t, WriteRecord(path, content{3, []int{4}}))
	if err := ReadRecord(path, 3, &got); err != nil || len(got.Numbers) != 1 || got.Numbers[0] != 4 {
		t.Errorf("got %v, %v", got, err)
	}
	must.Equal(t, len(must.Value(os.ReadDir(filepath.Dir(path)))(t)), 1)
	whole := must.Value(os.ReadFile(path))(t)
	for _, c := range []struct{ what, text, want string }{
		{"truncated", string(whole[:len(whole)/2]), "unexpected end of JSON input"},
		{"empty", "", "unexpected end of JSON input"},
		{"of another version", `{"schema_version": 4, "numbers": []}`, "found schema_version 4, need 3"},
		{"of something else", `{"schema_version": 3, "words": []}`, `unknown field "words"`},
		{"too large", strings.Repeat(" ", 8<<20) + "{}", "found more than 8388608 bytes"},
	} {
		must.Succeed(t, os.WriteFile(path, []byte(c.text), 0o644))
		err := ReadRecord(path, 3, &got)
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.want) ||
			!strings.HasPrefix(err.Error(), path) || !strings.HasSuffix(err.Error(), "; remove it, it is measured again") {
			t.Errorf("%s: got the error %v, want %q", c.what, err, c.want)
		}
	}
	must.Fail(t, WriteRecord(filepath.Join(path, "below.json"), content{}), "cannot store what was measured in "+path)
}

// A pipe, a link or a file that others can change is refused at once, and replaced by the next measurement.
func TestPlantedRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	for what, plant := range map[string]func() error{
		"found a named pipe":    func() error { return unix.Mkfifo(path, 0o600) },
		"found a symbolic link": func() error { return os.Symlink("/dev/zero", path) },
		"found that others can write": func() error {
			return errors.Join(os.WriteFile(path, []byte("{}"), 0o600),
				os.Chmod(path, 0o606))
		},
	} {
		must.Succeed(t, plant())
		var got content
		must.Fail(t, ReadRecord(path, 3, &got), ErrDamaged, what)
		must.Succeed(t, WriteRecord(path, content{3, []int{1}}))
		must.Succeed(t, ReadRecord(path, 3, &got), what, "after it was measured again")
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: the file has the mode %v, want only the user's", what, info.Mode())
		}
		must.Succeed(t, os.Remove(path))
	}
}
