package content

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// guard refuses what others than this user and root can change.
type guard struct {
	user   uint32
	closed bool   // nobody else gets in, as a folder above does not let them: nothing below can be reached
	hidden int64  // the user that root seems to be, and all whom this user namespace does not know; -1 where root is root
	home   string // of the user
}

// Guarded refuses a file or a folder that others can change: it, or a folder above it, up to the root. As ssh does
// with its keys, it takes only what this user or root owns and no one else can write to.
func Guarded(path string) error {
	_, err := newGuard(path)
	return err
}

// newGuard checks a path and the folders above it.
func newGuard(path string) (*guard, error) {
	g := &guard{user: uint32(os.Geteuid()), hidden: hiddenRoot()}
	if home, err := os.UserHomeDir(); err == nil && g.hidden >= 0 {
		g.home, _ = filepath.EvalSymlinks(home)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	for at := "/"; ; {
		info, err := os.Lstat(at)
		if err != nil {
			return nil, unreadable(at, err)
		}
		// In a folder such as /tmp others can add what they like, and touch nothing of this user's.
		if at == real || info.Mode()&fs.ModeSticky == 0 {
			err = g.check(at, info)
		} else {
			err = g.owned(at, info)
		}
		if err != nil {
			return nil, err
		}
		if info.IsDir() && info.Mode()&0o011 == 0 {
			g.closed = true
		}
		rest, _ := strings.CutPrefix(strings.TrimPrefix(real, at), "/")
		if rest == "" {
			return g, nil
		}
		next, _, _ := strings.Cut(rest, "/")
		at = filepath.Join(at, next)
	}
}

// check refuses what others own or can write to.
func (g *guard) check(path string, info fs.FileInfo) error {
	if err := g.owned(path, info); err != nil || g.closed {
		return err
	}
	stat := info.Sys().(*syscall.Stat_t)
	others := info.Mode()&0o022 != 0
	if info.Mode()&0o022 == 0o020 {
		others = !ownGroup(stat.Uid, stat.Gid)
	}
	if !others {
		return nil
	}
	return &diagnostic.Error{Kind: refusal.ErrVerification, Path: path,
		Found:  fmt.Sprintf("found that others can write to it (mode %03o)", info.Mode().Perm()),
		Needed: "a place for verified plugins that only its owner can change",
		Fix:    "run: chmod go-w " + diagnostic.Quote(path)}
}

// owned refuses what belongs to others.
func (g *guard) owned(path string, info fs.FileInfo) error {
	owner := info.Sys().(*syscall.Stat_t).Uid
	if owner == 0 || owner == g.user || g.closed {
		return nil
	}
	if int64(owner) == g.hidden {
		// ssh looks no further up than the home folder. What lies above it cannot be told from root's here.
		if above, found := strings.CutPrefix(g.home, strings.TrimSuffix(path, "/")+"/"); found && above != "" {
			return nil
		}
		return &diagnostic.Error{Kind: refusal.ErrVerification, Path: path,
			Found:  fmt.Sprintf("found that it belongs to a user whom this user namespace does not know (%d)", owner),
			Needed: "a place for verified plugins that belongs to this user or to root",
			Fix:    "put the plugins below the home folder, or let the sandbox know root"}
	}
	return &diagnostic.Error{Kind: refusal.ErrVerification, Path: path,
		Found:  fmt.Sprintf("found that it belongs to the user %d", owner),
		Needed: fmt.Sprintf("a place for verified plugins that belongs to this user (%d) or to root", g.user),
		Fix:    fmt.Sprintf("run: chown %d %s", g.user, diagnostic.Quote(path))}
}

// hiddenRoot is the user that root's files seem to belong to in a user namespace without root, as sandboxes make;
// else -1.
func hiddenRoot() int64 {
	users, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || knowsRoot(string(users)) {
		return -1
	}
	number, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		return -1
	}
	id, err := strconv.ParseUint(strings.TrimSpace(string(number)), 10, 32)
	if err != nil {
		return -1
	}
	return int64(id)
}

// knowsRoot reports whether a namespace has a user for root outside of it. A line of uid_map is the first user
// inside, the first outside, and how many follow.
func knowsRoot(users string) bool {
	for line := range strings.Lines(users) {
		if f := strings.Fields(line); len(f) == 3 && f[1] == "0" {
			return true
		}
	}
	return false
}

// ownGroup reports whether a group is its owner's alone: of the same name, with no other member. Systems that make
// such a group for each user make folders that it can write to.
func ownGroup(owner, group uint32) bool {
	u, err := user.LookupId(strconv.FormatUint(uint64(owner), 10))
	if err != nil || u.Gid != strconv.FormatUint(uint64(group), 10) {
		return false
	}
	const limit = 1 << 20
	groups, err := storage.ReadRegular("/etc/group", limit)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(groups)) {
		parts := strings.Split(strings.TrimSuffix(line, "\n"), ":") // name, password, number, members
		if len(parts) == 4 && parts[2] == u.Gid {
			return parts[0] == u.Username && (parts[3] == "" || parts[3] == u.Username)
		}
	}
	return false
}
