package sample

import (
	"strconv"
	"testing"
)

func TestHas(t *testing.T) {
	var chosen [10]int
	for number := range 3 {
		t.Setenv(Environment, strconv.Itoa(number))
		for i := range chosen {
			if Has(i, 3) {
				chosen[i]++
			}
		}
	}
	for i, n := range chosen {
		if n != 1 {
			t.Errorf("case %d runs with %d of three numbers, wanted one", i, n)
		}
	}
	t.Setenv(Environment, "")
	for i := range chosen {
		if !Has(i, 3) {
			t.Errorf("case %d is left out where there is no number", i)
		}
	}
}
