package shared

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/internal/must"
)

// child is the variable that makes this test's executable another process: it opens the content of a key, says what
// came of it, and has it until its input ends.
const child = "GRAFT_TEST_SHARED"

func TestMain(m *testing.M) {
	unseen, patience = time.Hour, time.Hour // nothing here depends on time
	if key := os.Getenv(child); key != "" {
		if err := beChild(key); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func beChild(text string) error {
	text, limited := strings.CutPrefix(text, "limited ")
	if limited {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}); err != nil {
			return err
		}
	}
	var k Key
	if _, err := hex.Decode(k[:], []byte(text)); err != nil {
		return err
	}
	w := &wanted{key: k}
	r, err := Open(w.content(Always))
	if err != nil {
		return err
	}
	if !bytes.Equal(r.Bytes(), w.bytes()) {
		return errors.New("wrong bytes")
	}
	fmt.Println(w.outcome())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// wanted is a content that notes what is asked of it. Its bytes follow from its key.
type wanted struct {
	key            Key
	made, compared int
}

const size = Least + 100 // a part of a page at its end

func (w *wanted) bytes() []byte {
	b := bytes.Repeat(w.key[:], size/len(w.key)+1)[:size]
	b[size-1] = 1 // no repetition: the end is compared, too
	return b
}

func (w *wanted) content(wish Wish) Content {
	return Content{Key: w.key, Size: size, Wish: wish, Afford: func() error { return nil },
		Make: func(to []byte) error { w.made++; copy(to, w.bytes()); return nil },
		Same: func(found []byte) (bool, error) { w.compared++; return bytes.Equal(found, w.bytes()), nil }}
}

func (w *wanted) outcome() string {
	if w.made > 0 {
		return "made"
	}
	return "found"
}

// want is a content of a key that no other test has.
func want(t *testing.T, number int) *wanted {
	w := &wanted{}
	copy(w.key[:], fmt.Sprintf("%08d%s", os.Getpid(), t.Name()[4:]))
	w.key[15] = byte(number)
	return w
}

// process is a child.
type process struct {
	*exec.Cmd
	in   io.WriteCloser
	says *bufio.Reader
}

func start(t *testing.T, text string) *process {
	p := &process{Cmd: exec.Command(os.Args[0])}
	p.Env = append(os.Environ(), child+"="+text)
	p.Stderr = os.Stderr
	in := must.Value(p.StdinPipe())(t)
	out := must.Value(p.StdoutPipe())(t)
	p.in, p.says = in, bufio.NewReader(out)
	must.Succeed(t, p.Start())
	t.Cleanup(func() { p.in.Close(); _ = p.Process.Kill(); _ = p.Wait() })
	return p
}

func (p *process) line(t *testing.T) string {
	text := must.Value(p.says.ReadString('\n'))(t)
	return strings.TrimSpace(text)
}

func (w *wanted) text() string { return hex.EncodeToString(w.key[:]) }

// TestProcesses: the second process has the memory of the first, also when that was killed; and the third that of the
// second.
func TestProcesses(t *testing.T) {
	w := want(t, 0)
	first := start(t, w.text())
	if said := first.line(t); said != "made" {
		t.Fatalf("the first process: %s", said)
	}
	r, err := Open(w.content(Always))
	if err != nil || w.made != 0 || w.compared != 1 {
		t.Fatalf("the second process: %v, made %d times, compared %d times", err, w.made, w.compared)
	}
	defer r.Close()
	_ = first.Process.Kill()
	_ = first.Wait()
	if !bytes.Equal(r.Bytes(), w.bytes()) {
		t.Error("the first process is gone, and the bytes are others")
	}
	third := start(t, w.text())
	must.Equal(t, third.line(t), "found")
	if err := unix.Mprotect(r.bytes, unix.PROT_READ|unix.PROT_WRITE); err == nil {
		t.Error("what was found can be written to")
	}
}

// TestAtOnce: of processes that begin at the same time, one makes the content.
func TestAtOnce(t *testing.T) {
	w := want(t, 0)
	var all []*process
	for range 6 {
		all = append(all, start(t, w.text()))
	}
	said := map[string]int{}
	for _, p := range all {
		said[p.line(t)]++
	}
	if said["made"] != 1 || said["found"] != 5 {
		t.Errorf("six processes: %v", said)
	}
}

// TestTheLastGoes: what nobody has any more is made again, and nothing is left of it.
func TestTheLastGoes(t *testing.T) {
	w, held := want(t, 0), descriptors(t)
	for range 2 {
		r := must.Value(Open(w.content(Always)))(t)
		must.Equal(t, len(announced(w.key)), 1)
		r.Close()
	}
	if w.made != 2 || len(announced(w.key)) != 0 || descriptors(t) != held {
		t.Errorf("made %d times, announced %v, %d descriptors, before %d", w.made, announced(w.key), descriptors(t), held)
	}
}

func descriptors(t *testing.T) int {
	list := must.Value(os.ReadDir("/proc/self/fd"))(t)
	return len(list)
}

// TestLimitedFiles: a process whose files may not be that long goes on, without what others have.
func TestLimitedFiles(t *testing.T) {
	p := start(t, "limited "+want(t, 0).text())
	must.Equal(t, p.line(t), "memory cannot be shared with other processes: the size of files is limited")
}
