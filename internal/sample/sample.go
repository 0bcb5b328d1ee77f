// Package sample chooses which cases of a long test run: a part of them with each commit, another with the next, and
// all where no number is given. The Makefile gives the number, from the commit's hash: SAMPLE.
package sample

import (
	"fmt"
	"os"
	"strconv"
)

// Environment names the number.
const Environment = "GRAFT_TEST_SAMPLE"

// Has says whether case i is of the n-th part of all cases that runs: of n successive numbers each has another part.
func Has(i, n int) bool {
	number, all := Number()
	return all || (i+number)%n == 0
}

// Number is the number of this run, 0 or more; all is set where there is none.
func Number() (number int, all bool) {
	text := os.Getenv(Environment)
	if text == "" {
		return 0, true
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < 0 {
		panic(fmt.Sprintf("%s: found %q, needed a number of 0 or more, or none", Environment, text))
	}
	return number, false
}
