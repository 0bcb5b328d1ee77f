package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/plugin/library"
)

func (c *cli) version() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the versions of graft, of the plugin ABI that it speaks, and of Go",
		Example: "  graft version\n  graft version -o json",
		Args:    exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				SchemaVersion int    `json:"schema_version"`
				Version       string `json:"version"`
				ABI           string `json:"abi"`
				Go            string `json:"go"`
				Platform      string `json:"platform"`
			}{schemaVersion, buildVersion(), library.HostABI.String(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return c.print(v, func(w *page) {
				w.println(versionLine())
			})
		},
	}
}

// versionLine is what graft version and graft --version print.
func versionLine() string {
	return fmt.Sprintf("graft %s, plugin ABI %s, %s, %s/%s", buildVersion(), library.HostABI, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// buildVersion is the module's version, or the revision that it was built from.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
