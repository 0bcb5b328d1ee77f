package session_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// TestOwners: what a value's count says where its owners are known.
func TestOwners(t *testing.T) {
	if !session.TellsOwners(library) {
		t.Fatal("the owners of a tensor cannot be told of this ONNX Runtime: no session shares panels")
	}
	v := must.Value(ort.NewTensor(library, []int64{1}, []float32{0}))(t)
	defer v.Close()
	if !session.Sole(library, v) {
		t.Error("a new value has another owner")
	}
}

// process is memory of words by their addresses.
type process map[uintptr]uint64

func (p process) ReadAt(to []byte, at int64) (int, error) {
	word, ok := p[uintptr(at)]
	if !ok {
		return 0, errors.New("nothing there")
	}
	var all [8]byte
	binary.NativeEndian.PutUint64(all[:], word)
	return copy(to, all[:]), nil
}

// TestOwnersOfOtherLayouts: a value that does not hold what is expected tells nothing, and nothing is read where
// nothing is.
func TestOwnersOfOtherLayouts(t *testing.T) {
	const value, block = 0x1000, 0x2000
	for _, c := range []struct {
		name   string
		memory process
		n      int32
		ok     bool
	}{
		{"as expected", process{value + session.OwnersBlock: block, block + session.OwnersCount: 3}, 3, true},
		{"two counts in a word", process{value + session.OwnersBlock: block, block + session.OwnersCount: 7<<32 | 3}, 3,
			true},
		{"no block", process{value + session.OwnersBlock: 0, session.OwnersCount: 1}, 0, false},
		{"a number where the block is", process{value + session.OwnersBlock: block + 1, block + 1 + session.OwnersCount: 1},
			0, false},
		{"an address that no process has", process{value + session.OwnersBlock: 0xffffffff00000000}, 0, false},
		{"a block that is not mapped", process{value + session.OwnersBlock: block}, 0, false},
		{"a smaller value", process{}, 0, false},
	} {
		if n, ok := session.OwnersOf(c.memory, value); n != c.n || ok != c.ok {
			t.Errorf("%s: got %d, %v, want %d, %v", c.name, n, ok, c.n, c.ok)
		}
	}
}

// TestOwnersAreTried: a count is believed when it follows two owners that come and go, each time.
func TestOwnersAreTried(t *testing.T) {
	const unreadable = -100
	for _, c := range []struct {
		name   string
		counts []int32 // one, with two more, again, with two more, again
		owned  bool
		one    int32
		ok     bool
	}{
		{"owners", []int32{1, 3, 1, 3, 1}, true, 1, true},
		{"owners but one", []int32{0, 2, 0, 2, 0}, true, 0, true},
		{"always the same", []int32{1, 1, 1, 1, 1}, true, 0, false},
		{"one more", []int32{1, 2, 1, 2, 1}, true, 0, false},
		{"only upwards", []int32{1, 3, 3, 5, 5}, true, 0, false},
		{"by chance once", []int32{1, 3, 1, 7, 1}, true, 0, false},
		{"not readable", []int32{unreadable, unreadable, unreadable, unreadable, unreadable}, true, 0, false},
		{"not readable with owners", []int32{1, unreadable, 1, unreadable, 1}, true, 0, false},
		{"not readable again", []int32{1, 3, unreadable, 3, 1}, true, 0, false},
		{"no sequence could be made", []int32{1, 3, 1, 3, 1}, false, 0, false},
	} {
		next := 0
		one, ok := session.TellingOwners(func() (int32, bool) {
			n := c.counts[next]
			next++
			return n, n != unreadable
		}, func(while func()) bool {
			while()
			return c.owned
		})
		if ok != c.ok || ok && one != c.one {
			t.Errorf("%s: got %d, %v, want %d, %v", c.name, one, ok, c.one, c.ok)
		}
	}
}
