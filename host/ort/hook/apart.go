package hook

import (
	"runtime/debug"
)

// instead reports a run that is the plain session's, because operators in another process cannot do it: they are not
// there, or an output of it lies in the memory of an input, so that it could not be repeated if they went.
func (b *wayBack) instead(args [8]uintptr, overlaps func([8]uintptr) bool) (instead bool) {
	if b.apart == nil {
		return false
	}
	defer func() {
		if p := recover(); p != nil { // it must not unwind through C
			b.logger.Warn("a run of operators in another process was not looked at", "model", b.name, "reason", p, "stack",
				string(debug.Stack()))
			instead = false
		}
	}()
	gone := b.apart.Gone()
	if gone == nil && b.apart.Ready() && !overlaps(args) {
		return false
	}
	if err := b.open(); err != nil {
		return false // the run fails, and says so
	}
	if gone != nil {
		b.revert(didFail, gone.Error())
	}
	b.apart.Instead()
	return true
}
