package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/distribute/registry"
	"github.com/opgraft/graft/host/distribute/store"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/verification"
)

// outdatedPlugin is an installed plugin of which an index has a newer version.
type outdatedPlugin struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Newest  string `json:"newest"`
	Source  string `json:"source"`
}

func (c *cli) pluginOutdated() *cobra.Command {
	var o registry.Options
	var index string
	cmd := &cobra.Command{
		Use:     "outdated",
		Short:   "List the installed plugins of which an index has a newer version",
		Example: "  graft plugin outdated --index ./index",
		Args:    exactly(0, "no arguments"),
		RunE: withStore(func(cmd *cobra.Command, _ []string, s *store.Store) error {
			installed, err := s.List()
			if err != nil {
				return err
			}
			list, index, err := c.readIndex(cmd.Context(), cmd.CommandPath(), index, o)
			if err != nil {
				return err
			}
			old := []outdatedPlugin{}
			for _, in := range installed {
				e, err := registry.Newest(list, in.Name, platform(), index)
				if err == nil && manifest.CompareVersions(e.Version, in.Version) > 0 {
					old = append(old, outdatedPlugin{in.Name, in.Version, e.Version, e.Source})
				}
			}
			return c.print(struct {
				Index   string           `json:"index"`
				Plugins []outdatedPlugin `json:"plugins"`
			}{index, old}, func(w *page) {
				if len(old) == 0 {
					w.printf("%s installed, and none is newer in %s\n", counted(len(installed), "plugin"), index)
					return
				}
				table := [][]string{{"name", "version", "newest", "upgrade"}}
				for _, p := range old {
					table = append(table, []string{p.Name, p.Version, p.Newest,
						"graft plugin upgrade " + p.Name + " " + p.Source + plainly(o)})
				}
				w.table(table)
			})
		}),
	}
	indexFlag(cmd, &index)
	c.servers(cmd.Flags(), &o)
	return cmd
}

func (c *cli) pluginUpgrade() *cobra.Command {
	var (
		o        registry.Options
		deadline time.Duration
		lock     string
		unsigned bool
	)
	cmd := &cobra.Command{
		Use:   "upgrade NAME DIR|FILE|SOURCE",
		Short: "Install a newer version of a plugin, and retain the one that is installed",
		Long: `Installs a newer version of an installed plugin, from a folder, an archive or a registry, as
graft plugin install does. The version that was current is retained beside it:
graft plugin rollback returns to it.`,
		Example: `  graft plugin upgrade flash-decode flash-decode-0.2.0.tar.gz
  graft plugin upgrade flash-decode oci://ghcr.io/me/flash-decode:0.2.0 --lock graft.lock`,
		Args: exactly(2, "the name of an installed plugin, and where the newer version is"),
		RunE: withStore(func(cmd *cobra.Command, args []string, s *store.Store) error {
			if err := lockIsThere(lock); err != nil {
				return err
			}
			checks := c.checks(deadline)
			checks.AllowUnsigned = unsigned
			done, err := c.bring(cmd.Context(), args[1], o, checks,
				func(path string, checks verification.Options) (*store.Installation, error) {
					return s.Upgrade(cmd.Context(), args[0], path, checks)
				})
			if err != nil {
				return err
			}
			if err := c.relock(lock, done.Name); err != nil {
				return err
			}
			return c.print(struct {
				*store.Installation
				Lock string `json:"lock,omitempty"`
			}{done, lock}, func(w *page) {
				installationText(w, done)
				lockedText(w, lock)
			})
		}),
	}
	c.servers(cmd.Flags(), &o)
	between(cmd.Flags(), &deadline, "deadline", 30*time.Second, time.Millisecond, 24*time.Hour,
		"time that each step of the first run may take")
	cmd.Flags().BoolVar(&unsigned, "allow-unsigned", false, "install an archive that no trusted key signed")
	cmd.Flags().StringVar(&lock, "lock", "", "lock file in which the plugin's entry becomes that of the new version")
	return cmd
}

// installationText says what an installation did.
func installationText(w *page, done *store.Installation) {
	if done.Already {
		w.printf("%s %s is installed already in %s\n", done.Name, done.Version, done.Folder)
	} else {
		w.printf("installed %s %s into %s\n", done.Name, done.Version, done.Folder)
		checkedText(w, done.Checked)
		skippedText(w, done.Skipped)
		testsText(w, done.Tests)
	}
	if done.Unsigned {
		w.println("not signed by a key that you trust, and recorded as such")
	}
	switch {
	case done.Retained:
		w.printf("%s is retained; graft plugin rollback %s returns to it\n", done.Replaced, done.Name)
	case done.Replaced != "":
		w.printf("in place of %s\n", done.Replaced)
	}
}

func (c *cli) pluginRollback() *cobra.Command {
	var to, lock string
	cmd := &cobra.Command{
		Use:   "rollback NAME",
		Short: "Return to the version of a plugin that was current before an upgrade",
		Example: `  graft plugin rollback flash-decode
  graft plugin rollback flash-decode --to 0.1.0`,
		Args: exactly(1, "the name of an installed plugin"),
		RunE: withStore(func(cmd *cobra.Command, args []string, s *store.Store) error {
			if err := lockIsThere(lock); err != nil {
				return err
			}
			done, err := s.Rollback(cmd.Context(), args[0], to)
			if err != nil {
				return err
			}
			if err := c.relock(lock, done.Name); err != nil {
				return err
			}
			return c.print(struct {
				*store.Change
				Lock string `json:"lock,omitempty"`
			}{done, lock}, func(w *page) {
				if done.Already {
					w.printf("%s %s is current already\n", done.Name, done.Version)
				} else {
					w.printf("%s %s is current, and %s is retained\n", done.Name, done.Version, done.From)
				}
				lockedText(w, lock)
			})
		}),
	}
	cmd.Flags().StringVar(&to, "to", "",
		"version to return to, of those that graft plugin list shows as retained; without it the one that was current before")
	cmd.Flags().StringVar(&lock, "lock", "", "lock file in which the plugin's entry becomes that of this version")
	return cmd
}
