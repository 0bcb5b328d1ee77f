// Package machine knows the roofline of the machine that it runs on: what operators
// of plugins reach in bytes and in operations a second. It is measured in less than half
// a second and stored in the user's cache folder for a month, or for minutes where the machine did other work.
package machine

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/base/threads"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/capability"
)

// ID is what figures of a machine hold for: they are no other's.
type ID struct {
	CPU     string            `json:"cpu"`
	Cores   int               `json:"cores"`
	Threads int               `json:"threads"` // that an operator uses
	Plugins map[string]string `json:"plugins"` // SHA-256 of the libraries, by plugin
}

// This identifies the machine with the named plugins of those loaded. Threads of 0
// is one a core.
func This(plugins []*plugin.Plugin, threads int, names ...string) ID {
	if threads <= 0 {
		threads = runtime.NumCPU()
	}
	id := ID{CPU: cpu(), Cores: runtime.NumCPU(), Threads: threads, Plugins: map[string]string{}}
	for _, p := range plugins {
		if slices.Contains(names, p.Manifest.Name) {
			id.Plugins[p.Manifest.Name] = p.SHA256
		}
	}
	return id
}

// Differs says in what figures of another ID were measured elsewhere, or "".
func (id ID) Differs(of ID) string {
	switch {
	case id.CPU != of.CPU || id.Cores != of.Cores:
		return fmt.Sprintf("it is of another machine (%s, %d cores; this one is %s, %d)", of.CPU, of.Cores, id.CPU, id.Cores)
	case id.Threads != of.Threads:
		return fmt.Sprintf("it was measured with %d threads, %d are used", of.Threads, id.Threads)
	}
	for _, name := range slices.Sorted(maps.Keys(id.Plugins)) {
		switch sha, ok := of.Plugins[name]; {
		case !ok:
			return fmt.Sprintf("it was measured without the plugin %s", name)
		case sha != id.Plugins[name]:
			return fmt.Sprintf("it was measured with another build of the plugin %s", name)
		}
	}
	return ""
}

// fileVersion is the version of the file of rooflines, maxEntries the maximum number of them
// that it stores.
const (
	fileVersion = 2
	maxEntries  = 16
)

// shareTime is how long a machine is watched for other work.
const shareTime = 10 * time.Millisecond

// file is the file: the last measured first.
type file struct {
	SchemaVersion int     `json:"schema_version"`
	Rooflines     []entry `json:"rooflines"`
}

type entry struct {
	ID
	Figures
	Date string `json:"date"`
	// Spread is how far the rounds of the memory's figure lie apart: the distance of its quartiles by its median.
	Spread float64 `json:"spread"`
	// CoreShare is the part of a core that a thread got, before and after: see [threads.CoreShare].
	CoreShare float64 `json:"core_share"`
}

// How long figures hold: a machine may be another tomorrow, and one that did other work soon is.
const (
	holds       = 30 * 24 * time.Hour
	holdsIfBusy = 10 * time.Minute
	// BusyShare is the share of a core below which others used the machine.
	BusyShare = 0.8
)

// current reports whether an entry holds for now: it is plausible, and not too old.
func (e *entry) current(now time.Time) bool {
	date, err := time.Parse(time.RFC3339, e.Date)
	age := now.Sub(date)
	return err == nil && e.plausible() && age < holds && (e.CoreShare >= BusyShare || age < holdsIfBusy)
}

// outdone reports whether memory was just read much faster than an entry says that it, or the cache that cores share,
// can be: the figure was taken while something else used the machine.
func (e *entry) outdone(read float64) bool {
	return read > 1.5*max(e.Bandwidth, e.LastCacheBandwidth)
}

// Figures are what was measured.
type Figures struct {
	Bandwidth          float64 `json:"bandwidth"`            // bytes a second from memory
	LastCacheBandwidth float64 `json:"last_cache_bandwidth"` // from the cache that cores share; 0 where there is none
	LastCacheBytes     float64 `json:"last_cache_bytes"`
	FLOPS              float64 `json:"flops"` // fp32 operations a second
}

// plausible reports figures that a machine can have.
func (f Figures) plausible() bool {
	in := func(x, low, high float64) bool { return x >= low && x <= high }
	return in(f.Bandwidth, 1e8, 1e14) && in(f.FLOPS, 1e8, 1e16) &&
		(f.LastCacheBytes == 0 && f.LastCacheBandwidth == 0 ||
			in(f.LastCacheBandwidth, 1e8, 1e15) && in(f.LastCacheBytes, 1e4, 1e11))
}

// Options say where figures are stored and what is told of failures.
type Options struct {
	Folder  string // "": the user's cache folder
	Threads int    // that an operator uses; 0 is one a core
	Log     *slog.Logger
	Again   bool // measure although figures are stored
	// Attention is the operator that attends over keys and values, with which reading is
	// measured.
	Attention Operator
}

// Operator is one of a plugin's.
type Operator struct{ Plugin, Name string }

// fileName is the file's name.
const fileName = "machine.json"

// Roofline is this machine's, as stored or else measured now. It needs the plugins of
// Options.Attention and of linear layers; where it cannot be measured the error
// says why, and nothing is known. Where it cannot be stored the log says so.
func Roofline(plugins []*plugin.Plugin, o Options) (Figures, error) {
	log := o.Log
	if log == nil {
		log = slog.Default()
	}
	if o.Attention.Plugin == "" || named(plugins, o.Attention.Plugin) == nil {
		return Figures{}, errors.New("the machine is estimated, not measured: no plugin that attends over keys and values " +
			"is loaded")
	}
	by, operator, err := plugin.Provider(plugins, capability.LinearPanels, nil)
	if err != nil {
		return Figures{}, fmt.Errorf("the machine is estimated, not measured: %w", err)
	}
	linear := Operator{by.Manifest.Name, operator}
	id := This(plugins, o.Threads, o.Attention.Plugin, linear.Plugin)
	path, stored, err := read(o.Folder)
	if err != nil {
		log.Warn("graft: figures of this machine", "error", err)
	}
	if !o.Again {
		for _, e := range stored.Rooflines {
			if id.Differs(e.ID) == "" && e.current(time.Now()) && !e.outdone(probe()) {
				return e.Figures, nil
			}
		}
	}
	m := entry{ID: id, Date: time.Now().UTC().Format(time.RFC3339), CoreShare: threads.CoreShare(shareTime)}
	m.Figures, m.Spread, err = measure(plugins, o.Attention, linear, id.Threads)
	if err == nil && !m.plausible() {
		err = fmt.Errorf("measured %+v, which no machine has", m.Figures)
	}
	if err != nil {
		return Figures{}, fmt.Errorf("the machine is estimated, not measured: %w", err)
	}
	m.CoreShare = min(m.CoreShare, threads.CoreShare(shareTime))
	f := m.Figures
	if path == "" {
		return f, nil
	}
	stored.SchemaVersion = fileVersion
	stored.Rooflines = slices.DeleteFunc(stored.Rooflines, func(e entry) bool { return id.Differs(e.ID) == "" })
	stored.Rooflines = slices.Insert(stored.Rooflines, 0, m)
	stored.Rooflines = stored.Rooflines[:min(len(stored.Rooflines), maxEntries)]
	// Where nothing can be written, as in a child without a file system, that is meant.
	if err := WriteRecord(path, stored); err != nil && !errors.Is(err, syscall.EROFS) {
		log.Warn("graft: figures of this machine", "error", err)
	}
	return f, nil
}

// read reads the file; what cannot be read is as if nothing had been stored.
func read(folder string) (path string, stored file, err error) {
	if folder == "" {
		if folder, err = storage.CacheFolder(); err != nil {
			return "", stored, err
		}
	}
	path = filepath.Join(folder, fileName)
	if err = ReadRecord(path, fileVersion, &stored); err != nil {
		stored = file{}
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	return path, stored, err
}

// cpu names the processor: by what the system says of the first one.
func cpu() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	return cpuOf(string(data))
}

func cpuOf(info string) string {
	var parts []string
	first, _, _ := strings.Cut(info, "\n\n")
	for _, name := range []string{"model name", "cpu family", "model", "stepping", "CPU implementer", "CPU part"} {
		for line := range strings.Lines(first) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
				if value = strings.TrimSpace(value); name != "model name" {
					value = name + " " + value
				}
				parts = append(parts, value)
			}
		}
	}
	if parts == nil {
		return runtime.GOARCH
	}
	return strings.Join(parts, ", ")
}
