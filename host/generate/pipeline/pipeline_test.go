package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opgraft/graft/internal/must"
)

// numbers reads n inputs, their numbers.
func numbers(n int) func() (string, error) {
	i := -1
	return func() (string, error) {
		if i++; i == n {
			return "", io.EOF
		}
		return strconv.Itoa(i), nil
	}
}

// doubled are stages that double a number, each taking some time.
func doubled(n int, device, sink time.Duration, out *[]string) Stages[int, int, string] {
	return Stages[int, int, string]{
		Read:   numbers(n),
		Encode: strconv.Atoi,
		Length: func(v int) int { return v * 7919 % 101 },
		Device: func(ctx context.Context, next func() (*Item[int], error), done func(int, int) error) error {
			for {
				item, err := next()
				if err != nil || item == nil {
					return err
				}
				time.Sleep(device)
				if err := done(item.Index, 2*item.Value); err != nil {
					return err
				}
			}
		},
		Decode: func(_, v int) (string, error) { return strconv.Itoa(v), nil },
		Write: func(i int, text string) error {
			time.Sleep(sink)
			if i != len(*out) {
				return fmt.Errorf("result %d is written as number %d", i, len(*out))
			}
			*out = append(*out, text)
			return nil
		},
	}
}

func TestOrderIsThatOfTheInput(t *testing.T) {
	for _, sync := range []bool{false, true} {
		for _, n := range []int{0, 1, 127, 128, 129, 1000} {
			var out []string
			must.Succeed(t, Run(t.Context(), doubled(n, 0, 0, &out), Options{Sync: sync, Workers: 4}))
			if len(out) != n {
				t.Fatalf("%d of %d results", len(out), n)
			}
			for i, s := range out {
				if s != strconv.Itoa(2*i) {
					t.Fatalf("result %d is %s", i, s)
				}
			}
		}
	}
}

// A device and a slow sink overlap: the whole takes hardly longer than the longer
// of the two, as measured in the same run (a timer is late on a busy machine).
func TestStagesOverlap(t *testing.T) {
	const n, device, sink = 400, 5 * time.Millisecond, 4 * time.Millisecond
	var out []string
	s := doubled(n, 0, sink, &out)
	var busy time.Duration
	s.Device = func(_ context.Context, next func() (*Item[int], error), done func(int, int) error) error {
		for {
			item, err := next()
			if err != nil || item == nil {
				return err
			}
			start := time.Now()
			time.Sleep(device)
			busy += time.Since(start)
			if err := done(item.Index, 2*item.Value); err != nil {
				return err
			}
		}
	}
	var writing time.Duration
	write := s.Write
	s.Write = func(i int, text string) error {
		start := time.Now()
		defer func() { writing += time.Since(start) }()
		return write(i, text)
	}
	start := time.Now()
	must.Succeed(t, Run(t.Context(), s, Options{Window: 8}))
	whole := time.Since(start)
	ratio := float64(whole) / float64(max(busy, writing))
	t.Logf("%.3f times the longest stage: %v whole, %v device, %v sink", ratio, whole, busy, writing)
	if ratio > 1.05 {
		t.Errorf("the whole took %.3f times the longest stage, want at most 1.05", ratio)
	}
}

func TestFailedInputsLeaveEmptyLines(t *testing.T) {
	for _, sync := range []bool{false, true} {
		var out []string
		s := doubled(300, 0, 0, &out)
		s.Encode = func(text string) (int, error) {
			if strings.HasSuffix(text, "7") {
				return 0, errors.New("a seven")
			}
			return strconv.Atoi(text)
		}
		s.Decode = func(_, v int) (string, error) {
			if v%50 == 0 {
				return "", errors.New("a fifty")
			}
			return strconv.Itoa(v), nil
		}
		var failed atomic.Int64
		s.Failed = func(int, error) (string, error) { failed.Add(1); return "", nil }
		must.Succeed(t, Run(t.Context(), s, Options{Sync: sync}))
		empty := 0
		for i, text := range out {
			bad := i%10 == 7 || i*2%50 == 0
			must.Equal(t, bad, text == "", i)
			if bad {
				empty++
			}
		}
		if len(out) != 300 || int(failed.Load()) != empty {
			t.Errorf("%d results, %d failures, %d empty lines", len(out), failed.Load(), empty)
		}
	}
}

func TestErrorsEndTheRun(t *testing.T) {
	wrong := errors.New("wrong")
	for name, change := range map[string]func(*Stages[int, int, string]){
		"read":   func(s *Stages[int, int, string]) { s.Read = func() (string, error) { return "", wrong } },
		"encode": func(s *Stages[int, int, string]) { s.Encode = func(string) (int, error) { return 0, wrong } },
		"device": func(s *Stages[int, int, string]) {
			s.Device = func(_ context.Context, next func() (*Item[int], error), _ func(int, int) error) error {
				_, _ = next()
				return wrong
			}
		},
		"decode": func(s *Stages[int, int, string]) { s.Decode = func(int, int) (string, error) { return "", wrong } },
		"write":  func(s *Stages[int, int, string]) { s.Write = func(int, string) error { return wrong } },
	} {
		t.Run(name, func(t *testing.T) {
			for _, sync := range []bool{false, true} {
				var out []string
				s := doubled(3000, 0, 0, &out)
				change(&s)
				must.Fail(t, Run(t.Context(), s, Options{Sync: sync}), wrong)
			}
		})
	}
}

// What was finished without a gap is written when the run is cancelled.
func TestCancelWritesWhatIsFinished(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out []string
	s := doubled(100000, 0, 0, &out)
	write := s.Write
	s.Write = func(i int, text string) error {
		if i == 500 {
			cancel()
		}
		return write(i, text)
	}
	must.Fail(t, Run(ctx, s, Options{}), context.Canceled)
	if len(out) < 500 || len(out) > 3000 {
		t.Errorf("%d results", len(out))
	}
	for i, text := range out {
		if text != strconv.Itoa(2*i) {
			t.Fatalf("result %d is %s", i, text)
		}
	}
}

// A run that is killed in the middle of a line and resumed gives what one run
// would have.
func TestResume(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.txt")
	var want []string
	for i := range 50 {
		want = append(want, strconv.Itoa(i)+" line")
	}
	whole := strings.Join(want, "\n") + "\n"
	for cut := 0; cut <= len(whole); cut += 13 {
		must.Succeed(t, os.WriteFile(path, []byte(whole[:cut]), 0o644))
		out, n, err := Resume(path)
		must.Succeed(t, err)
		read := Lines("in", strings.NewReader(whole), 100)
		must.Succeed(t, Skip(read, n))
		for {
			text, err := read()
			if err != nil {
				break
			}
			must.Succeed(t, out.Write(text))
		}
		must.Succeed(t, out.Close())
		got := must.Value(os.ReadFile(path))(t)
		if string(got) != whole {
			t.Fatalf("cut at %d: %d bytes, want %d", cut, len(got), len(whole))
		}
	}
	if _, err := Create(path); err == nil {
		t.Error("an output that is there was written over")
	}
}

func TestLines(t *testing.T) {
	read := Lines("in", strings.NewReader("a\r\n\nb c\n\xff last"), 100)
	var got []string
	for {
		text, err := read()
		if err != nil {
			break
		}
		got = append(got, text)
	}
	must.Equal(t, got, []string{"a", "", "b c", "\xff last"})
}

// TestLongLine: a line of any length is refused by its number, and no more of it is read than is allowed.
func TestLongLine(t *testing.T) {
	given := &counted{Reader: io.MultiReader(strings.NewReader("one\n"+strings.Repeat("b", 100_000)+"\r\n"),
		io.LimitReader(zeros{}, 1<<33))}
	read := Lines("in.txt", given, 100_000)
	for _, want := range []string{"one", strings.Repeat("b", 100_000)} {
		if line, err := read(); err != nil || line != want {
			t.Fatalf("found %d bytes, %v", len(line), err)
		}
	}
	_, err := read()
	must.FailExactly(t, err, "in.txt: line 3 has more than 100000 bytes, needed shorter lines; split it, or "+
		"allow more (--max-line)")
	if given.bytes > 1<<19 {
		t.Errorf("read %d bytes", given.bytes)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

type counted struct {
	io.Reader
	bytes int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.bytes += n
	return n, err
}
