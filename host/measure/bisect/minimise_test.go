package bisect

import (
	"errors"
	"fmt"
	"github.com/opgraft/graft/internal/must"
	"slices"
	"testing"
)

// TestCulprits: of parts that fail in known ways, exactly those that make them fail are found, in few probes.
func TestCulprits(t *testing.T) {
	for _, c := range []struct {
		name   string
		n      int
		causes [][]int // parts fail that hold one of these whole
		want   [][]int
		probes int // at most
	}{
		{"nothing fails", 12, nil, nil, 1},
		{"no parts", 0, [][]int{{0}}, nil, 0},
		{"one of one", 1, [][]int{{0}}, [][]int{{0}}, 1},
		{"the first of 64", 64, [][]int{{0}}, [][]int{{0}}, 14},
		{"the last of 64", 64, [][]int{{63}}, [][]int{{63}}, 14},
		{"two by themselves", 64, [][]int{{5}, {40}}, [][]int{{5}, {40}}, 26},
		{"neighbours by themselves", 10, [][]int{{4}, {5}}, [][]int{{4}, {5}}, 18},
		{"two together", 16, [][]int{{2, 13}}, [][]int{{2, 13}}, 60},
		{"two together and one by itself", 16, [][]int{{1, 9}, {12}}, [][]int{{12}, {1, 9}}, 70},
		{"three together", 12, [][]int{{0, 5, 11}}, [][]int{{0, 5, 11}}, 90},
		{"all of them", 5, [][]int{{0}, {1}, {2}, {3}, {4}}, [][]int{{0}, {1}, {2}, {3}, {4}}, 20},
		{"all of 74", 74, ones(74), ones(74), 150},
		{"all of them together", 4, [][]int{{0, 1, 2, 3}}, [][]int{{0, 1, 2, 3}}, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			probes := map[string]int{}
			s := &search{fails: func(parts []int) (bool, error) {
				probes[fmt.Sprint(parts)]++
				return slices.ContainsFunc(c.causes, func(cause []int) bool { return len(without(cause, parts)) == 0 }), nil
			}}
			got, err := s.culprits(c.n)
			must.Succeed(t, err)
			must.Equal(t, fmt.Sprint(got), fmt.Sprint(c.want))
			if len(probes) > c.probes {
				t.Errorf("%d probes, want at most %d", len(probes), c.probes)
			}
			for set, n := range probes {
				if n > 1 {
					t.Errorf("%s was tried %d times", set, n)
				}
			}
		})
	}
	broken := errors.New("no answer")
	s := &search{fails: func(parts []int) (bool, error) {
		if len(parts) == 3 {
			return false, broken
		}
		return true, nil
	}}
	must.Fail(t, must.Error(s.culprits(6)), broken)
}

func ones(n int) (list [][]int) {
	for i := range n {
		list = append(list, []int{i})
	}
	return list
}

// TestCulpritsThatHideEachOther: parts may also make each other's failure vanish. What is found fails.
func TestCulpritsThatHideEachOther(t *testing.T) {
	s := &search{fails: func(parts []int) (bool, error) { // 3 and 4 cancel each other, 7 fails
		return slices.Contains(parts, 3) != slices.Contains(parts, 4) || slices.Contains(parts, 7), nil
	}}
	found, err := s.culprits(8)
	if err != nil || len(found) == 0 {
		t.Fatalf("%v, %v", found, err)
	}
	for _, set := range found {
		if failed, _ := s.fails(set); !failed {
			t.Errorf("%v is found and does not fail", set)
		}
	}
}
