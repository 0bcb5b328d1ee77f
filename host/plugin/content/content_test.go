package content

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/internal/must"
)

// plugin makes a folder with two files.
func plugin(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"plugin.yaml": "a", "data/table": "b", RecordName: "anything"} {
		path := filepath.Join(folder, name)
		must.Succeed(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)))
	}
	return folder
}

func TestRead(t *testing.T) {
	const a, b = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
		"3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"
	folder := plugin(t)
	before, err := Read(folder, nil)
	if err != nil || len(before) != 2 || before["plugin.yaml"] != (File{SHA256: a}) ||
		before["data/table"] != (File{SHA256: b}) {
		t.Fatalf("%v, %v", before, err)
	}
	known, err := Read(folder, map[string]string{"plugin.yaml": "as read", "data/table": ""})
	if err != nil || known["plugin.yaml"].SHA256 != "as read" || known["data/table"].SHA256 != "" {
		t.Errorf("known hashes: %v, %v", known, err)
	}
	do := func(err error) {
		t.Helper()
		must.Succeed(t, err)
	}
	path := func(name string) string { return filepath.Join(folder, name) }
	digests := map[string]bool{before.Digest(): true}
	for _, step := range []struct {
		change    func() error
		name, how string
	}{
		{func() error { return nil }, "", ""},
		{func() error { return os.WriteFile(path("plugin.yaml"), []byte("b"), 0o644) }, "plugin.yaml",
			"found sha256 3e23e8160039..., needed ca978112ca1b..."},
		{func() error { return os.Remove(path("plugin.yaml")) }, "plugin.yaml", "found that the file is gone"},
		{func() error { return os.WriteFile(path("plugin.yaml"), []byte("a"), 0o755) }, "plugin.yaml",
			"found other permissions to execute the file"},
		{func() error {
			return errors.Join(os.Chmod(path("plugin.yaml"), 0o644), os.WriteFile(path("data/x"), nil, 0o644))
		}, "data/x", "found a file that was not there"},
	} {
		do(step.change())
		files, err := Read(folder, nil)
		do(err)
		if name, how := files.Difference(before); name != step.name || how != step.how {
			t.Errorf("%q, %q; want %q, %q", name, how, step.name, step.how)
		}
		if step.name != "" && digests[files.Digest()] {
			t.Errorf("%s: the digest is that of another content", step.how)
		}
		digests[files.Digest()] = true
	}
	// A link is what it points at, and must not point outside.
	do(os.Symlink("data/table", path("link")))
	files, err := Read(folder, nil)
	must.Succeed(t, err, files["link"])
	must.Equal(t, files["link"].SHA256, b, files["link"])
	for name, bad := range map[string]struct {
		make func(string) error
		want string
	}{
		"outside": {func(p string) error { return os.Symlink("/etc/passwd", p) }, "cannot read: path escapes from parent"},
		"folder": {func(p string) error { return os.Symlink("data", p) },
			"found a link to a folder, needed plain files and folders, at most 4096; remove it from the plugin's folder"},
		"pipe": {func(p string) error { return syscall.Mkfifo(p, 0o600) },
			"found a named pipe, needed plain files and folders, at most 4096; remove it from the plugin's folder"},
	} {
		do(bad.make(path(name)))
		if _, err := Read(folder, nil); err == nil || !strings.HasPrefix(err.Error(), path(name)+": "+bad.want) {
			t.Errorf("%s: %v, want %s", name, err, bad.want)
		}
		do(os.Remove(path(name)))
	}
}

// TestGuard holds that nothing is taken from a folder that others can change.
func TestGuard(t *testing.T) {
	open := func(t *testing.T) (folder, above string) {
		folder = plugin(t)
		above = filepath.Dir(folder) // of t.TempDir, which lets nobody in
		must.Succeed(t, errors.Join(os.Chmod(above, 0o755), os.Chmod(folder, 0o755)))
		return folder, above
	}
	folder, above := open(t)
	must.Value(Read(folder, nil))(t, "as it should be")
	for _, c := range []struct {
		path string
		mode os.FileMode
		text string
	}{
		{above, 0o777, "777"}, {folder, 0o777, "777"}, {folder, 0o757, "757"}, {folder, 0o777 | os.ModeSticky, "777"},
		{folder + "/data", 0o777, "777"}, {folder + "/data/table", 0o666, "666"}, {folder + "/plugin.yaml", 0o646, "646"},
	} {
		info, err := os.Stat(c.path)
		if err == nil {
			err = os.Chmod(c.path, c.mode)
		}
		must.Succeed(t, err)
		_, err = Read(folder, nil)
		want := c.path + ": found that others can write to it (mode " + c.text +
			"), needed a place for verified plugins that only its owner can change; run: chmod go-w " + c.path
		must.FailExactly(t, err, want, refusal.ErrVerification)
		must.Succeed(t, os.Chmod(c.path, info.Mode()))
	}
	// Nobody else can reach what lies below a folder that lets only its owner in.
	must.Succeed(t, errors.Join(os.Chmod(folder, 0o777), os.Chmod(above, 0o700)))
	must.Value(Read(folder, nil))(t, "in a private folder")
	must.Succeed(t, errors.Join(os.Chmod(folder, 0o755), os.Chmod(above, 0o755)))
	// A link to a folder is that folder.
	link := filepath.Join(t.TempDir(), "link")
	must.Succeed(t, os.Symlink(folder, link))
	must.Succeed(t, Guarded(link), "through a link")
	g := &guard{user: 4242}
	info := must.Value(os.Lstat(folder))(t)
	must.Equal(t, (g.check(folder, info) == nil), (os.Getuid() == 0))
	if os.Getuid() != 0 {
		return
	}
	must.Succeed(t, os.Chown(folder+"/plugin.yaml", 4242, -1))
	want := folder + "/plugin.yaml: found that it belongs to the user 4242, needed a place for verified plugins that " +
		"belongs to this user (0) or to root; run: chown 0 " + folder + "/plugin.yaml"
	must.FailExactly(t, must.Error(Read(folder, nil)), want)
}

// belonging is a file of a user.
type belonging struct {
	os.FileInfo
	to uint32
}

func (b belonging) Sys() any { return &syscall.Stat_t{Uid: b.to} }

// TestNamespaceWithoutRoot: in a sandbox whose user namespace does not know root, root's folders seem to be those of
// the same user as every stranger's. As with ssh, which looks no further up than there, they are taken above the home
// folder alone.
func TestNamespaceWithoutRoot(t *testing.T) {
	info := must.Value(os.Stat(t.TempDir()))(t)
	const nobody = 65534
	sandbox := &guard{user: 1000, hidden: nobody, home: "/home/me"}
	for _, c := range []struct {
		guard *guard
		path  string
		owner uint32
		taken bool
	}{
		{sandbox, "/", nobody, true},
		{sandbox, "/home", nobody, true},
		{sandbox, "/home/me", nobody, false},
		{sandbox, "/home/me/plugins", nobody, false},
		{sandbox, "/hom", nobody, false},
		{sandbox, "/usr", nobody, false},
		{sandbox, "/home", 1001, false},
		{sandbox, "/home/me/plugins", 1000, true},
		{&guard{user: 1000, hidden: nobody}, "/", nobody, false}, // no home
		{&guard{user: 1000, hidden: -1, home: "/home/me"}, "/home", nobody, false},
	} {
		err := c.guard.owned(c.path, belonging{info, c.owner})
		must.Equal(t, err == nil, c.taken, c.path, c.owner, c.guard.home)
		if err != nil && int64(c.owner) == c.guard.hidden &&
			!strings.Contains(err.Error(), "whom this user namespace does not know (65534)") {
			t.Errorf("%s: %v", c.path, err)
		}
	}
	for users, want := range map[string]bool{
		"         0          0 4294967295\n": true,
		"0 0 1\n1 100000 65535\n":            true,
		"1000 1000 1\n":                      false, // bubblewrap
		"0 1000 1\n1 100000 65536\n":         false, // a container without root: its root is an ordinary user
		"":                                   false,
	} {
		must.Equal(t, knowsRoot(users), want, users, !want)
	}
}

// A group that only its owner is in is no other; any other group is.
func TestGroups(t *testing.T) {
	if os.Getuid() != 0 {
		if ownGroup(uint32(os.Getuid()), 4242) {
			t.Error("an unknown group is the user's own")
		}
		return
	}
	folder := filepath.Dir(plugin(t))
	must.Succeed(t, os.Chmod(folder, 0o775))
	own := ownGroup(0, 0) // root's, which nobody else is in on an ordinary system
	must.Equal(t, (Guarded(folder) == nil), own)
	must.Succeed(t, os.Chown(folder, -1, 4242))
	must.Fail(t, Guarded(folder), "others can write to it (mode 775)")
}
