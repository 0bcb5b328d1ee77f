package plugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/opgraft/graft/host/diagnostic"

	"github.com/opgraft/graft/host/worker"
)

// CheckOptions say how a library is run for the first time.
type CheckOptions struct {
	// Deadline bounds each task of the child: loading, probing, each case. 0 is 30 seconds.
	Deadline time.Duration
	// Progress is called before each step; may be nil.
	Progress func(Progress)
	// Executable is the child's program; empty for worker's own choice.
	Executable string
	// Search says where Verify looks for a name that is not installed.
	Search DiscoverOptions
}

// Progress is one step of an installation or a verification.
type Progress struct {
	Step        string // what is about to happen
	Done, Total int    // steps; Total is 0 where it is not known yet
}

func (o *CheckOptions) progress(done, total int, format string, args ...any) {
	if o.Progress != nil {
		o.Progress(Progress{Step: fmt.Sprintf(format, args...), Done: done, Total: total})
	}
}

// Checked is a library that has run apart and passed.
type Checked struct {
	Path   string       `json:"path"`
	Device string       `json:"device"`
	SHA256 string       `json:"sha256"`
	Info   *Info        `json:"info"`
	Score  int          `json:"score"` // of this machine
	Cases  []CaseResult `json:"cases"`
}

// verified is what the record keeps of it.
func (c *Checked) verified(m *Manifest) Verified {
	return Verified{Name: m.Name, Version: m.Version, Device: c.Device, ABI: m.ABI, Cases: len(c.Cases), Time: time.Now().UTC().Truncate(time.Second)}
}

// Skipped is a library for this platform that was not run.
type Skipped struct {
	File   string `json:"file"`
	Device string `json:"device"`
	Reason string `json:"reason"`
}

// checks are the results for a plugin's folder.
type checks struct {
	manifest *Manifest
	run      []Checked
	skipped  []Skipped
}

// checkFolder checks a plugin's folder: every library there is by its ELF file, and those for this machine
// by running them in a child each. A variant whose file is absent, and one for a device that this machine
// lacks, are skipped while another serves; the child learns of the device, as a driver too can end its
// process.
func checkFolder(ctx context.Context, folder string, opts CheckOptions) (*checks, error) {
	manifest, err := ReadManifest(folder)
	if err != nil {
		return nil, err
	}
	result := &checks{manifest: manifest, run: []Checked{}, skipped: []Skipped{}}
	var run []*Variant
	for i := range manifest.Variants {
		v := &manifest.Variants[i]
		platform := Platform{OS: v.OS, Arch: v.Arch}
		if absent(folder, v) {
			if platform == ThisPlatform {
				result.skipped = append(result.skipped, Skipped{v.File, v.Device, "absent"})
			}
			continue // a folder built on one machine need not have the libraries of others
		}
		library, err := InspectLibrary(filepath.Join(folder, v.File))
		if err != nil {
			return nil, err
		}
		if err := library.Check(HostABI, platform); err != nil {
			return nil, err
		}
		if err := library.Agree(manifest, v); err != nil {
			return nil, err
		}
		if platform == ThisPlatform {
			run = append(run, v)
		}
	}
	if len(run) == 0 {
		return nil, manifest.noVariant(folder)
	}
	var refused error
	for _, v := range run {
		c, err := checkVariant(ctx, folder, manifest, v, opts)
		switch {
		case err != nil && errors.Is(err, ErrDevice):
			result.skipped = append(result.skipped, Skipped{v.File, v.Device, err.Error()})
			refused = err
		case err != nil:
			return nil, err
		default:
			result.run = append(result.run, *c)
		}
	}
	if len(result.run) == 0 {
		return nil, refused
	}
	return result, nil
}

// noVariant says that a folder has no library for this machine.
func (m *Manifest) noVariant(folder string) error {
	for _, v := range m.ForPlatform(ThisPlatform) {
		if _, err := InspectLibrary(filepath.Join(folder, v.File)); err != nil {
			return err
		}
	}
	_, err := m.VariantFor("cpu", ThisPlatform)
	return err
}

// checkVariant runs one library in a child of its own.
func checkVariant(ctx context.Context, folder string, m *Manifest, v *Variant, opts CheckOptions) (*Checked, error) {
	p, err := prepareVariant(folder, m, v)
	if err != nil {
		return nil, err
	}
	cases := 0
	if v.Device == "cpu" { // cases of other devices need memory on the device
		cases = len(m.Cases)
	}
	total := 2 + cases
	opts.progress(0, total, "loading %s in a child process", v.File)
	child, err := worker.Start(ctx, worker.Options{Subject: p.Path, Deadline: opts.Deadline, Executable: opts.Executable})
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &diagnostic.Error{Kind: ErrVerification, Found: err.Error(), Cause: err}
	}
	defer child.Close()
	at := libraryAt{Folder: folder, Device: v.Device}
	c := &Checked{Path: p.Path, Device: v.Device, SHA256: p.SHA256, Cases: []CaseResult{}}
	if c.Info, err = ask[*Info](ctx, child, taskDescribe, at); err != nil {
		return nil, err
	}
	opts.progress(1, total, "probing %s", v.File)
	probe, err := ask[probeAnswer](ctx, child, taskProbe, at)
	if err != nil {
		return nil, err
	}
	if probe.Score == 0 {
		refusal := incompatible(p.Path, "that it cannot run on this machine: "+probe.Reason, "", "install a plugin or a build that suits this machine")
		if v.Device != "cpu" {
			refusal.Kind = ErrDevice
		}
		return nil, refusal
	}
	c.Score = probe.Score
	for i := range cases {
		opts.progress(2+i, total, "case %s", m.Cases[i].Name)
		result, err := ask[*CaseResult](ctx, child, taskCase, caseRequest{At: at, Case: i})
		if err != nil {
			return nil, err
		}
		if result.Problem != "" {
			return nil, &diagnostic.Error{Kind: ErrVerification, Path: p.Path, Found: fmt.Sprintf("case %q failed: %s", result.Name, result.Problem),
				Fix: "report this to the plugin's author; do not use it"}
		}
		c.Cases = append(c.Cases, *result)
	}
	if sha, err := hashFile(p.Path); err != nil || sha != p.SHA256 {
		return nil, &diagnostic.Error{Kind: ErrVerification, Path: p.Path, Found: "found that the file changed while it was checked", Fix: "wait until its build is done, then try again", Cause: err}
	}
	return c, nil
}
