// Package verification runs a plugin's libraries for the first time, in a child process each.
package verification

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/conformance"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/library"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/matching"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/trust"
)

// Options say how a library is run for the first time.
type Options struct {
	// Deadline bounds each task of the child: loading, probing, each case. 0 is 30 seconds.
	Deadline time.Duration
	// Progress is called before each step; may be nil.
	Progress func(Progress)
	// Executable is the child's program; empty for worker's own choice.
	Executable string
	// Own is set where the plugin is the work of who runs it: see worker.Options.
	Own bool
	// Search says where a store looks for a name that is not installed, and for others of the name of what it installs.
	Search discovery.Options
	// Replace is the name that what is installed may take from a plugin of another source.
	Replace string
	// AllowUnsigned installs an archive without the signature of a trusted key, and records that.
	AllowUnsigned bool
	// From is where what is installed was brought from, for records and messages; "" for the path itself.
	From string
	// Accept refuses a plugin by its manifest, before any of it runs; may be nil.
	Accept func(*manifest.Manifest) error
}

// Progress is one step of an installation or a verification.
type Progress struct {
	Step        string // what is about to happen
	Done, Total int    // steps; Total is 0 where it is not known yet
}

// Report tells Progress of a step, if there is one to tell.
func (o *Options) Report(done, total int, format string, args ...any) {
	if o.Progress != nil {
		o.Progress(Progress{Step: fmt.Sprintf(format, args...), Done: done, Total: total})
	}
}

// advised is a refusal with advice for who it is for: an author is not told to write to himself.
func (o *Options) advised(err error) error {
	e, ok := err.(*diagnostic.Error)
	if !ok || !o.Own || !strings.HasPrefix(e.Fix, "report this to its author") {
		return err
	}
	own := *e
	own.Fix = "correct the library: graft_plugin.h says what it must be"
	return &own
}

// Checked is a library that has run apart and passed.
type Checked struct {
	Path   string               `json:"path"`
	Device string               `json:"device"`
	SHA256 string               `json:"sha256"`
	Info   *plugin.Info         `json:"info"`
	Score  int                  `json:"score"` // of this machine
	Cases  []conformance.Result `json:"cases"`
	// Held are the ways in which the child was held, with those that this system does not allow.
	Held []worker.Layer `json:"held"`
}

// Skipped is a library for this platform that was not run.
type Skipped struct {
	File   string `json:"file"`
	Device string `json:"device"`
	Reason string `json:"reason"`
}

// Result is what came out for a plugin's folder.
type Result struct {
	Manifest *manifest.Manifest
	Files    content.Files // of the folder, as they were when the libraries ran
	Checked  []Checked
	Skipped  []Skipped
	Tests    []matching.Tested // graphs that patterns must and must not match, as they do
}

// Verified is what is to be recorded of it, in a folder.
func (r *Result) Verified(folder string) trust.Verified {
	m := r.Manifest
	v := trust.Verified{Name: m.Name, Version: m.Version, ABI: m.ABI, Time: time.Now().UTC().Truncate(time.Second),
		Folders: []string{folder},
		Files:   r.Files, Libraries: map[string]trust.Ran{}}
	for _, c := range r.Checked {
		v.Libraries[filepath.Base(c.Path)] = trust.Ran{Device: c.Device, Cases: len(c.Cases)}
	}
	return v
}

// Folder checks a plugin's folder: the graphs that its patterns must and must not match, every library there is by
// its ELF file, and those for this machine by running them in a child each. A variant whose file is absent, and one
// for a device that this machine lacks, are skipped while another is left; the child learns of the device, as a
// driver too can end its process.
func Folder(ctx context.Context, folder string, opts Options) (*Result, error) {
	m, err := manifest.Read(folder)
	if err != nil {
		return nil, err
	}
	result := &Result{Manifest: m, Checked: []Checked{}, Skipped: []Skipped{}, Tests: []matching.Tested{}}
	if result.Files, err = content.Read(folder, map[string]string{manifest.FileName: m.SHA256()}); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(m.Operators, func(op manifest.Operator) bool { return op.Tests != nil }) {
		opts.Report(0, 0, "looking through the graphs of %s", manifest.FileName)
	}
	if result.Tests, err = matching.Test(ctx, folder, m); err != nil {
		return nil, err
	}
	for _, t := range result.Tests {
		if t.Err != nil {
			return nil, t.Err
		}
	}
	var run []*manifest.Variant
	for i := range m.Variants {
		v := &m.Variants[i]
		platform := manifest.Platform{OS: v.OS, Arch: v.Arch}
		if manifest.Absent(folder, v) {
			if platform == manifest.ThisPlatform {
				result.Skipped = append(result.Skipped, Skipped{v.File, v.Device, "absent"})
			}
			continue // a folder built on one machine need not have the libraries of others
		}
		l, err := library.Read(filepath.Join(folder, v.File))
		if err != nil {
			return nil, err
		}
		if err := l.Check(library.HostABI, platform); err != nil {
			return nil, err
		}
		if err := l.Agree(m, v); err != nil {
			return nil, err
		}
		if platform == manifest.ThisPlatform {
			run = append(run, v)
		}
	}
	if len(run) == 0 {
		return nil, noVariant(m, folder)
	}
	var refused error
	for _, v := range run {
		c, err := checkVariant(ctx, folder, result, v, opts)
		switch {
		case err != nil && errors.Is(err, refusal.ErrDevice):
			result.Skipped = append(result.Skipped, Skipped{v.File, v.Device, err.Error()})
			refused = err
		case err != nil:
			return nil, err
		default:
			result.Checked = append(result.Checked, *c)
		}
	}
	if len(result.Checked) == 0 {
		return nil, refused
	}
	if slices.ContainsFunc(result.Checked, func(c Checked) bool { return c.Device == "cpu" }) {
		if err := HasCases(m, folder); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// noVariant says that a folder has no library for this machine.
func noVariant(m *manifest.Manifest, folder string) error {
	for _, v := range m.ForPlatform(manifest.ThisPlatform) {
		if _, err := library.Read(filepath.Join(folder, v.File)); err != nil {
			return err
		}
	}
	_, err := m.VariantFor("cpu", manifest.ThisPlatform)
	return err
}

// checkVariant runs one library, whose ELF file is checked, in a child of its own.
func checkVariant(ctx context.Context, folder string, r *Result, v *manifest.Variant, opts Options) (*Checked, error) {
	path, m := filepath.Join(folder, v.File), r.Manifest
	cases := 0
	if v.Device == "cpu" { // cases of other devices need memory on the device
		cases = len(m.Cases)
	}
	total := 2 + cases
	opts.Report(0, total, "loading %s in a child process", v.File)
	child, err := worker.Start(ctx,
		worker.Options{Subject: path, Deadline: opts.Deadline, Driver: v.Device != "cpu", Executable: opts.Executable,
			Own: opts.Own})
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, ofChild(err)
	}
	defer child.Close()
	at := libraryAt{Folder: folder, Device: v.Device, Files: r.Files}
	c := &Checked{Path: path, Device: v.Device, SHA256: r.Files[v.File].SHA256, Cases: []conformance.Result{},
		Held: child.Layers()}
	if c.Info, err = ask[*plugin.Info](ctx, child, taskDescribe, at); err != nil {
		return nil, opts.advised(err)
	}
	if err := declared(m, c.Info.Operators, v.Device); err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrVerification, Path: filepath.Join(folder, manifest.FileName),
			Found: err.Error(), Cause: err,
			Fix: "correct the manifest or the library"}
	}
	opts.Report(1, total, "probing %s", v.File)
	probe, err := ask[probeAnswer](ctx, child, taskProbe, at)
	if err != nil {
		return nil, opts.advised(err)
	}
	if probe.Score == 0 {
		refused := refusal.Incompatible(path, "that it cannot run on this machine: "+probe.Reason, "",
			"install a plugin or a build that suits this machine")
		if v.Device != "cpu" {
			refused.Kind = refusal.ErrDevice
		}
		return nil, refused
	}
	c.Score = probe.Score
	for i := range cases {
		opts.Report(2+i, total, "case %s", m.Cases[i].Name)
		result, err := ask[*conformance.Result](ctx, child, taskCase, caseRequest{At: at, Case: i, Name: m.Cases[i].Name})
		if err != nil {
			return nil, err
		}
		if result.Problem != "" {
			fix := "report this to the plugin's author; do not use it"
			if opts.Own {
				fix = "correct the operator " + m.Cases[i].Operator + ", or the case"
			}
			return nil, &diagnostic.Error{Kind: refusal.ErrVerification, Path: path,
				Found: fmt.Sprintf("case %q failed: %s", result.Name, result.Problem), Fix: fix}
		}
		c.Cases = append(c.Cases, *result)
	}
	return c, nil
}

// HasCases refuses a manifest that puts operators into models, or folds constants, and has no case that does so:
// nothing would have run any of that before a program does.
func HasCases(m *manifest.Manifest, folder string) error {
	var lacking []string
	for _, name := range m.Emits() {
		if !slices.ContainsFunc(m.Cases, func(c manifest.Case) bool { return c.Operator == name && c.Fold == nil }) {
			lacking = append(lacking, name)
		}
	}
	for _, op := range m.Operators {
		if op.Folds() && !slices.ContainsFunc(m.Cases,
			func(c manifest.Case) bool { return c.Operator == op.Name && c.Fold != nil }) {
			lacking = append(lacking, "the fold of "+op.Name)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return &diagnostic.Error{Kind: refusal.ErrVerification, Path: filepath.Join(folder, manifest.FileName),
		Found:  "found no case for " + strings.Join(lacking, ", "),
		Needed: "a case for each operator, so that it runs before a program runs it",
		Fix:    "add one under cases: name, operator, inputs, expect, tolerance"}
}

// ofChild is an error of the child as one of kind ErrVerification, its parts as they are.
func ofChild(err error) error {
	refused := &diagnostic.Error{Kind: refusal.ErrVerification, Found: err.Error(), Cause: err}
	if e := (*diagnostic.Error)(nil); errors.As(err, &e) {
		refused.Path, refused.Found, refused.Needed, refused.Fix = e.Path, e.Found, e.Needed, e.Fix
	}
	return refused
}
