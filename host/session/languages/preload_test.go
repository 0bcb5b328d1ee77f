package languages

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/internal/must"
)

// program writes a program for 64 bits of a machine, of headers alone, that a dynamic linker of some name loads; ""
// for none.
func program(t *testing.T, machine elf.Machine, linker string) string {
	t.Helper()
	header := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(machine), Version: 1, Phoff: 64, Ehsize: 64,
		Phentsize: 56}
	copy(header.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	path := filepath.Join(t.TempDir(), "program")
	f := must.Value(os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755))(t)
	defer f.Close()
	text := linker + "\x00"
	var list []elf.Prog64
	if linker != "" {
		list = append(list, elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 120, Filesz: uint64(len(text)),
			Memsz: uint64(len(text))})
	}
	header.Phnum = uint16(len(list))
	for _, part := range []any{header, list, []byte(text)} {
		must.Succeed(t, binary.Write(f, binary.LittleEndian, part))
	}
	return path
}

func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o755))
	return path
}

func TestProgram(t *testing.T) {
	const linker = "/lib64/ld-linux-x86-64.so.2"
	mine := machines[runtime.GOARCH]
	other := elf.EM_AARCH64
	if mine == other {
		other = elf.EM_X86_64
	}
	good, static := program(t, mine, linker), program(t, mine, "")
	setuid := program(t, mine, linker)
	if err := os.Chown(setuid, 1, 1); err != nil {
		t.Skipf("needs root: %v", err)
	}
	must.Succeed(t, os.Chmod(setuid, 0o755|os.ModeSetuid))
	plain := filepath.Join(t.TempDir(), "plain")
	must.Succeed(t, os.WriteFile(plain, nil, 0o644))
	t.Setenv("PATH", filepath.Dir(static)+":"+os.Getenv("PATH"))
	for path, want := range map[string]string{
		good:                             "",
		script(t, "#!"+good+"\n"):        "",
		script(t, "#!/nowhere/at/all\n"): "", // running it says so
		script(t, "echo\n"):              "",
		script(t, ""):                    "",
		script(t, elf.ELFMAG):            "",
		static:                           "the program is linked statically, so that nothing is preloaded into it",
		filepath.Base(static):            "the program is linked statically",
		script(t, "#!"+static+" -x\n"):   "its interpreter " + static + " is linked statically",
		script(t, "#! /usr/bin/env -S A=1 program\n"): "its interpreter " + static + " is linked statically",
		script(t, "#!"+script(t, "#!"+static)+"\n"):   "its interpreter " + static + " is linked statically",
		program(t, mine, "/lib/ld-musl-x86_64.so.1"):  "the program is linked with musl",
		program(t, other, linker):                     "the program is for ",
		setuid:                                        "the program runs with other rights than its caller's",
		plain:                                         "cannot be run: permission denied",
		"no-such-program-anywhere":                    "cannot be run: found in no folder of PATH",
		"/no/such/program":                            "cannot be run: no such file or directory",
	} {
		found, err := Program(path)
		if want == "" {
			must.Succeed(t, err)
			must.Equal(t, found, path)
			continue
		}
		var e *diagnostic.Error
		if !errors.As(err, &e) || e.Path != path || !strings.HasPrefix(e.Found, want) || e.Needed == "" || e.Fix == "" {
			t.Errorf("%s: found %v, needed %q", path, err, want)
		}
	}
}

func TestLibrary(t *testing.T) {
	t.Setenv(envLibrary, "")
	root := t.TempDir()
	binary := filepath.Join(root, "bin", "graft")
	must.Fail(t, must.Error(Library(binary)), "found no libgraft.so at "+filepath.Join(root, "bin", LibraryName)+", ")
	last, far, near := filepath.Join(root, "lib", LibraryName), filepath.Join(root, "lib", "graft", LibraryName),
		filepath.Join(root, "bin", LibraryName)
	for _, path := range []string{last, far, near} { // the nearer one goes first
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Succeed(t, os.WriteFile(path, nil, 0o644))
		must.Equal(t, must.Value(Library(binary))(t), path)
	}
	t.Setenv(envLibrary, far)
	must.Equal(t, must.Value(Library(binary))(t), far)
	for _, bad := range []string{root, filepath.Join(root, "none")} {
		t.Setenv(envLibrary, bad)
		must.Fail(t, must.Error(Library(binary)), bad+": cannot be used")
	}
}

func TestEnvironment(t *testing.T) {
	s := Settings{Library: "/l/libgraft.so", Binary: "/b/graft", Options: []string{"--padding=keep", "--plugins=a,b"}}
	for _, c := range []struct{ before, want []string }{
		{[]string{"A=1"}, []string{"A=1", "LD_PRELOAD=/l/libgraft.so"}},
		{[]string{"LD_PRELOAD=x.so y.so", "GRAFT_OPTIONS=old", "GRAFT_BINARY=old"},
			[]string{"LD_PRELOAD=x.so:y.so:/l/libgraft.so"}},
		{[]string{"LD_PRELOAD=/l/libgraft.so:x.so"}, []string{"LD_PRELOAD=x.so:/l/libgraft.so"}},
		{[]string{"GRAFT_GRAPH_DEADLINE=9", "GRAFT_VERBOSE=1"},
			[]string{"GRAFT_GRAPH_DEADLINE=9", "GRAFT_VERBOSE=1", "LD_PRELOAD=/l/libgraft.so"}},
	} {
		got := must.Value(s.Environment(c.before))(t)
		must.Equal(t, cmp.Diff(append(c.want, "GRAFT_BINARY=/b/graft", "GRAFT_OPTIONS=--padding=keep\n--plugins=a,b"),
			got), "")
	}
	s.Deadline, s.Verbose = 1500*time.Millisecond, true
	got, err := s.Environment([]string{"GRAFT_GRAPH_DEADLINE=9"})
	if err != nil || !slices.Contains(got, "GRAFT_GRAPH_DEADLINE=1.5") || slices.Contains(got, "GRAFT_GRAPH_DEADLINE=9") ||
		!slices.Contains(got, "GRAFT_VERBOSE=1") {
		t.Errorf("found %q, %v", got, err)
	}
	for _, bad := range []Settings{{Library: "/a b/libgraft.so"}, {Library: "/a:b/libgraft.so"},
		{Library: "/l", Options: []string{"--plugins-dir=a\nb"}}} {
		if got, err := bad.Environment(nil); err == nil {
			t.Errorf("%+v: found %q", bad, got)
		}
	}
}
