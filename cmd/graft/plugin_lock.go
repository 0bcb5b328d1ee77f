package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/distribute/registry"
	"github.com/opgraft/graft/host/distribute/store"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/lockfile"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
)

func (c *cli) pluginLock() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "lock [NAME...]",
		Short: "Write down which plugins a program uses, by the hashes of all their files",
		Long: `Writes a lock file of the plugins that a program would find, or of those that are named. With it,
graft plugin install --locked installs the same files elsewhere, and Lock of graft.Common, or GRAFT_PLUGIN_LOCK, uses
them and no others. Keep it beside the program or the model, and review it as you review code.`,
		Example: `  graft plugin lock
  graft plugin lock flash-decode packed-linear --out model/graft.lock`,
		RunE: withStore(func(cmd *cobra.Command, names []string, s *store.Store) error {
			found, err := c.toLock(names, s)
			if err != nil {
				return err
			}
			before, err := lockfile.Read(out)
			if errors.Is(err, fs.ErrNotExist) {
				before, err = lockfile.New(out), nil
			}
			if err != nil {
				return &diagnostic.Error{Kind: refusal.ErrLockFile, Path: out, Found: "found something else than a lock",
					Needed: "a lock, or no file", Fix: "name another file with --out, or remove it", Cause: err}
			}
			lock := lockfile.New(out)
			for _, f := range found {
				entry, err := s.Locked(f.Folder)
				if err != nil {
					return err
				}
				entry.Source = lock.Relative(entry.Source)
				lock.Set(entry)
			}
			if err := lock.Write(); err != nil {
				return err
			}
			return c.print(struct {
				Lock    string            `json:"lock"`
				Plugins []lockfile.Plugin `json:"plugins"`
			}{out, lock.Plugins}, func(w *page) {
				for _, p := range lock.Plugins {
					old := before.Plugin(p.Name)
					switch {
					case old == nil:
						w.printf("%s %s is new\n", p.Name, p.Version)
					case old.Version != p.Version:
						w.printf("%s %s in place of %s\n", p.Name, p.Version, old.Version)
					case !p.Equal(old):
						w.printf("%s %s with other files\n", p.Name, p.Version)
					default:
						w.printf("%s %s as before\n", p.Name, p.Version)
					}
				}
				for _, old := range before.Plugins {
					if lock.Plugin(old.Name) == nil {
						w.printf("%s %s is gone\n", old.Name, old.Version)
					}
				}
				lockedText(w, out)
			})
		}),
	}
	cmd.Flags().StringVar(&out, "out", lockfile.FileName, "file to write")
	return cmd
}

// toLock are the plugins of these names that a program would use, all of them without names.
func (c *cli) toLock(names []string, s *store.Store) ([]discovery.Found, error) {
	search := discovery.Find(discovery.Options{Folders: c.folders})
	var list []discovery.Found
	for _, name := range names {
		f, err := search.ByName(name)
		if err != nil {
			return nil, err
		}
		list = append(list, *f)
	}
	if len(names) == 0 {
		for _, f := range search.Found {
			if f.Err != nil {
				return nil, f.Err // no program would use it, and the lock would not say so
			}
		}
		if list = search.Plugins(); len(list) == 0 {
			return nil, search.Err()
		}
	}
	for _, f := range list {
		if problem := unverified(s.Trust(), f); problem != "" && os.Getenv(plugin.UnverifiedVariable) != "1" {
			return nil, &diagnostic.Error{Kind: refusal.ErrVerification, Path: f.Folder,
				Found: "found a plugin that no program would load: " + problem, Needed: "plugins that were verified here"}
		}
	}
	return list, nil
}

// lockIsThere reads a lock before anything is done that it is to say; "" is none.
func lockIsThere(path string) error {
	if path == "" {
		return nil
	}
	_, err := lockfile.Read(path)
	return err
}

// relock puts what is current of a plugin into a lock; "" is none.
func (c *cli) relock(path, name string) error {
	if path == "" {
		return nil
	}
	s, err := store.User()
	if err != nil {
		return err
	}
	lock, err := lockfile.Read(path)
	if err != nil {
		return err
	}
	entry, err := s.LockedCurrent(name)
	if err != nil {
		return err
	}
	entry.Source = lock.Relative(entry.Source)
	lock.Set(entry)
	return lock.Write()
}

func lockedText(w *page, lock string) {
	if lock != "" {
		w.printf("wrote %s\n", lock)
	}
}

// lockedInstall are the flags of an installation by a lock.
type lockedInstall struct {
	on           bool
	lock, mirror string
}

func (l *lockedInstall) flags(flags *pflag.FlagSet) {
	flags.BoolVar(&l.on, "locked", false,
		"install what the lock names, to the hash of every file, from its sources or from --mirror")
	flags.StringVar(&l.lock, "lock", "", "the lock of --locked (graft.lock; where that is not there, the one in --mirror)")
	flags.StringVar(&l.mirror, "mirror", "",
		"folder or archive that holds what the lock names, as graft plugin bundle writes it; no server is asked then")
}

// arguments checks those of install: none with --locked.
func (l *lockedInstall) arguments(without cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if l.on {
			return exactly(0, "no arguments with --locked")(cmd, args)
		}
		for _, name := range []string{"lock", "mirror"} {
			if cmd.Flags().Changed(name) {
				return misuse("--"+name+" is of --locked", "add --locked")
			}
		}
		return without(cmd, args)
	}
}

// fetch pulls the archive of a source into a folder, and is its path.
func (c *cli) fetch(o registry.Options) func(ctx context.Context, source, folder string) (string, error) {
	return func(ctx context.Context, source, folder string) (string, error) {
		pulled, err := c.pull(ctx, source, folder, o)
		if err != nil {
			return "", err
		}
		return pulled.Archive, nil
	}
}

// installLocked installs what a lock names.
func (c *cli) installLocked(ctx context.Context, l *lockedInstall, o registry.Options,
	checks verification.Options) (err error) {
	s, err := store.User()
	if err != nil {
		return err
	}
	from := store.Sources{Unsigned: true, Fetch: c.fetch(o)}
	lock, err := lockfile.Read(cmp.Or(l.lock, lockfile.FileName))
	if l.mirror != "" {
		mirror, failed := store.OpenMirror(ctx, l.mirror)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, mirror.Close()) }()
		from.Mirror = mirror
		if l.lock == "" && errors.Is(err, fs.ErrNotExist) {
			var other *lockfile.File
			if other, failed = mirror.Lock(); failed != nil {
				return failed
			}
			if other != nil {
				lock, err, from.Unsigned = other, nil, false
			}
		}
	}
	if err != nil {
		return err
	}
	done, err := s.InstallLocked(ctx, lock, from, checks)
	if err != nil {
		return err
	}
	return c.print(struct {
		Lock    string                `json:"lock"`
		Plugins []*store.Installation `json:"plugins"`
	}{lock.Path(), done}, func(w *page) {
		for _, in := range done {
			installationText(w, in)
		}
		if len(done) == 0 {
			w.printf("%s names no plugin\n", lock.Path())
		}
	})
}

func (c *cli) pluginBundle() *cobra.Command {
	var (
		o    registry.Options
		path string
	)
	cmd := &cobra.Command{
		Use:   "bundle DIR|FILE.tar.gz",
		Short: "Write all that a lock names, and the lock, for a machine without network",
		Long: `Writes the archives of the plugins that a lock names, and the lock, to a new folder or to one archive.
Where it arrives, graft plugin install --locked --mirror installs from it. An archive that a plugin was
installed from is taken over with its signature; of one that was a folder the files are packed.`,
		Example: `  graft plugin bundle ./bundle
  graft plugin bundle bundle.tar.gz --lock model/graft.lock`,
		Args: exactly(1, "a new folder, or a .tar.gz"),
		RunE: withStore(func(cmd *cobra.Command, args []string, s *store.Store) error {
			lock, err := lockfile.Read(path)
			if err != nil {
				return err
			}
			done, err := s.Bundle(cmd.Context(), lock, args[0], c.fetch(o), discovery.Options{Folders: c.folders})
			if err != nil {
				return err
			}
			return c.print(done, func(w *page) {
				w.printf("wrote %s\n", done.Path)
				for _, name := range done.Plugins {
					w.printf("  %s", name)
					if slices.Contains(done.Repacked, name) {
						w.printf(", packed again: without its signature")
					}
					w.println()
				}
			})
		}),
	}
	c.servers(cmd.Flags(), &o)
	cmd.Flags().StringVar(&path, "lock", lockfile.FileName, "lock that says what to bundle")
	return cmd
}
