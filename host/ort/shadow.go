package ort

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"
)

// words copies n machine words of C memory.
func words(address, n uintptr) []uintptr {
	if address == 0 {
		return nil
	}
	return slices.Clone(unsafe.Slice((*uintptr)(pointer(address)), n))
}

// borrow describes a value of the program's, which releases it.
func (l *Library) borrow(native uintptr) (*Value, error) {
	v := &Value{library: l, native: native}
	return v, v.describe()
}

// classOf is the class of the shapes of a run's inputs: their names, and of each axis whether its length is 0, 1 or
// more.
func (l *Library) classOf(args [8]uintptr) string {
	var class strings.Builder
	for i := range int(args[4]) {
		class.WriteString(goString(loadWord(args[2], i)))
		if v, err := l.borrow(loadWord(args[3], i)); err == nil {
			for _, n := range v.shape {
				fmt.Fprintf(&class, " %d", min(n, 2))
			}
		}
		class.WriteByte(0)
	}
	return class.String()
}

// given is the mask among a run's inputs; nil where there is none.
func (l *Library) given(args [8]uintptr, h *Hidden) *Value {
	for i := range int(args[4]) {
		if h != nil && goString(loadWord(args[2], i)) == h.Mask {
			if v, err := l.borrow(loadWord(args[3], i)); err == nil {
				return v
			}
		}
	}
	return nil
}

// shadowed counts runs that were compared, and those that differed.
var shadowed, differed atomic.Int64

// Shadowed is how many runs of the process were compared with those of plain sessions, and how many of them differed.
func Shadowed() (runs, different int64) { return shadowed.Load(), differed.Load() }

// compares reports a run that is to be compared: the first whose inputs are of their class, and a share of the others.
func (b *wayBack) compares(args [8]uintptr) bool {
	_, seen := b.seen.LoadOrStore(b.hook.library.classOf(args), true)
	return !seen || b.share > 0 && rand.Float64() < b.share
}

// shadow runs the plain session beside a run of the patched one that went well, where it is to be compared. places
// are where the program wanted outputs. Where one differs, the results of the plain session are the program's, and it
// takes over where that was one difference too many.
func (b *wayBack) shadow(args [8]uintptr, places []uintptr, run func([8]uintptr) uintptr) (status uintptr) {
	defer func() {
		if p := recover(); p != nil { // the results are there
			b.logger.Warn("a run was not compared", "model", b.name, "reason", p, "stack", string(debug.Stack()))
		}
	}()
	l := b.hook.library
	if len(places) == 0 || !b.compares(args) || l.runOverlaps(args) {
		return 0
	}
	if err := b.open(); err != nil {
		if !b.warned.Swap(true) {
			b.logger.Warn("a run was not compared, because none of the model itself can be opened", "model", b.name, "reason",
				err)
		}
		return 0
	}
	own := make([]uintptr, len(places))
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&own[0])
	beside := args
	beside[7] = uintptr(unsafe.Pointer(&own[0]))
	if failed := b.run(beside, run); failed != 0 {
		l.call(slotReleaseStatus, failed) // nothing to compare with
		return 0
	}
	difference := ""
	for i, native := range own {
		plain, err := l.borrow(native)
		patched, failed := l.borrow(loadWord(args[7], i))
		if err == nil && failed == nil && difference == "" {
			if err := b.hidden.Clear(goString(loadWord(args[5], i)), plain, l.given(args, b.hidden)); err != nil {
				continue
			}
			if difference = b.same(plain, patched); difference != "" {
				difference = goString(loadWord(args[5], i)) + ": " + difference
			}
		}
	}
	for _, native := range own {
		if native != 0 {
			l.call(slotReleaseValue, native)
		}
	}
	shadowed.Add(1)
	b.counts.Shadowed.Add(1)
	if difference == "" {
		return 0
	}
	differed.Add(1)
	b.counts.Differed.Add(1)
	if n := b.differ.Add(1); n > b.bears {
		b.revert(didDiffer, difference, "run", "repeated", "differences", n)
	} else {
		b.logger.Debug("a run of a patched session answered otherwise than its model", "model", b.name, "reason", difference,
			"differences", n)
	}
	for i, place := range places {
		if place == 0 {
			l.call(slotReleaseValue, loadWord(args[7], i))
			*wordAt(args[7] + uintptr(i)*wordSize) = 0
		}
	}
	return b.run(args, run)
}
