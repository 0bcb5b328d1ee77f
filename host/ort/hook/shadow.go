package hook

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/session"
)

// words copies n machine words of C memory.
func words(address, n uintptr) []uintptr {
	if address == 0 {
		return nil
	}
	return slices.Clone(unsafe.Slice((*uintptr)(cmem.Pointer(address)), n))
}

// classOf is the class of the shapes of a run's inputs: their names, and of each axis whether its length is 0, 1 or
// more.
func classOf(l *ort.Library, args [8]uintptr) string {
	var class strings.Builder
	for i := range int(args[4]) {
		class.WriteString(cmem.GoString(cmem.LoadWord(args[2], i)))
		if v, err := ort.BorrowValue(l, cmem.LoadWord(args[3], i)); err == nil {
			for _, n := range v.Shape() {
				fmt.Fprintf(&class, " %d", min(n, 2))
			}
		}
		class.WriteByte(0)
	}
	return class.String()
}

// maskAmong is the mask among a run's inputs; nil where there is none.
func maskAmong(l *ort.Library, args [8]uintptr, h *session.Hidden) *ort.Value {
	for i := range int(args[4]) {
		if h != nil && cmem.GoString(cmem.LoadWord(args[2], i)) == h.Mask {
			if v, err := ort.BorrowValue(l, cmem.LoadWord(args[3], i)); err == nil {
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
	_, seen := b.seen.LoadOrStore(classOf(b.hook.library, args), true)
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
	if len(places) == 0 || !b.compares(args) || runOverlaps(l, args) {
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
		l.Call(slot.ReleaseStatus, failed) // nothing to compare with
		return 0
	}
	difference := ""
	for i, native := range own {
		plain, err := ort.BorrowValue(l, native)
		patched, failed := ort.BorrowValue(l, cmem.LoadWord(args[7], i))
		if err == nil && failed == nil && difference == "" {
			if err := b.hidden.Clear(cmem.GoString(cmem.LoadWord(args[5], i)), plain, maskAmong(l, args, b.hidden)); err != nil {
				continue
			}
			if difference = b.same(plain, patched); difference != "" {
				difference = cmem.GoString(cmem.LoadWord(args[5], i)) + ": " + difference
			}
		}
	}
	for _, native := range own {
		if native != 0 {
			l.Call(slot.ReleaseValue, native)
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
			l.Call(slot.ReleaseValue, cmem.LoadWord(args[7], i))
			*cmem.WordAt(args[7] + uintptr(i)*cmem.WordSize) = 0
		}
	}
	return b.run(args, run)
}
