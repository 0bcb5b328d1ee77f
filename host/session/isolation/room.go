package isolation

import "slices"

// room is which of the memory of constants is taken. The zero value has nothing taken.
type room struct {
	top  int64  // where nothing was taken yet
	free []span // below it, in order, none beside another
}

type span struct{ at, size int64 }

// take finds a place, the first that fits; not ok where there is none below a limit.
func (r *room) take(size, limit int64) (at int64, ok bool) {
	size = aligned(max(size, 1))
	for i, s := range r.free {
		if s.size >= size {
			if r.free[i] = (span{s.at + size, s.size - size}); s.size == size {
				r.free = slices.Delete(r.free, i, i+1)
			}
			return s.at, true
		}
	}
	if size > limit-r.top {
		return 0, false
	}
	r.top += size
	return r.top - size, true
}

// give is for what take gave.
func (r *room) give(at, size int64) {
	size = aligned(max(size, 1))
	i, _ := slices.BinarySearchFunc(r.free, at, func(s span, at int64) int { return int(min(max(s.at-at, -1), 1)) })
	r.free = slices.Insert(r.free, i, span{at, size})
	if i+1 < len(r.free) && at+size == r.free[i+1].at {
		r.free[i].size += r.free[i+1].size
		r.free = slices.Delete(r.free, i+1, i+2)
	}
	if i > 0 && r.free[i-1].at+r.free[i-1].size == at {
		r.free[i-1].size += r.free[i].size
		r.free = slices.Delete(r.free, i, i+1)
	}
	if n := len(r.free); n > 0 && r.free[n-1].at+r.free[n-1].size == r.top {
		r.top = r.free[n-1].at
		r.free = r.free[:n-1]
	}
}
