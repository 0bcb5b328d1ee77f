package padding

import (
	"math"
	"testing"

	"github.com/opgraft/graft/host/blocks"
)

// TestBandOfLowestNumbers: numbers that hide, added to each other, are known inside a window and beyond it.
func TestBandOfLowestNumbers(t *testing.T) {
	const most = math.MaxFloat32
	window := func(yes, no float64) term { return term{kind: band, i: 2, j: 3, left: 4, right: 4, yes: yes, no: no} }
	for _, c := range []struct {
		name            string
		got             term
		inside, outside float64
	}{
		{"the lowest number twice is no number of 32 bits", binary("Add", number(-most), window(0, -most)), -most, math.Inf(-1)},
		{"in either order", binary("Add", window(0, -most), number(-most)), -most, math.Inf(-1)},
		{"raised again", binary("Max", binary("Add", number(-most), window(0, -most)), number(-most)), -most, -most},
		{"the lesser of two", binary("Min", number(-most), window(0, -most)), -most, -most},
		{"the lesser of two, one of them without end", binary("Min", number(-1e30), window(0, math.Inf(-1))), -1e30, math.Inf(-1)},
		{"numbers that add up", binary("Add", number(-1e30), window(0, -1e30)), -1e30, -2e30},
		{"chosen by the window", where(window(1, 0), number(-1e30), number(-most)), -1e30, -most},
		{"the same either way", where(window(1, 0), number(-most), number(-most)), -most, -most},
	} {
		inside, ok := c.got.inside()
		if outside := c.got.outside(); !ok || inside != c.inside || outside != c.outside {
			t.Errorf("%s: %g and %g beyond, want %g and %g", c.name, inside, outside, c.inside, c.outside)
		}
	}
}

// TestWindowsThatShowNothing: what attention of a query that sees no visible key within its window needs follows from the
// numbers that scores have there.
func TestWindowsThatShowNothing(t *testing.T) {
	const most = math.MaxFloat32
	infinite := math.Inf(-1)
	for _, c := range []struct {
		name         string
		h            Hides
		blind, alike bool
	}{
		{"no window", Hides{Left: -1, Right: -1, Fill: -most, Adds: true}, false, false},
		{"nothing is seen", Hides{Left: 4, Right: 4, Fill: infinite, Beyond: infinite}, false, false},
		{"the window alone is seen", Hides{Left: 4, Right: 4, Fill: -1e4, Beyond: infinite}, false, false},
		{"the same, by numbers", Hides{Left: 4, Right: -1, Fill: -1e4, Beyond: -most}, false, false},
		{"all keys alike", Hides{Left: 4, Right: 4, Fill: -most, Adds: true, Beyond: -most}, true, true},
		{"scores are left of numbers that are not low enough", Hides{Left: 4, Right: 4, Fill: -1e9, Adds: true, Beyond: -1e9}, true, false},
		{"keys beyond the window alone", Hides{Left: 4, Right: 4, Fill: infinite, Beyond: -most}, true, false},
		{"visible keys beyond it", Hides{Left: 4, Right: 4, Fill: -most, Adds: true, Beyond: -most, Mixed: true}, true, false},
		{"numbers of the caller", Hides{Left: 4, Right: 4, Fill: -most, Adds: true, Beyond: -most, Given: true}, true, false},
	} {
		b := &Block{Block: &blocks.Block{Wiring: &blocks.Wiring{}}, Hides: c.h}
		if b.blind() != c.blind || b.AllAlike() != c.alike || b.mixed() != (c.blind && !c.alike) {
			t.Errorf("%s: sees beyond its window %t, all alike %t, want %t and %t", c.name, b.blind(), b.AllAlike(), c.blind, c.alike)
		}
	}
}
