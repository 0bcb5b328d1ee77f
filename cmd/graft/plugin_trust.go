package main

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/distribute/signing"
)

func (c *cli) pluginTrust() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "trust",
		Short:   "Say whose signatures are accepted when plugins are installed",
		Example: "  graft plugin trust add me.pub --name me\n  graft plugin trust list",
		Args:    noCommand,
		RunE:    showHelp,
	}
	cmd.AddCommand(c.pluginTrustAdd(), c.pluginTrustList(), c.pluginTrustRemove())
	return cmd
}

func (c *cli) pluginTrustAdd() *cobra.Command {
	var (
		name    string
		plugins []string
	)
	cmd := &cobra.Command{
		Use:   "add KEY|FILE.pub",
		Short: "Accept what a key signs, from now on",
		Long: `Adds a public key, as text or as a file of minisign's, to those whose signatures are accepted. Take it from
where you know that it is its owner's: their site over https, or another way than the archive came.`,
		Example: "  graft plugin trust add me.pub --name me\n  graft plugin trust add me.pub --for flash-decode,fused-gelu",
		Args:    exactly(1, "a public key or its file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := signing.ReadPublic(args[0])
			if err != nil {
				return err
			}
			trusted, err := signing.User()
			if err != nil {
				return err
			}
			added, err := trusted.Add(cmd.Context(), k, name, plugins)
			if err != nil {
				return err
			}
			return c.print(added, func(w *page) {
				w.printf("trusting the key %s for %s\n", added.ID, trustedFor(added))
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "what you call its owner")
	cmd.Flags().StringSliceVar(&plugins, "for", nil, "plugins that it may sign; all without it")
	return cmd
}

// trustedFor says what a key may sign.
func trustedFor(k signing.Key) string { return cmp.Or(strings.Join(k.Plugins, ", "), "all plugins") }

func (c *cli) pluginTrustList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the keys whose signatures are accepted",
		Example: "  graft plugin trust list",
		Args:    exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			trusted, err := signing.User()
			if err != nil {
				return err
			}
			keys, err := trusted.Read()
			if err != nil {
				return err
			}
			return c.print(struct {
				Keys signing.Keys `json:"keys"`
			}{keys}, func(w *page) {
				if len(keys) == 0 {
					w.println("no key is trusted; add one with: graft plugin trust add FILE.pub")
					return
				}
				table := [][]string{{"id", "name", "for", "key"}}
				for _, k := range keys {
					table = append(table, []string{k.ID, k.Name, trustedFor(k), k.Key})
				}
				w.table(table)
			})
		},
	}
}

func (c *cli) pluginTrustRemove() *cobra.Command {
	return &cobra.Command{
		Use:     "remove ID|NAME|KEY",
		Short:   "Accept what a key signs no longer; what it signed before stays installed",
		Example: "  graft plugin trust remove me",
		Args:    exactly(1, "the ID or the name of a key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			trusted, err := signing.User()
			if err != nil {
				return err
			}
			removed, err := trusted.Remove(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.print(removed, func(w *page) {
				w.printf("trusting the key %s no longer\n", removed.ID)
			})
		},
	}
}
