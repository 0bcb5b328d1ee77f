package main

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/distribute/registry"
	"github.com/opgraft/graft/host/distribute/signing"
	"github.com/opgraft/graft/host/distribute/store"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/library"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/trust"
	"github.com/opgraft/graft/host/plugin/verification"
)

func (c *cli) plugin() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: "Pack, sign, publish, install, list, inspect, verify and remove operator plugins",
		Example: `  graft plugin install ./build/plugins/flash-decode
  graft plugin list`,
		Args: noCommand,
		RunE: showHelp,
	}
	cmd.AddCommand(c.pluginInstall(), c.pluginList(), c.pluginInspect(), c.pluginVerify(), c.pluginRemove(),
		c.pluginPush(), c.pluginPull(),
		c.pluginPack(), c.pluginKeygen(), c.pluginSign(), c.pluginTrust(), c.pluginOutdated(), c.pluginUpgrade(),
		c.pluginRollback(),
		c.pluginLock(), c.pluginBundle())
	cmd.AddCommand(c.pluginNew(), c.pluginBuild(), c.pluginTest(), c.pluginDev(), c.pluginSDK())
	return cmd
}

// withStore is a command over the plugins that the user installed.
func withStore(run func(cmd *cobra.Command, args []string, s *store.Store) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := store.User()
		if err != nil {
			return err
		}
		return run(cmd, args, s)
	}
}

// checks are the options of a library's first run, with its progress as talk.
func (c *cli) checks(deadline time.Duration) verification.Options {
	return verification.Options{Deadline: deadline, Search: discovery.Options{Folders: c.folders},
		Progress: func(p verification.Progress) {
			if p.Total > 0 {
				c.say("[%d/%d] %s", p.Done+1, p.Total, p.Step)
				return
			}
			c.say("%s", p.Step)
		}}
}

func (c *cli) pluginInstall() *cobra.Command {
	var (
		deadline time.Duration
		replace  string
		unsigned bool
		servers  registry.Options
		locked   lockedInstall
		index    string
	)
	cmd := &cobra.Command{
		Use:   "install NAME|DIR|FILE|oci://HOST/NAME:VERSION...",
		Short: "Check a plugin, run it apart for the first time, and put it into the user's data folder",
		Long: `Copies a plugin's folder, or an archive of it, into a staging folder, checks its
manifest and libraries, runs the libraries for this machine in a child process,
records their hashes, and moves the folder into place in one step. NAME or NAME@VERSION is
brought from where an index says (--index), the newest version for this platform.

An archive must be signed by a key that you trust (graft plugin trust), in a file beside it whose name has
` + signing.Suffix + ` more. This is checked before anything is unpacked. A folder is one's own and needs none.`,
		Example: `  graft plugin install ./flash-decode
  graft plugin install flash-decode-0.1.0.tar.gz -o json
  graft plugin install oci://ghcr.io/me/flash-decode:0.1.0
  graft plugin install build/plugins/*
  graft plugin install flash-decode el-attention@0.1.0 --index ./index
  graft plugin install --replace flash-decode flash-decode-0.2.0.tar.gz
  graft plugin install --locked --mirror ./bundle`,
		Args: locked.arguments(atLeast(1, "a folder, an archive, or where to bring one from")),
		RunE: func(cmd *cobra.Command, args []string) error {
			if locked.on {
				checks := c.checks(deadline)
				checks.AllowUnsigned = unsigned
				return c.installLocked(cmd.Context(), &locked, servers, checks)
			}
			s, err := store.User()
			if err != nil {
				return err
			}
			checks := c.checks(deadline)
			checks.Replace, checks.AllowUnsigned = replace, unsigned
			sources, err := c.sources(cmd, args, index, servers)
			if err != nil {
				return err
			}
			list := []*store.Installation{}
			for _, source := range sources {
				done, failed := c.bring(cmd.Context(), source, servers, checks,
					func(path string, checks verification.Options) (*store.Installation, error) {
						return s.Install(cmd.Context(), path, checks)
					})
				if err = failed; err != nil {
					break
				}
				list = append(list, done)
			}
			if err != nil && len(list) == 0 {
				return err
			}
			return errors.Join(c.print(struct {
				Plugins []*store.Installation `json:"plugins"`
			}{list}, func(w *page) {
				for _, done := range list {
					installationText(w, done)
				}
			}), err)
		},
	}
	indexFlag(cmd, &index)
	between(cmd.Flags(), &deadline, "deadline", 30*time.Second, time.Millisecond, 24*time.Hour,
		"time that each step of the first run may take")
	cmd.Flags().StringVar(&replace, "replace", "",
		"name of the plugin, where one of that name from another source is there")
	cmd.Flags().BoolVar(&unsigned, "allow-unsigned", false, "install an archive that no trusted key signed")
	c.servers(cmd.Flags(), &servers)
	locked.flags(cmd.Flags())
	return cmd
}

func (c *cli) pluginList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the plugins that a program would find, in order of preference",
		Example: "  graft plugin list\n  graft plugin list -o json | jq '.plugins[].name'",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			search := discovery.Find(discovery.Options{Folders: c.folders})
			s, err := store.User()
			if err != nil {
				return err
			}
			installed, err := s.List()
			if err != nil {
				return err
			}
			keys, err := s.Keys().Read()
			if err != nil {
				return err
			}
			there := map[string]store.Installed{}
			for _, in := range installed {
				there[in.Folder] = in
			}
			type row struct {
				Name     string `json:"name"`
				Version  string `json:"version"`
				Source   string `json:"source"`
				Folder   string `json:"folder"`
				Key      string `json:"key,omitempty"`
				Unsigned bool   `json:"unsigned,omitempty"`
				Problem  string `json:"problem,omitempty"`
			}
			rows, retained := []row{}, []row{}
			for _, in := range installed {
				for _, old := range in.Retained {
					there[old.Folder] = old
					retained = append(retained,
						row{in.Name, old.Version, discovery.SourceUser, old.Folder, old.Key, old.Unsigned, old.Problem})
				}
			}
			for _, f := range search.Found {
				in := there[f.Folder]
				r := row{Source: f.Source, Folder: f.Folder, Key: in.Key, Unsigned: in.Unsigned, Problem: in.Problem}
				if f.Manifest != nil {
					r.Name, r.Version = f.Manifest.Name, f.Manifest.Version
				}
				switch {
				case f.Err != nil:
					r.Problem = f.Err.Error()
				case f.ShadowedBy != "":
					r.Problem = "hidden by " + f.ShadowedBy
				case r.Problem == "":
					r.Problem = unverified(s.Trust(), f)
				}
				rows = append(rows, r)
			}
			return c.print(struct {
				Plugins  []row             `json:"plugins"`
				Retained []row             `json:"retained"`
				Searched []discovery.Place `json:"searched"`
			}{rows, retained, search.Places}, func(w *page) {
				if len(rows) == 0 {
					if err := search.Err(); err != nil {
						w.println(err)
					}
					return
				}
				list := [][]string{{"name", "version", "source", "folder", ""}}
				for _, r := range rows {
					list = append(list, []string{r.Name, r.Version, r.Source, r.Folder,
						joined(signedBy(there[r.Folder], keys), r.Problem)})
				}
				for _, r := range retained {
					list = append(list, []string{r.Name, r.Version, r.Source, r.Folder,
						joined(signedBy(there[r.Folder], keys),
							cmp.Or(r.Problem, "retained; graft plugin rollback "+r.Name+" --to "+r.Version+" returns to it"))})
				}
				w.table(list)
			})
		},
	}
}

// signedBy says which key signed the archive of an installed plugin; "" for one's own folder.
func signedBy(in store.Installed, keys signing.Keys) string {
	switch k := keys.Named(in.Key); {
	case in.Unsigned:
		return "not signed"
	case in.Key == "":
		return ""
	case k == nil:
		return "signed by a key that is not trusted any more"
	default:
		return "signed by " + cmp.Or(k.Name, k.ID)
	}
}

// joined are the texts that say something.
func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; ")
}

// unverified says why a program would not load the libraries of a plugin for this
// machine, without running them; "" when it would.
func unverified(known *trust.Record, f discovery.Found) string {
	problem := "no library for this machine"
	for _, v := range f.Manifest.ForPlatform(manifest.ThisPlatform) {
		if manifest.Absent(f.Folder, v) {
			continue
		}
		err := plugin.Check(f.Folder, plugin.OpenOptions{Device: v.Device, Trust: known})
		var e *diagnostic.Error
		switch {
		case err == nil:
			return ""
		case errors.Is(err, refusal.ErrVerification) && os.Getenv(plugin.UnverifiedVariable) == "1":
			problem = "not verified, accepted by " + plugin.UnverifiedVariable
			if err := content.Guarded(f.Folder); err != nil {
				problem += "; " + err.Error()
			}
			return problem
		case errors.As(err, &e) && errors.Is(err, refusal.ErrVerification) && e.Path == filepath.Join(f.Folder, v.File):
			problem = "not verified here; run: graft plugin verify " + f.Folder
		default:
			problem = err.Error()
		}
	}
	return problem
}

func (c *cli) pluginInspect() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect NAME|PATH",
		Short: "Show what a plugin's folder, archive or library says of itself, without running it",
		Long: "Reads an installed plugin, or one that a program would find, by its name; or a folder, an archive or a " +
			"library. Nothing of it is run.",
		Example: "  graft plugin inspect ./flash-decode\n  graft plugin inspect libflash_decode.so -o json",
		Args:    exactly(1, "a plugin's name, a folder, an archive or a library"),
		RunE: withStore(func(cmd *cobra.Command, args []string, s *store.Store) error {
			path, err := s.Locate(args[0], discovery.Options{Folders: c.folders})
			if err != nil {
				return err
			}
			in, err := store.Inspect(cmd.Context(), path)
			if err != nil {
				return err
			}
			signed, tampered, err := signatureOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := c.print(struct {
				*store.Inspection
				Signature *signatureRow `json:"signature,omitempty"`
			}{in, signed}, func(w *page) {
				inspectionText(w, in)
				signed.text(w)
			}); err != nil {
				return err
			}
			if tampered != nil {
				return tampered
			}
			for _, l := range in.Libraries {
				if l.Problem != "" {
					return &diagnostic.Error{Kind: refusal.ErrIncompatible, Path: l.File, Found: l.Problem}
				}
			}
			for _, t := range in.Tests {
				if t.Err != nil {
					return t.Err
				}
			}
			return nil
		}),
	}
}

func inspectionText(w *page, in *store.Inspection) {
	if m := in.Manifest; m != nil {
		w.printf("%s %s, ABI %s, %s\n%s\n", m.Name, m.Version, m.ABI, m.License, m.Summary)
		for _, op := range m.Operators {
			provides := ""
			if len(op.Provides) > 0 {
				provides = ", provides " + strings.Join(op.Provides, ", ")
			}
			switch {
			case op.Replaces.Pattern != nil:
				w.printf("  operator %s replaces a pattern of %s%s\n", op.Name, formsText(op.Forms()), provides)
			case op.Replaces.Block != "":
				w.printf("  operator %s replaces block %s%s\n", op.Name, op.Replaces.Block, provides)
			default:
				w.printf("  operator %s%s\n", op.Name, provides)
			}
			testedText(w, op.Name, in.Tests)
		}
	}
	for _, l := range in.Libraries {
		w.printf("%s", l.File)
		if l.Absent {
			w.printf(": absent, for %s\n", l.Variant)
			continue
		}
		if l.Problem != "" {
			w.printf(": %s\n", l.Problem)
			continue
		}
		w.println()
		if lib := l.Library; lib != nil && lib.Note != nil {
			n := lib.Note
			w.printf("  %s %s, ABI %s, %s on %s/%s", n.Name, n.Version, n.ABI, n.Device, n.OS, n.Arch)
			if n.Device == "cuda" {
				w.printf(", CUDA %s, SM %s\n", n.CUDA, strings.Join(n.SM, " "))
			} else {
				w.printf(", instruction sets %s\n", strings.Join(n.ISA, " "))
			}
			w.printf("  needs %s\n", strings.Join(lib.Needed, " "))
			hardeningText(w, lib.Hardening)
		}
	}
}

// hardeningText says what a library was built with against errors in it.
func hardeningText(w *page, h library.Hardening) {
	var has []string
	for _, part := range []struct {
		has  bool
		name string
	}{
		{h.ReadOnly != "none", h.ReadOnly + " read-only relocations"}, {h.SeparateCode, "separate code"},
		{h.StackProtector, "stack protector"},
		{h.Fortified, "fortified functions"}, {h.ControlFlow != "none", "control flow (" + h.ControlFlow + ")"},
	} {
		if part.has {
			has = append(has, part.name)
		}
	}
	text := cmp.Or(strings.Join(has, ", "), "in no way")
	if lacks := h.Lacks(); len(lacks) > 0 {
		text += "; without " + strings.Join(lacks, ", ")
	}
	w.printf("  hardened: %s\n", text)
}

func (c *cli) pluginVerify() *cobra.Command {
	var deadline time.Duration
	cmd := &cobra.Command{
		Use:   "verify [NAME|DIR]...",
		Short: "Check recorded hashes and run the conformance cases apart; without names, of all installed plugins",
		Example: `  graft plugin verify
  graft plugin verify ./build/plugins/flash-decode   # a folder as it stands, without installing it`,
		RunE: withStore(func(cmd *cobra.Command, args []string, s *store.Store) error {
			for _, name := range args {
				c.sayWhich(s, name)
			}
			list, err := s.Verify(cmd.Context(), args, c.checks(deadline))
			if len(list) > 0 {
				if printed := c.print(struct {
					Plugins []store.Verification `json:"plugins"`
				}{list}, func(w *page) { c.verificationText(w, list) }); printed != nil {
					return printed
				}
			}
			return err
		}),
	}
	between(cmd.Flags(), &deadline, "deadline", 30*time.Second, time.Millisecond, 24*time.Hour,
		"time that each step may take")
	return cmd
}

// sayWhich says which plugin a name stands for where a folder of that name lies here too.
func (c *cli) sayWhich(s *store.Store, name string) {
	here, err := filepath.Abs(name)
	if err != nil || filepath.Base(name) != name || !manifest.Exists(here) {
		return
	}
	if folder, err := s.Locate(name, discovery.Options{Folders: c.folders}); err == nil && folder != here {
		c.say("graft: %s is the plugin in %s; the folder of that name here is ./%s", name, folder, name)
	}
}

func (c *cli) verificationText(w *page, list []store.Verification) {
	for _, v := range list {
		if v.Problem != "" || c.quiet {
			continue
		}
		for _, k := range v.Checked {
			w.printf("%s: %s runs here with score %d, %s passed, in %s\n", v.Name, k.Device, k.Score,
				counted(len(k.Cases), "case"), v.Folder)
		}
		checkedText(w, v.Checked)
		skippedText(w, v.Skipped)
		testsText(w, v.Tests)
	}
}

// checkedText says what did not hold the child.
func checkedText(w *page, list []verification.Checked) {
	for _, c := range list {
		if slices.ContainsFunc(c.Held, func(l worker.Layer) bool { return l.Problem != "" }) {
			w.printf("%s was held by %s\n", filepath.Base(c.Path), worker.Held(c.Held))
		}
	}
}

// skippedText names the variants for this platform that were not run.
func skippedText(w *page, list []verification.Skipped) {
	for _, s := range list {
		w.printf("not run: %s, for %s: %s\n", s.File, s.Device, s.Reason)
	}
}

func (c *cli) pluginRemove() *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME[@VERSION]",
		Short:   "Take an installed plugin, or a retained version of it, out of the user's data folder",
		Example: "  graft plugin remove flash-decode\n  graft plugin remove flash-decode@0.1.0",
		Args:    exactly(1, "the name of an installed plugin"),
		RunE: withStore(func(cmd *cobra.Command, args []string, s *store.Store) error {
			if err := s.Remove(cmd.Context(), args[0]); err != nil {
				return err
			}
			return c.print(struct {
				Removed string `json:"removed"`
			}{args[0]}, func(w *page) { w.printf("removed %s\n", args[0]) })
		}),
	}
}

// workerCommand is the hidden subcommand that a child is started with; worker.Main
// has taken the process over when a parent started it.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    worker.Subcommand,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return misuse("graft "+worker.Subcommand+" is started by graft itself, to run a plugin apart", "")
		},
	}
}
