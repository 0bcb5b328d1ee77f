package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rivo/uniseg"
	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// patience is how long work may take before anything is shown of it.
const patience = 300 * time.Millisecond

// tick is how often the line of progress is drawn.
const tick = 120 * time.Millisecond

// talk is where messages go. On a terminal its last line may show the progress of long work, and is erased before
// anything else is written: nothing but that one line is ever erased, because the lines above it are somebody's.
type talk struct {
	to       io.Writer
	terminal *os.File // nil for a pipe or a file, which see no progress

	mu    sync.Mutex
	shown bool // a line of progress is on the terminal
}

func talkTo(w io.Writer) *talk {
	t := &talk{to: w}
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		t.terminal = f
	}
	return t
}

func (t *talk) Write(p []byte) (int, error) { return t.writeTo(t.to, p) }

// writeTo writes what may be seen on the same terminal, with the line of progress out of the way; the next tick
// draws it again.
func (t *talk) writeTo(w io.Writer, p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.draw("")
	return w.Write(p)
}

// show draws a line of progress; "" erases it.
func (t *talk) show(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.draw(line)
}

// draw is show with the lock held. A line is cut to the terminal's width: one that wraps could not be erased.
func (t *talk) draw(line string) {
	if t.terminal == nil || line == "" && !t.shown {
		return
	}
	width := usualWidth
	if size, err := unix.IoctlGetWinsize(int(t.terminal.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
		width = int(size.Col)
	}
	_, _ = t.terminal.WriteString("\r\x1b[K" + clip(diagnostic.Printable(line), width-1)) // it is only a sign of progress
	t.shown = line != ""
}

// clip is the beginning of a line that fits into a number of columns.
func clip(line string, width int) string {
	var b strings.Builder
	for g := uniseg.NewGraphemes(line); g.Next(); {
		if width -= g.Width(); width < 0 {
			break
		}
		b.WriteString(g.Str())
	}
	return b.String()
}

// bar shows the progress of long work on a terminal, and nothing in a pipe: its step and the time that it has taken,
// and how much is done once a total is known. It goes away when the work is done.
type bar struct {
	talk  *talk
	start time.Time
	over  chan struct{} // closed at the end; nil for silence
	done  chan struct{} // closed when nothing is drawn any more
	ended sync.Once

	mu          sync.Mutex
	step        string
	have, total int64
}

func (c *cli) progress(step string) *bar {
	b := &bar{talk: c.talk, start: time.Now(), step: step}
	if c.talk.terminal != nil && !c.quiet {
		b.over, b.done = make(chan struct{}), make(chan struct{})
		go b.run()
	}
	return b
}

// progressOver is progress of work over inputs. Nothing is drawn where results stream to the terminal, or somebody
// types inputs there, who is told so.
func (c *cli) progressOver(step, input string, streams bool) *bar {
	typed := input == "-" && isTerminal(os.Stdin)
	if typed {
		c.say("graft: reading one input a line; Ctrl-D ends them")
	}
	if typed || streams && c.out.terminal() {
		return &bar{talk: c.talk, start: time.Now()}
	}
	return c.progress(step)
}

func (b *bar) run() {
	defer close(b.done)
	wait := time.NewTimer(patience)
	defer wait.Stop()
	for turn := 0; ; turn++ {
		select {
		case <-b.over:
			b.talk.show("")
			return
		case <-wait.C:
		}
		b.talk.show(b.line(turn))
		wait.Reset(tick)
	}
}

// line is what is drawn the turn-th time.
func (b *bar) line(turn int) string {
	const width = 30
	b.mu.Lock()
	defer b.mu.Unlock()
	took := time.Since(b.start)
	step := diagnostic.Printable(b.step)
	if b.total <= 0 {
		spinner := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
		return fmt.Sprintf("%s %c %v", step, spinner[turn%len(spinner)], took.Round(time.Second))
	}
	share := min(1, float64(b.have)/float64(b.total))
	full := int(share * width)
	line := fmt.Sprintf("%s [%s%s] %.0f %%", step, strings.Repeat("=", full), strings.Repeat("-", width-full), 100*share)
	if b.have > 0 && b.have < b.total {
		left := time.Duration(float64(took) * float64(b.total-b.have) / float64(b.have))
		line += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	return line
}

// say names the step that begins.
func (b *bar) say(step string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.step = step
}

// set shows how much is done of a total; without a total, that work goes on.
func (b *bar) set(done, total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.have, b.total = done, total
}

// end takes the bar away.
func (b *bar) end() {
	if b.over != nil {
		b.ended.Do(func() { close(b.over) })
		<-b.done
	}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
