package main

import (
	"strings"

	"github.com/opgraft/graft/host/base/memory/shared"
)

// foundSharing says whether sessions share weights with other processes here.
type foundSharing struct {
	Problem string `json:"problem,omitempty"` // why they do not, unless they are asked to where that is slower
}

func findSharing() foundSharing {
	if err := shared.Available(); err != nil {
		return foundSharing{strings.TrimPrefix(err.Error(), shared.ErrOwn.Error()+": ")}
	}
	return foundSharing{}
}

func (f foundSharing) text(w *page) {
	if f.Problem != "" {
		w.printf("--  sessions share no weights with other processes: %s\n", f.Problem)
		return
	}
	w.println("ok  sessions share weights with other processes")
}
