package must

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

// TestFail: what an error lacks is said, and what it has is not.
func TestFail(t *testing.T) {
	err := fmt.Errorf("a.txt: %w", fs.ErrNotExist)
	for _, c := range []struct {
		err   error
		parts []any
		says  string
	}{
		{err, []any{"a.txt", "not exist", fs.ErrNotExist}, ""},
		{nil, []any{nil}, ""},
		{nil, []any{"a.txt"}, "found error\n<nil>\nneeded one that says\na.txt"},
		{nil, []any{fs.ErrNotExist}, "found error\n<nil>\nneeded one that is\nfile does not exist"},
		{err, []any{"a.txt", "b.txt"}, "found error\n" + err.Error() + "\nneeded one that says\nb.txt"},
		{errors.New("a"), []any{"a", fs.ErrExist}, "found error\na\nneeded one that is\nfile already exists"},
		{err, []any{nil}, "found error\n" + err.Error() + "\nneeded none"},
		{err, []any{7}, "a test asks for a int in an error, needed a string or an error"},
	} {
		if says := lacks(c.err, c.parts); says != c.says {
			t.Errorf("%v and %v: %q, want %q", c.err, c.parts, says, c.says)
		}
	}
}
