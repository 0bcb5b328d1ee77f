package shared

import (
	"encoding/binary"
	"os"
)

// probe is a content of this process alone.
func probe(w Wish) Content {
	c := Content{Size: Least, Wish: w, Afford: func() error { return nil }, Make: func([]byte) error { return nil },
		Same: func([]byte) (bool, error) { return false, nil }}
	copy(c.Key[:], "probe")
	binary.NativeEndian.PutUint64(c.Key[8:], uint64(os.Getpid()))
	return c
}
