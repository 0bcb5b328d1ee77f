// Package shared holds bytes once for all processes of a user that make the same ones. Who makes them first has them
// in a memory file that nobody can change any more; others find it, compare it with what they would have made, byte
// for byte, and map it. So nobody is trusted: a memory file that is damaged or was made to deceive is one that is not
// used.
package shared

import (
	"errors"
	"fmt"
)

// ErrOwn is wrapped by errors that say why bytes cannot be shared. Who gets one holds its own.
var ErrOwn = errors.New("memory cannot be shared with other processes")

// Wish says whether bytes are to be shared.
type Wish int

const (
	// LargePages shares where that makes nothing slower: in large pages, on a machine whose memory is equally near to
	// all of its processors.
	LargePages Wish = iota
	// Always shares also in small pages and where memory is farther from some processors.
	Always
	// Never shares nothing.
	Never
)

// Key is what contents that may be the same have in common: a hash of parts of them.
type Key [16]byte

// Content says what is wanted.
type Content struct {
	Key  Key
	Size int64 // above 0
	Wish Wish
	// Afford is asked before memory is taken.
	Afford func() error
	// Make writes the content to zeroed memory.
	Make func(to []byte) error
	// Same reports that what was found, which nobody can change, is the content.
	Same func(found []byte) (bool, error)
}

// Least is the size from which bytes are worth two descriptors and a look for them.
const Least = 4 << 20

// own is an error that wraps ErrOwn.
func own(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrOwn, fmt.Errorf(format, args...))
}
