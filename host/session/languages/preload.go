package languages

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// LibraryName is the library's file name.
const LibraryName = "libgraft.so"

// Environment variables that the library reads.
const (
	envPreload  = "LD_PRELOAD"
	envLibrary  = "GRAFT_LIBRARY"
	envBinary   = "GRAFT_BINARY"
	envOptions  = "GRAFT_OPTIONS"
	envDeadline = "GRAFT_GRAPH_DEADLINE"
	envVerbose  = "GRAFT_VERBOSE"
)

// Settings say what a program's sessions are patched with.
type Settings struct {
	Library string // path of libgraft.so
	Binary  string // path of the command graft
	// Options are those of graft graph, each with its value behind an equals sign.
	Options []string
	// Deadline is how long graft graph may take for a model; 0 leaves what the environment says.
	Deadline time.Duration
	// Verbose has a line printed for each session.
	Verbose bool
}

// Library finds libgraft.so for the command at a path: named by GRAFT_LIBRARY, beside the command, or in ../lib/graft
// or ../lib from there.
func Library(binary string) (string, error) {
	if named := os.Getenv(envLibrary); named != "" {
		path, err := filepath.Abs(named)
		if err == nil {
			err = regular(path)
		}
		if err != nil {
			return "", &diagnostic.Error{Path: named, Found: "cannot be used: " + diagnostic.Cause(err), Needed: LibraryName,
				Fix: "set " + envLibrary + " to its path, or unset it", Cause: err}
		}
		return path, nil
	}
	folder := filepath.Dir(binary)
	places := []string{filepath.Join(folder, LibraryName), filepath.Join(folder, "..", "lib", "graft", LibraryName),
		filepath.Join(folder, "..", "lib", LibraryName)}
	for _, path := range places {
		if regular(path) == nil {
			return path, nil
		}
	}
	return "", &diagnostic.Error{Found: fmt.Sprintf("found no %s at %s", LibraryName, strings.Join(places, ", ")),
		Fix: "install graft from a release, or build it (make plugins) and set " + envLibrary + " to its path"}
}

func regular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("no regular file")
	}
	return err
}

// Program finds a program as a shell does, and refuses one into which nothing can be preloaded.
func Program(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", &diagnostic.Error{Path: name, Found: "cannot be run: " + missing(err), Needed: "a program",
			Fix: "check its name, or give its path", Cause: err}
	}
	return path, check(path, name, 0)
}

func missing(err error) string {
	if errors.Is(err, exec.ErrNotFound) {
		return "found in no folder of PATH"
	}
	var e *exec.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	return diagnostic.Cause(err)
}

// deepest is how many interpreters of interpreters a script may have, as on Linux.
const deepest = 4

// check refuses a program, or the interpreter of a script, that the dynamic linker loads nothing into. name is what
// the user called it.
func check(path, name string, depth int) error {
	refuse := func(found, needed string) error {
		e := &diagnostic.Error{Path: name, Found: found, Needed: needed,
			Fix: "see docs/languages.md for what else reaches it"}
		if depth > 0 {
			e.Found = "its interpreter " + path + " " + found
		} else {
			e.Found = "the program " + found
		}
		return e
	}
	f, err := os.Open(path)
	if err != nil {
		return nil // it may be run without being read
	}
	defer f.Close()
	if privileged(path, f) {
		return refuse("runs with other rights than its caller's (setuid, setgid or file capabilities), so that nothing is "+
			"preloaded into it", "one without")
	}
	magic := make([]byte, 4)
	if _, err := io.ReadFull(f, magic); err != nil {
		return nil
	}
	switch {
	case string(magic[:2]) == "#!":
		if depth == deepest {
			return nil
		}
		next := interpreter(f)
		if next == "" {
			return nil
		}
		return check(next, name, depth+1)
	case string(magic) == elf.ELFMAG:
	default:
		return nil
	}
	e, err := elf.NewFile(f)
	if err != nil {
		return nil // running it says what is wrong
	}
	if machine := machines[runtime.GOARCH]; machine != e.Machine {
		return refuse(fmt.Sprintf("is for %s", strings.TrimPrefix(e.Machine.String(), "EM_")),
			"one for this machine's "+runtime.GOARCH)
	}
	linker := ""
	for _, p := range e.Progs {
		if p.Type == elf.PT_INTERP {
			text, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
			if err == nil {
				linker = strings.TrimRight(string(text), "\x00")
			}
		}
	}
	switch {
	case linker == "":
		return refuse("is linked statically, so that nothing is preloaded into it", "one that is linked dynamically")
	case strings.Contains(filepath.Base(linker), "musl"):
		return refuse("is linked with musl", "one that is linked with glibc, as "+LibraryName+" is")
	}
	return nil
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// interpreter is the program that runs a script; of env(1), the one that it is told to look for. "" where that is not
// plain.
func interpreter(f io.ReadSeeker) string {
	if _, err := f.Seek(2, io.SeekStart); err != nil {
		return ""
	}
	line, _ := bufio.NewReader(io.LimitReader(f, 4096)).ReadString('\n')
	words := strings.Fields(line)
	if len(words) == 0 {
		return ""
	}
	if filepath.Base(words[0]) == "env" {
		words = slices.DeleteFunc(words[1:],
			func(w string) bool { return strings.HasPrefix(w, "-") || strings.Contains(w, "=") })
		if len(words) == 0 {
			return ""
		}
		path, err := exec.LookPath(words[0])
		if err != nil {
			return ""
		}
		return path
	}
	return words[0]
}

// Environment is environ with what preloads the library and sets it.
func (s *Settings) Environment(environ []string) ([]string, error) {
	if strings.ContainsAny(s.Library, " :") {
		return nil, &diagnostic.Error{Path: s.Library,
			Found:  "found a space or a colon in the path, at which " + envPreload + " ends a name",
			Needed: "a path without", Fix: "set " + envLibrary + " to a link to it"}
	}
	for _, o := range s.Options {
		if strings.ContainsAny(o, "\n\r") {
			return nil, &diagnostic.Error{Found: fmt.Sprintf("found a line's end in %q", o), Needed: "options of one line each",
				Fix: "give the file or folder another name"}
		}
	}
	set := map[string]string{envBinary: s.Binary, envOptions: strings.Join(s.Options, "\n"), envPreload: s.Library}
	if s.Deadline > 0 {
		set[envDeadline] = strconv.FormatFloat(s.Deadline.Seconds(), 'f', -1, 64)
	}
	if s.Verbose {
		set[envVerbose] = "1"
	}
	var list []string
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if name == envPreload {
			others := strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == ':' })
			others = slices.DeleteFunc(others, func(o string) bool { return o == s.Library })
			set[envPreload] = strings.Join(append(others, s.Library), ":")
		}
		if _, ours := set[name]; !ours {
			list = append(list, pair)
		}
	}
	for _, name := range []string{envPreload, envBinary, envOptions, envDeadline, envVerbose} {
		if value, ok := set[name]; ok {
			list = append(list, name+"="+value)
		}
	}
	return list, nil
}
