package main

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// patience is how long work may take before anything is shown of it.
const patience = 300 * time.Millisecond

// bar shows the progress of long work on a terminal, and nothing in a pipe: its
// step and the time it takes, and a bar once a total is known. It goes away when
// the work is done. Where results stream to a terminal there is none: it would be
// drawn over them.
type bar struct {
	terminal *os.File // nil for silence
	step     atomic.Pointer[string]
	start    time.Time
	timer    *time.Timer

	mu   sync.Mutex
	pool *mpb.Progress // nil until patience is over
	bar  *mpb.Bar      // with a total, or a spinner
	of   int64         // the total; 0 for the spinner
	over bool
}

func (c *cli) progress(step string) *bar {
	b := &bar{start: time.Now()}
	b.say(step)
	if f, ok := c.talk.(*os.File); ok && !c.quiet && isTerminal(f) {
		b.terminal = f
		b.timer = time.AfterFunc(patience, func() { b.set(0, 0) })
	}
	return b
}

// say names the step that begins.
func (b *bar) say(step string) {
	step = diagnostic.Printable(step)
	b.step.Store(&step)
}

// set shows how much is done of a total; without a total, that work goes on.
func (b *bar) set(done, total int64) {
	if b.terminal == nil || time.Since(b.start) < patience {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	if b.pool == nil {
		b.pool = mpb.New(mpb.WithOutput(b.terminal), mpb.WithWidth(40))
	}
	if b.bar == nil || b.of == 0 && total > 0 {
		if b.bar != nil {
			b.bar.Abort(true)
		}
		b.bar = b.make(total)
	}
	b.of = total
	b.bar.SetCurrent(done)
}

func (b *bar) make(total int64) *mpb.Bar {
	step := decor.Any(func(decor.Statistics) string { return *b.step.Load() + " " })
	if total == 0 {
		return b.pool.AddSpinner(0, mpb.PrependDecorators(step), mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_GO)),
			mpb.BarRemoveOnComplete())
	}
	return b.pool.AddBar(total, mpb.PrependDecorators(step),
		mpb.AppendDecorators(decor.Percentage(), decor.Name(" "), decor.AverageETA(decor.ET_STYLE_GO)),
		mpb.BarRemoveOnComplete())
}

// end takes the bar away.
func (b *bar) end() {
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over = true; b.pool == nil {
		return
	}
	b.bar.Abort(true)
	b.pool.Wait()
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
