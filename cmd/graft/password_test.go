//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/internal/must"
)

// onTerminal runs the command on a terminal of its own, gives it an answer to each question, and what the terminal
// showed.
func onTerminal(t *testing.T, folder string, answers []string, args ...string) (code int, shown, talk string) {
	t.Helper()
	master := must.Value(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0))(t)
	defer master.Close()
	must.Succeed(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number := must.Value(unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN))(t)
	slave := must.Value(os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0))(t)
	var stderr bytes.Buffer
	c := exec.CommandContext(t.Context(), os.Args[0], args...)
	c.Dir, c.Stdin, c.Stderr = folder, slave, &stderr
	c.Env = append(os.Environ(), asCommand+"=1", "XDG_DATA_HOME="+filepath.Join(folder, "data"), passwordVariable+"=")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must.Succeed(t, c.Start())
	var all strings.Builder
	done := make(chan struct{})
	go func() { // a terminal answers when it is asked
		defer close(done)
		b := make([]byte, 4096)
		asked := 0
		for {
			n, err := master.Read(b)
			all.Write(b[:n])
			if now := strings.Count(all.String(), ": "); now > asked && asked < len(answers) {
				time.Sleep(50 * time.Millisecond) // until nothing is shown of it
				_, _ = master.WriteString(answers[asked] + "\n")
				asked++
			}
			if err != nil {
				return // the last process has gone
			}
		}
	}()
	_ = c.Wait()
	if state, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS); err != nil || state.Lflag&unix.ECHO == 0 {
		t.Errorf("%q: the terminal shows nothing of what is typed afterwards (%v)", args, err)
	}
	slave.Close()
	<-done
	return c.ProcessState.ExitCode(), all.String(), stderr.String()
}

// A password is asked for on the terminal, twice where it is new, and is not shown.
func TestPasswordOnTerminal(t *testing.T) {
	folder := t.TempDir()
	for _, c := range []struct {
		answers []string
		want    string
	}{
		{[]string{"a secret", "another one"}, "graft: me.key: cannot read the password: found two different passwords\n"},
		{[]string{"", ""}, "graft: me.key: found an empty password, needed one with letters, or --no-password for a key " +
			"without\n"},
	} {
		code, shown, talk := onTerminal(t, folder, c.answers, "plugin", "keygen", "me.key")
		if code != exitError || talk != c.want || strings.Contains(shown, "secret") || strings.Contains(shown, "another") ||
			!strings.HasPrefix(shown, "password of me.key: ") {
			t.Errorf("%q: exit code %d, %q on the terminal, %q; want %q", c.answers, code, shown, talk, c.want)
		}
	}
	if code, _, talk := onTerminal(t, folder, []string{"\x03"}, "plugin", "keygen", "me.key"); code != exitInterrupted ||
		talk != "graft: interrupted; nothing was left half-written\n" {
		t.Errorf("interrupted: exit code %d, %q", code, talk)
	}
	if left, _ := filepath.Glob(filepath.Join(folder, "*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	if testing.Short() {
		return // a key is derived from a password for seconds
	}
	if code, _, talk := onTerminal(t, folder, []string{"a secret", "a secret"}, "plugin", "keygen",
		"me.key"); code != exitOK {
		t.Fatalf("exit code %d, %q", code, talk)
	}
	plugin := must.Value(filepath.Abs("../../build/plugins/fused-gelu"))(t)
	if code, _, talk := onTerminal(t, folder, nil, "plugin", "pack", plugin, "-o", "a.tar.gz"); code != exitOK {
		t.Fatalf("exit code %d, %q", code, talk)
	}
	for word, want := range map[string]int{"a secret": exitOK, "no secret": exitError} {
		code, shown, talk := onTerminal(t, folder, []string{word}, "plugin", "sign", "a.tar.gz", "--key", "me.key")
		if code != want || strings.Contains(shown, "secret") {
			t.Errorf("%q: exit code %d, %q on the terminal, %q", word, code, shown, talk)
		}
	}
}

// Without a terminal, and without another place to read it from, a password is not waited for.
func TestPasswordWithoutTerminal(t *testing.T) {
	folder := t.TempDir()
	c := exec.Command(os.Args[0], "plugin", "keygen", "me.key")
	c.Dir, c.SysProcAttr = folder, &syscall.SysProcAttr{Setsid: true}
	c.Env = append(os.Environ(), asCommand+"=1", passwordVariable+"=")
	out, _ := c.CombinedOutput()
	if want := "graft: me.key: found no terminal to ask for the key's password; use --password-file or " +
		"GRAFT_KEY_PASSWORD, or --no-password for a key without\n"; string(out) != want {
		t.Errorf("%q, want %q", out, want)
	}
}
