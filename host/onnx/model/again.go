package model

import "errors"

// ReadAgainIfChanged runs what reads a model's files, and once more where one of them was replaced by a new version
// meanwhile (ErrInUse), which is there by then.
func ReadAgainIfChanged[T any](read func() (T, error)) (T, error) {
	v, err := read()
	if errors.Is(err, ErrInUse) {
		v, err = read()
	}
	return v, err
}
