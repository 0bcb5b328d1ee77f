package shared

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/internal/must"
)

// memfd is a memory file with bytes, sealed or not.
func memfd(t *testing.T, name string, b []byte, seals int) int {
	fd := must.Value(memoryFile(name))(t)
	t.Cleanup(func() { unix.Close(fd) })
	must.Value(unix.Write(fd, b))(t)
	must.Value(unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals))(t)
	return fd
}

// TestAnnouncements: whatever is announced, a content has its own bytes, and nothing is waited for.
func TestAnnouncements(t *testing.T) {
	before, me := user, os.Getpid()
	t.Cleanup(func() { user = before })
	for i, c := range []struct {
		name string
		lead func(t *testing.T, w *wanted) announcement
		user int // beyond the one who runs
		made int
	}{
		{name: "the content", lead: func(t *testing.T, w *wanted) announcement {
			return announcement{me, memfd(t, w.key.fileName(), w.bytes(), forEver)}
		}},
		{name: "other bytes", made: 1, lead: func(t *testing.T, w *wanted) announcement {
			b := w.bytes()
			b[len(b)-1]++
			return announcement{me, memfd(t, w.key.fileName(), b, forEver)}
		}},
		{name: "not sealed", made: 1, lead: func(t *testing.T, w *wanted) announcement {
			return announcement{me, memfd(t, w.key.fileName(), w.bytes(), 0)}
		}},
		{name: "not sealed against writing", made: 1, lead: func(t *testing.T, w *wanted) announcement {
			return announcement{me, memfd(t, w.key.fileName(), w.bytes(), unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)}
		}},
		{name: "not sealed against cutting", made: 1, lead: func(t *testing.T, w *wanted) announcement {
			return announcement{me, memfd(t, w.key.fileName(), w.bytes(), unix.F_SEAL_WRITE|unix.F_SEAL_GROW)}
		}},
		{name: "sealed against future writing", made: 1, lead: func(t *testing.T, w *wanted) announcement {
			return announcement{me, memfd(t, w.key.fileName(), w.bytes(),
				unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)}
		}},
		{name: "cut short", made: 1, lead: func(t *testing.T, w *wanted) announcement {
			return announcement{me, memfd(t, w.key.fileName(), w.bytes()[:size-1], forEver)}
		}},
		{name: "longer", made: 1, lead: func(t *testing.T, w *wanted) announcement {
			return announcement{me, memfd(t, w.key.fileName(), append(w.bytes(), 0), forEver)}
		}},
		{name: "of another name", made: 1, lead: func(t *testing.T, w *wanted) announcement {
			return announcement{me, memfd(t, "other", w.bytes(), forEver)}
		}},
		{name: "a pipe", made: 1, lead: func(t *testing.T, w *wanted) announcement {
			r, p, err := os.Pipe()
			must.Succeed(t, err)
			t.Cleanup(func() { r.Close(); p.Close() })
			return announcement{me, int(r.Fd())}
		}},
		{name: "an ordinary file", made: 1, lead: func(t *testing.T, w *wanted) announcement {
			f := must.Value(os.Create(t.TempDir() + "/memfd:" + w.key.fileName() + " (deleted)"))(t)
			t.Cleanup(func() { f.Close() })
			return announcement{me, int(f.Fd())}
		}},
		{name: "no descriptor", made: 1, lead: func(*testing.T, *wanted) announcement { return announcement{me, 1 << 20} }},
		{name: "another process's number", made: 1, lead: func(t *testing.T, w *wanted) announcement {
			return announcement{1, memfd(t, w.key.fileName(), w.bytes(), forEver)}
		}},
		{name: "no process", made: 1, lead: func(*testing.T, *wanted) announcement { return announcement{1<<31 - 1, 0} }},
		{name: "another user's", made: 1, user: 1, lead: func(t *testing.T, w *wanted) announcement {
			return announcement{me, memfd(t, w.key.fileName(), w.bytes(), forEver)}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			user = func() int { return before() + c.user }
			w := want(t, i)
			name := must.Value(bind(c.lead(t, w).name(w.key)))(t)
			defer unix.Close(name)
			r := must.Value(Open(w.content(Always)))(t)
			defer r.Close()
			if w.made != c.made || !bytes.Equal(r.Bytes(), w.bytes()) {
				t.Errorf("made %d times, want %d", w.made, c.made)
			}
		})
	}
}

// TestNames: names that are no announcements are passed over, and however many there are, few are looked at.
func TestNames(t *testing.T) {
	w := want(t, 0)
	for _, rest := range []string{"", "1", "/", "a/b", "-1/3", "1/-3", "0/0", "1/2/3", "99999999999999999999/1", "\n@x/1",
		"making/1"} {
		fd := must.Value(bind(keyName(w.key) + rest))(t)
		defer unix.Close(fd)
	}
	must.Empty(t, announced(w.key))
	for i := range 2 * maxHint {
		fd := must.Value(bind(announcement{1, i}.name(w.key)))(t)
		defer unix.Close(fd)
	}
	must.Equal(t, len(announced(w.key)), maxHint)
}

// TestNobodyHangs: a turn that is never given back, with a content that is never finished, ends the wait and no more.
func TestNobodyHangs(t *testing.T) {
	before, long := unseen, patience
	t.Cleanup(func() { unseen, patience = before, long })
	for _, begun := range []bool{false, true} {
		w := want(t, 0)
		turn := must.Value(bind(turnName(w.key)))(t)
		defer unix.Close(turn)
		if unseen, patience = time.Millisecond, time.Hour; begun {
			unseen, patience = time.Hour, time.Millisecond
			name := must.Value(bind(announcement{os.Getpid(), memfd(t, w.key.fileName(), w.bytes(), 0)}.name(w.key)))(t)
			defer unix.Close(name)
		}
		r, err := Open(w.content(Always))
		if err != nil || w.made != 1 {
			t.Fatalf("made %d times, %v", w.made, err)
		}
		r.Close()
		unix.Close(turn)
	}
}

// TestOwn: where memory is not to be shared, or cannot be, it is said why, and nothing is left.
func TestOwn(t *testing.T) {
	files := [2]string{overcommit, nodes}
	was := collapse
	t.Cleanup(func() { overcommit, nodes, collapse = files[0], files[1], was })
	write := func(text string) string {
		path := t.TempDir() + "/fact"
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	large, small := func([]byte) error { return nil }, func([]byte) error { return unix.EINVAL }
	const begin = "memory cannot be shared with other processes: "
	for i, c := range []struct {
		wish              Wish
		size              int64
		overcommit, nodes string
		collapse          func([]byte) error
		want              string // "" for shared
	}{
		{LargePages, size, "0\n", "0\n", large, ""},
		{LargePages, size, "0\n", "0\n", small, "memory files get small pages only: invalid argument"},
		{Always, size, "0\n", "0\n", small, ""},
		{LargePages, size, "1\n", "0-1\n", large, "memory is nearer to some processors than to others (nodes 0-1)"},
		{Always, size, "1\n", "0,2\n", large, ""},
		{Always, size, "2\n", "0\n", large, "the system does not overcommit memory"},
		{Never, size, "0\n", "0\n", large, "it is not to be"},
		{Always, Least - 1, "0\n", "0\n", large, "found 4194303 bytes, needed at least 4194304"},
	} {
		overcommit, nodes, collapse = write(c.overcommit), write(c.nodes), c.collapse
		w := want(t, i)
		content := w.content(c.wish)
		content.Size = c.size
		r, err := Open(content)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrOwn) || err.Error() != begin+c.want) {
			t.Errorf("%d: %v, want %s", i, err, c.want)
		}
		if err == nil {
			r.Close()
		}
		must.Empty(t, announced(w.key), i)
	}
}

// TestErrorsOfContents are returned as they are, and leave nothing.
func TestErrorsOfContents(t *testing.T) {
	bad := errors.New("bad")
	for i, spoil := range []func(*Content){
		func(c *Content) { c.Afford = func() error { return bad } },
		func(c *Content) { c.Make = func([]byte) error { return bad } },
		func(c *Content) {
			r := must.Value(Open(*c))(t)
			t.Cleanup(func() { r.Close() })
			c.Same = func([]byte) (bool, error) { return false, bad }
		},
	} {
		w := want(t, i)
		c := w.content(Always)
		spoil(&c)
		names, held := len(announced(w.key)), descriptors(t)
		if _, err := Open(c); err != bad {
			t.Errorf("%d: %v", i, err)
		}
		if len(announced(w.key)) != names || descriptors(t) != held {
			t.Errorf("%d: %d names, %d descriptors; before %d and %d", i, len(announced(w.key)), descriptors(t), names, held)
		}
	}
}

// TestAvailable leaves nothing, whatever it finds.
func TestAvailable(t *testing.T) {
	if err := Available(); err != nil && !errors.Is(err, ErrOwn) {
		t.Error(err)
	}
	must.Equal(t, len(announced(probe(Always).Key)), 0)
}
