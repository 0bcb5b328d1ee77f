package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/ort/fetch"
	"github.com/opgraft/graft/host/plugin/embedded"
	"github.com/opgraft/graft/host/plugin/library"
)

// What a build says of itself: cmd/release sets these when it links, and the Makefile the last two.
var release, commit, date string

func (c *cli) version() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the versions of graft, of what is inside of it, of the plugin ABI that it speaks, and of Go",
		Example: "  graft version\n  graft version -o json",
		Args:    exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			inside, err := embedded.Plugins()
			if err != nil {
				return err
			}
			built, _ := debug.ReadBuildInfo()
			commit, date := source(built)
			v := struct {
				Version  string           `json:"version"`
				Commit   string           `json:"commit,omitempty"`
				Date     string           `json:"date,omitempty"`
				ABI      string           `json:"abi"`
				Go       string           `json:"go"`
				Platform string           `json:"platform"`
				ORT      string           `json:"onnxruntime"` // the one that doctor --fetch brings
				Plugins  []includedPlugin `json:"plugins"`
			}{buildVersion(), commit, date, library.HostABI.String(), runtime.Version(),
				runtime.GOOS + "/" + runtime.GOARCH, fetch.Version, []includedPlugin{}}
			for _, p := range inside {
				v.Plugins = append(v.Plugins, includedPlugin{p.Name, p.Version})
			}
			return c.print(v, func(w *page) {
				w.println(versionLine())
				if commit != "" {
					w.printf("commit %s, %s\n", commit, date)
				}
				w.printf("ONNX Runtime that doctor --fetch brings: %s\n", fetch.Version)
				for _, p := range v.Plugins {
					w.printf("plugin %s %s inside\n", p.Name, p.Version)
				}
			})
		},
	}
}

// includedPlugin is a plugin inside of this program.
type includedPlugin struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// versionLine is what graft version and graft --version print.
func versionLine() string {
	return fmt.Sprintf("graft %s, plugin ABI %s, %s, %s/%s", buildVersion(), library.HostABI, runtime.Version(),
		runtime.GOOS, runtime.GOARCH)
}

// source is the commit that this program was built from, and its date: what the linker was given, or else what go build
// noted. "" for none.
func source(built *debug.BuildInfo) (string, string) {
	revision, time := commit, date
	if revision == "" && built != nil {
		for _, s := range built.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value
			case s.Key == "vcs.time":
				time = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				revision += "-dirty"
			}
		}
	}
	return revision, time
}

// buildVersion is the release's or the module's version, or the revision that it was built from.
func buildVersion() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
