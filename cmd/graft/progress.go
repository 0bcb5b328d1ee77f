package main

import (
	"os"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/sys/unix"
)

// bar shows the progress of long work on a terminal, and nothing in a pipe.
type bar struct {
	pool *mpb.Progress
	bar  *mpb.Bar
}

func (c *cli) progress(title string) *bar {
	if f, ok := c.talk.(*os.File); c.quiet || !ok || !isTerminal(f) {
		return &bar{}
	}
	p := mpb.New(mpb.WithOutput(c.talk), mpb.WithWidth(40))
	return &bar{p, p.AddBar(0,
		mpb.PrependDecorators(decor.Name(title+" ")),
		mpb.AppendDecorators(decor.Percentage(), decor.Name(" "), decor.AverageETA(decor.ET_STYLE_GO)))}
}

func (b *bar) set(done, total int64) {
	if b.bar != nil {
		b.bar.SetTotal(total, false)
		b.bar.SetCurrent(done)
	}
}

func (b *bar) end() {
	if b.bar != nil {
		b.bar.SetTotal(-1, true)
		b.pool.Wait()
	}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
