package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// man writes the pages for man(1), for packages.
func (c *cli) man() *cobra.Command {
	return &cobra.Command{
		Use:     "man FOLDER",
		Short:   "Write the pages for man",
		Args:    exactly(1, "one folder"),
		Example: "  graft man /usr/share/man/man1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			header := &doc.GenManHeader{Section: "1", Source: "graft " + buildVersion()}
			if at, err := time.Parse(time.RFC3339, date); err == nil {
				header.Date = &at
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, header, args[0])
		},
	}
}
