package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/distribute/store"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/fetch"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// diagnosis is the JSON object of graft doctor.
type diagnosis struct {
	Ready       bool                    `json:"ready"` // a runtime, and a plugin that runs
	Verdict     string                  `json:"verdict"`
	Runtime     foundRuntime            `json:"runtime"`
	Plugins     []foundPlugin           `json:"plugins"`
	Searched    []discovery.Place       `json:"searched"`
	CPU         foundCPU                `json:"cpu"`
	Devices     []foundDevice           `json:"devices"`
	FirstRun    foundChild              `json:"first_run"`
	Sharing     foundSharing            `json:"sharing"`
	Fixes       []string                `json:"fixes"` // what to do about what is missing
	Environment *comparison.Environment `json:"environment,omitempty"`
	Machine     *roofline               `json:"machine,omitempty"` // measured now

	fetchable  bool     // no runtime was found, and none was named
	unverified []string // folders of plugins that only have to be verified
}

type foundRuntime struct {
	Path      string   `json:"path,omitempty"`
	Source    string   `json:"source,omitempty"`
	Version   string   `json:"version,omitempty"`
	Providers []string `json:"providers,omitempty"`
	Problem   string   `json:"problem,omitempty"`
}

type foundPlugin struct {
	Name     string         `json:"name"`
	Version  string         `json:"version"`
	Folder   string         `json:"folder"`
	Source   string         `json:"source"`
	Variants []foundVariant `json:"variants"`
	Problem  string         `json:"problem,omitempty"`
}

type foundVariant struct {
	Device  string `json:"device"`
	File    string `json:"file"`
	Score   int    `json:"score"` // 0: cannot run here
	Problem string `json:"problem,omitempty"`
}

// foundChild is how a child is held on this system, in which plugins run for the first time.
type foundChild struct {
	Held    []worker.Layer `json:"held"`
	Problem string         `json:"problem,omitempty"` // why there is none
}

type foundCPU struct {
	Name  string   `json:"name"`
	Cores int      `json:"cores"`
	ISA   []string `json:"isa"`
}

func findChild() foundChild {
	child, err := worker.Start(context.Background(), worker.Options{Subject: "first run"})
	if err != nil {
		return foundChild{Held: []worker.Layer{}, Problem: err.Error()}
	}
	defer child.Close()
	return foundChild{Held: child.Layers()}
}

func (c *cli) doctor() *cobra.Command {
	var bring, fix, measure bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Show what was found: runtime, plugins and their variants, CPU, devices; and what to do about what was not",
		Example: `  graft doctor
  graft doctor --fix        # do what it advises: fetch ONNX Runtime, verify plugins
  graft doctor --fetch      # bring the pinned ONNX Runtime into the cache first
  graft doctor -o json | jq .fixes`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if bring {
				path, err := fetch.Runtime(cmd.Context(), func(line string) { c.say("%s", line) })
				if err != nil {
					return err
				}
				c.say("ONNX Runtime is at %s", path)
				if c.quiet {
					return nil
				}
			}
			if measure {
				if err := c.measureRoofline(); err != nil {
					c.say("graft: %v", err)
				}
			}
			d := c.diagnose(measure)
			if fix && d.fixable() {
				if err := c.fix(cmd.Context(), d); err != nil {
					return err
				}
				d = c.diagnose(measure)
			}
			if err := c.print(d, func(w *page) { d.text(w) }); err != nil {
				return err
			}
			if d.Runtime.Problem != "" {
				return fmt.Errorf("no usable ONNX Runtime: %w", errSaid)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&bring, "fetch", false,
		"bring the pinned ONNX Runtime into the cache; with --quiet do nothing else")
	cmd.Flags().BoolVar(&fix, "fix", false,
		"fetch ONNX Runtime where none is found, and verify plugins that were not, before looking")
	cmd.Flags().BoolVar(&measure, "measure", false,
		"measure the machine's memory bandwidth and arithmetic, which graft inspect's estimates rest on")
	return cmd
}

// fixable reports whether fix has anything to do.
func (d *diagnosis) fixable() bool { return d.fetchable || len(d.unverified) > 0 }

// fix does what can be done without asking: it fetches the runtime and runs plugins apart for the first
// time.
func (c *cli) fix(ctx context.Context, d *diagnosis) error {
	if d.fetchable {
		path, err := fetch.Runtime(ctx, func(line string) { c.say("%s", line) })
		if err != nil {
			return err
		}
		c.say("ONNX Runtime is at %s", path)
	}
	if len(d.unverified) == 0 {
		return nil
	}
	s, err := store.User()
	if err != nil {
		return err
	}
	_, err = s.Verify(ctx, d.unverified, c.checks(0))
	return err
}

func (c *cli) diagnose(measure bool) *diagnosis {
	d := &diagnosis{Plugins: []foundPlugin{}, Fixes: []string{}}
	d.findDevices()
	d.CPU = foundCPU{Name: comparison.CPUName(), Cores: runtime.NumCPU(), ISA: comparison.InstructionSets()}
	d.FirstRun, d.Sharing = findChild(), findSharing()
	l := d.findRuntime(c.runtime)
	if measure {
		e := comparison.Measure(l)
		d.Environment = &e
		_, m := recorded()
		d.Machine = &m
	}
	search := discovery.Find(discovery.Options{Folders: c.folders})
	d.Searched = search.Places
	for _, f := range search.Found {
		d.Plugins = append(d.Plugins, d.examine(f))
	}
	if len(search.Found) == 0 {
		d.advise("install a plugin with: graft plugin install DIR, or set " + discovery.PathVariable +
			" to a folder of plugins")
	}
	d.judge()
	return d
}

// judge says in one line whether graft works here.
func (d *diagnosis) judge() {
	running := 0
	for i := range d.Plugins {
		if d.Plugins[i].runs() {
			running++
		}
	}
	var missing []string
	if d.Runtime.Problem != "" {
		missing = append(missing, "no usable ONNX Runtime")
	}
	if running == 0 {
		missing = append(missing, "no plugin that runs")
	}
	if d.Ready = len(missing) == 0; d.Ready {
		d.Verdict = fmt.Sprintf("ready: ONNX Runtime %s, %d of %d plugins run here", d.Runtime.Version, running,
			len(d.Plugins))
		return
	}
	d.Verdict = "not ready: " + strings.Join(missing, ", ")
	if d.fixable() {
		d.Verdict += "; run: graft doctor --fix"
	}
}

func (d *diagnosis) findRuntime(option string) *ort.Library {
	at, err := ort.Find(option)
	if err != nil {
		d.Runtime.Problem = err.Error()
		d.fetchable = option == "" && os.Getenv(ort.EnvPath) == ""
		d.advise("run: graft doctor --fetch, or set " + ort.EnvPath + " to a libonnxruntime of your own")
		return nil
	}
	d.Runtime.Path, d.Runtime.Source = at.Path, at.Source
	l, err := ort.Open(at.Path)
	if err != nil {
		d.Runtime.Problem = err.Error()
		d.advise("name another libonnxruntime with " + ort.EnvPath + " or --onnxruntime")
		return nil
	}
	d.Runtime.Version = l.Version()
	d.Runtime.Providers, _ = l.Providers()
	return l
}

// examine loads a plugin that may be loaded and asks each variant about this
// machine.
func (d *diagnosis) examine(f discovery.Found) foundPlugin {
	p := foundPlugin{Folder: f.Folder, Source: f.Source, Variants: []foundVariant{}}
	if f.Err != nil {
		p.Problem = d.problem(f.Err)
		return p
	}
	p.Name, p.Version = f.Manifest.Name, f.Manifest.Version
	if f.ShadowedBy != "" {
		p.Problem = "the plugin of the same name in " + f.ShadowedBy + " is used"
	}
	for i := range f.Manifest.Variants {
		v := &f.Manifest.Variants[i]
		found := foundVariant{Device: v.Device, File: v.File}
		switch {
		case v.OS != runtime.GOOS || v.Arch != runtime.GOARCH:
			found.Problem = "for " + v.OS + "/" + v.Arch
		default:
			loaded, err := plugin.Open(f.Folder, plugin.OpenOptions{Device: v.Device})
			if err == nil {
				found.Score, found.Problem, err = loaded.Probe(tensor.Device{Kind: v.Device})
			}
			switch {
			case err == nil:
			case errors.Is(err, refusal.ErrNotFound) && f.Manifest.Has(f.Folder, other[v.Device]):
				found.Problem = "absent"
			case errors.Is(err, refusal.ErrDevice):
				found.Problem = said(err) // a machine need not have every device
			default:
				found.Problem = d.problem(err)
				if errors.Is(err, refusal.ErrVerification) && !slices.Contains(d.unverified, f.Folder) {
					d.unverified = append(d.unverified, f.Folder)
				}
			}
		}
		p.Variants = append(p.Variants, found)
	}
	return p
}

// other is the device whose variant runs where one's file is absent.
var other = map[string]string{"cpu": "cuda", "cuda": "cpu"}

// advise notes what to do, once.
func (d *diagnosis) advise(what string) {
	if what != "" && !slices.Contains(d.Fixes, what) {
		d.Fixes = append(d.Fixes, what)
	}
}

// problem is what was found, and its fix goes to the fixes.
func (d *diagnosis) problem(err error) string {
	var e *diagnostic.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	d.advise(e.Fix)
	return said(err)
}

// said is what was found and what is needed.
func said(err error) string {
	var e *diagnostic.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	text := e.Found
	if e.Needed != "" {
		text += ", needed " + e.Needed
	}
	return text
}

// runs reports whether a variant of the plugin runs here.
func (p *foundPlugin) runs() bool {
	return p.Problem == "" &&
		slices.ContainsFunc(p.Variants, func(v foundVariant) bool { return v.Problem == "" && v.Score > 0 })
}

func (d *diagnosis) text(w *page) {
	mark := func(ok bool) string {
		if ok {
			return "ok"
		}
		return "--"
	}
	w.println(d.Verdict)
	r := d.Runtime
	if r.Problem == "" {
		w.printf("ok  ONNX Runtime %s, %s (%s)\n", r.Version, r.Path, r.Source)
		w.printf("    providers: %s\n", strings.Join(r.Providers, ", "))
	} else {
		first, places, searched := strings.Cut(r.Problem, "\n")
		if searched {
			first, _, _ = strings.Cut(first, ",")
			first += fmt.Sprintf(" in %d places, which graft doctor -o json lists", strings.Count(places, "\n")+1)
		}
		w.printf("--  ONNX Runtime: %s\n", first)
	}
	for _, p := range d.Plugins {
		name := strings.TrimSpace(p.Name + " " + p.Version)
		if name == "" {
			name = "that cannot be read"
		}
		w.printf("%s  plugin %s, %s (%s)\n", mark(p.runs()), name, p.Folder, p.Source)
		if p.Problem != "" {
			w.printf("    %s\n", p.Problem)
		}
		for _, v := range p.Variants {
			w.printf("    %s  %s: %s", mark(v.Problem == ""), v.Device, v.File)
			if v.Problem != "" {
				w.printf(": %s", v.Problem)
			} else {
				w.printf(", score %d", v.Score)
			}
			w.println()
		}
	}
	if len(d.Plugins) == 0 {
		w.println("--  no plugins; searched:")
		for _, s := range d.Searched {
			w.printf("    %s (%s) %s\n", s.Folder, s.Source, s.Problem)
		}
	}
	w.printf("ok  CPU %s, %d cores, %s\n", d.CPU.Name, d.CPU.Cores, strings.Join(d.CPU.ISA, " "))
	if d.Environment != nil {
		w.printf("    reads %.1f GB/s from memory, operators %.1f GB/s; computes %.0f GFLOP/s\n",
			d.Environment.MemoryBandwidthGB, d.Machine.BandwidthGB, d.Machine.GFLOPS)
	}
	if !slices.ContainsFunc(d.Devices, func(f foundDevice) bool { return f.Problem == "" }) {
		w.println("--  no accelerator: CPU variants are used")
	}
	for _, dev := range d.Devices {
		w.println(dev)
	}
	if d.FirstRun.Problem != "" {
		w.printf("--  first runs of plugins: %s\n", d.FirstRun.Problem)
	} else {
		w.printf("ok  first runs of plugins are held by %s\n", worker.Held(d.FirstRun.Held))
	}
	d.Sharing.text(w)
	if len(d.Fixes) > 0 {
		w.printf("\nto do:\n")
	}
	for _, m := range d.Fixes {
		w.printf("  %s\n", m)
	}
}
