package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/internal/must"
)

// terminal is a pseudo-terminal with the screen that its output makes.
type terminal struct {
	t    *testing.T
	ctrl *os.File
	tty  *os.File

	mu  sync.Mutex
	raw strings.Builder
}

func openTerminal(t *testing.T) *terminal {
	t.Helper()
	ctrl := must.Value(os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	n, err := unix.IoctlGetInt(int(ctrl.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(ctrl.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(ctrl.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 100})
	}
	must.Succeed(t, err)
	tty := must.Value(os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	x := &terminal{t: t, ctrl: ctrl, tty: tty}
	t.Cleanup(func() { tty.Close(); ctrl.Close() })
	go func() {
		buffer := make([]byte, 1<<12)
		for {
			n, err := ctrl.Read(buffer)
			x.mu.Lock()
			x.raw.Write(buffer[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return x
}

// start runs a command of which all that is nil is the terminal.
func (x *terminal) start(cmd *exec.Cmd) {
	x.t.Helper()
	if cmd.Stdin == nil {
		cmd.Stdin = x.tty
	}
	cmd.Stdout, cmd.Stderr = x.tty, x.tty
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1}
	if err := cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { cmd.Process.Kill() })
}

// typed waits until the terminal has shown a text at least n times, then types.
func (x *terminal) typed(text string, after string, n int) {
	x.t.Helper()
	x.await(after, n)
	if _, err := x.ctrl.WriteString(text); err != nil {
		x.t.Fatal(err)
	}
}

func (x *terminal) await(text string, n int) {
	x.t.Helper()
	for range 6000 {
		if strings.Count(x.shown(), text) >= n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	x.t.Fatalf("%q was not shown %d times: %q", text, n, x.shown())
}

func (x *terminal) shown() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.raw.String()
}

var control = regexp.MustCompile(`^\x1b\[([0-9;?]*)([A-Za-z])`)

// screen is what a person sees: the lines that what was written leaves.
func (x *terminal) screen() string {
	lines := [][]rune{nil}
	row, column := 0, 0
	for text := x.shown(); text != ""; {
		if m := control.FindStringSubmatch(text); m != nil {
			n, _ := strconv.Atoi(m[1])
			switch m[2] {
			case "A":
				row = max(0, row-max(1, n))
			case "K":
				lines[row] = lines[row][:min(column, len(lines[row]))]
			case "J":
				lines = lines[:row+1]
				lines[row] = lines[row][:min(column, len(lines[row]))]
			case "h", "l":
			default:
				x.t.Fatalf("the terminal is sent %q", m[0])
			}
			text = text[len(m[0]):]
			continue
		}
		var r rune
		for _, r = range text {
			break
		}
		text = text[len(string(r)):]
		switch r {
		case '\r':
			column = 0
		case '\n':
			if row++; row == len(lines) {
				lines = append(lines, nil)
			}
		default:
			for len(lines[row]) <= column {
				lines[row] = append(lines[row], ' ')
			}
			lines[row][column] = r
			column++
		}
	}
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintln(&b, string(line))
	}
	return b.String()
}

// slower is how long inputs are apart where they come slowly: the progress is drawn in between.
const slower = 500 * time.Millisecond

// TestTypedLines types lines at a terminal, and sees every result.
func TestTypedLines(t *testing.T) {
	x := openTerminal(t)
	cmd := exec.Command(os.Args[0], "generate", "../../models/g2p")
	x.start(cmd)
	words := []struct{ text, sound string }{{"hello", "HH EH1 L OW0"}, {"world", "W ER1 L D"}, {"graft", "G R AE1 F T"}}
	before := ""
	for _, w := range words {
		time.Sleep(slower)
		x.typed(w.text+"\n", before, 1)
		before = w.sound
		x.await(w.sound, 1)
	}
	time.Sleep(slower)
	x.typed("\x04", before, 1)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, x.shown())
	}
	for _, w := range words {
		if !strings.Contains(x.screen(), w.sound+"\n") {
			t.Errorf("%s is not on the screen:\n%s", w.sound, x.screen())
		}
	}
	if strings.Contains(x.shown(), "generating") {
		t.Errorf("progress is drawn where somebody types:\n%s", x.screen())
	}
}

// TestSlowPipe: results that reach the terminal through another program stay, and so do messages.
func TestSlowPipe(t *testing.T) {
	x := openTerminal(t)
	cmd := exec.Command("sh", "-c", fmt.Sprintf(`for w in hello world graft; do sleep %g; echo $w; done |
		"$0" generate ../../models/g2p | cat`, slower.Seconds()), os.Args[0])
	x.start(cmd)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, x.shown())
	}
	x.await("G R AE1 F T", 1)
	for _, sound := range []string{"HH EH1 L OW0", "W ER1 L D", "G R AE1 F T"} {
		if !strings.Contains(x.screen(), sound+"\n") {
			t.Errorf("%s is not on the screen:\n%s", sound, x.screen())
		}
	}
	must.Equal(t, regexp.MustCompile(`\x1b\[[0-9]*[AJ]`).FindString(x.shown()), "")
}
