package manifest

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// IsVersion reports whether text has the form of a plugin's version.
func IsVersion(text string) bool { return semverPattern.MatchString(text) }

// CompareVersions orders versions as semantic versioning does (https://semver.org, 11): it is negative where a is
// before b, and 0 where neither is, as for builds of one version.
func CompareVersions(a, b string) int {
	numbersA, pre := release(a)
	numbersB, preB := release(b)
	if c := slices.CompareFunc(strings.Split(numbersA, "."), strings.Split(numbersB, "."), compareParts); c != 0 {
		return c
	}
	switch {
	case pre == preB:
		return 0
	case pre == "": // a release comes after what leads to it
		return 1
	case preB == "":
		return -1
	}
	return slices.CompareFunc(strings.Split(pre, "."), strings.Split(preB, "."), compareParts)
}

// release is a version's three numbers, and what stands after the first - without what names a build.
func release(version string) (numbers, pre string) {
	version, _, _ = strings.Cut(version, "+")
	numbers, pre, _ = strings.Cut(version, "-")
	return numbers, pre
}

// compareParts orders numbers by value, before all that is none.
func compareParts(a, b string) int {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	switch {
	case errX == nil && errY == nil:
		return cmp.Compare(x, y)
	case errX == nil:
		return -1
	case errY == nil:
		return 1
	}
	return cmp.Compare(a, b)
}
