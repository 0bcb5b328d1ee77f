package worker

import (
	"slices"
	"strings"
)

// The layers that hold a child, each by itself.
const (
	// LayerNamespaces: processes, network, users, IPC and mounts of its own. What it starts ends with it.
	LayerNamespaces = "namespaces"
	// LayerReadOnly: every file system is read-only, but a scratch folder.
	LayerReadOnly = "read-only file systems"
	// LayerLandlock: no file is written, made or removed, but written and made in a scratch folder; nothing is reached
	// over TCP, no process outside gets a signal.
	LayerLandlock = "Landlock"
	// LayerPrivileges: it gains no privileges, and has none of root's but to read files.
	LayerPrivileges = "no new privileges"
	// LayerFilter: system calls that reach other processes, the network or the system's settings are refused.
	LayerFilter = "system call filter"
	// LayerLimits: memory, threads, files and their size are bounded, and no core file is written.
	LayerLimits = "limits"
	// LayerOrphans is listed only where it does not hold: without namespaces, what a process of the child started and
	// left.
	LayerOrphans = "end of orphans"
)

// Layer is one way in which a child is held, or why it is not.
type Layer struct {
	Name string `json:"name"`
	// Problem says why it does not hold; empty when it holds.
	Problem string `json:"problem,omitempty"`
}

// add puts a layer up, unless a test leaves it out, and notes whether it holds.
func (s *setting) add(name string, up func() error) {
	l := Layer{Name: name}
	if slices.Contains(s.Without, name) {
		l.Problem = "left out"
	} else if err := up(); err != nil {
		l.Problem = err.Error()
	}
	s.Layers = append(s.Layers, l)
}

// Held is a line about layers: which hold, and which do not and why.
func Held(layers []Layer) string {
	var up, down []string
	for _, l := range layers {
		if l.Problem == "" {
			up = append(up, l.Name)
		} else {
			down = append(down, l.Name+" ("+l.Problem+")")
		}
	}
	line := "nothing"
	if len(up) > 0 {
		line = strings.Join(up, ", ")
	}
	if len(down) > 0 {
		line += "; without " + strings.Join(down, ", ")
	}
	return line
}
