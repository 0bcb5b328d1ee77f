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

// TestEqual: what differs is said, with the context before it, and an empty slice is as good as none.
func TestEqual(t *testing.T) {
	for _, c := range []struct {
		check func(testing.TB)
		says  string
	}{
		{func(t testing.TB) { Equal(t, 7, 7) }, ""},
		{func(t testing.TB) { Equal(t, []string{}, nil); Empty(t, []int(nil)) }, ""},
		{func(t testing.TB) { Equal(t, 7, 8, "row", 3) }, "row 3: found 7, needed 8"},
		{func(t testing.TB) { Equal(t, "a", "b") }, `found "a", needed "b"`},
		{func(t testing.TB) { Equal(t, []string{"a b"}, nil) }, `found ["a b"], needed []`},
		{func(t testing.TB) { Empty(t, []int{7}, "left") }, "left: found [7], needed []"},
	} {
		r := &recorder{TB: t}
		c.check(r)
		if r.says != c.says {
			t.Errorf("found %q, needed %q", r.says, c.says)
		}
	}
}

// recorder is a test that records what it is told.
type recorder struct {
	testing.TB
	says string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) { r.says += fmt.Sprintf(format, args...) }
