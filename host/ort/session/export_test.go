package session

import (
	"slices"

	"github.com/opgraft/graft/host/ort"
)

// What the tests look into.
const (
	TrimAbove   = trimAbove
	OwnersBlock = ownersBlock
	OwnersCount = ownersCount
)

var (
	Trim          = trim
	OwnersOf      = owners
	TellingOwners = tellingOwners
)

// ReplaceTrim has another function give memory back, until it is called.
func ReplaceTrim(by uintptr) (restore func()) {
	own := heapTrim
	heapTrim = func() uintptr { return by }
	return func() { heapTrim = own }
}

// TellsOwners and Sole are what is known of owners.
func TellsOwners(l *ort.Library) bool { return ownersOf.Of(l).told() }

func Sole(l *ort.Library, v *ort.Value) bool { return ownersOf.Of(l).sole(v) }

// SessionsOfContainers is how many sessions each container has.
func SessionsOfContainers(l *ort.Library) (list []int) {
	all := panelsOf.Of(l)
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, p := range all.list {
		list = append(list, p.sessions)
	}
	slices.Sort(list)
	return list
}
