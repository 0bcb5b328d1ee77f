package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/distribute/archive"
	"github.com/opgraft/graft/host/distribute/registry"
	"github.com/opgraft/graft/host/distribute/store"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
)

// indexVariable names the index that is searched without --index.
const indexVariable = "GRAFT_PLUGIN_INDEX"

// servers are the flags of commands that talk to servers.
func (c *cli) servers(flags *pflag.FlagSet, o *registry.Options) {
	flags.BoolVar(&o.PlainHTTP, "plain-http", false,
		"talk to registries without TLS: where nobody between can change what they say")
	between(flags, &o.Stall, "stall", 30*time.Second, time.Millisecond, time.Hour,
		"time in which a server must send something")
}

// plainly is the flag that a command needs too where this one has it.
func plainly(o registry.Options) string {
	if o.PlainHTTP {
		return " --plain-http"
	}
	return ""
}

// client talks to servers, with progress as talk.
func (c *cli) client(o registry.Options) (*registry.Client, error) {
	const step = 16 << 20
	var told int64
	o.Progress = func(done, total int64) {
		if done-told >= step {
			told = done
			c.say("%d of %d MB", done>>20, max(total, 0)>>20)
		}
	}
	return registry.New(o)
}

func (c *cli) pluginPush() *cobra.Command {
	var o registry.Options
	cmd := &cobra.Command{
		Use:   "push ARCHIVE|INDEX.yaml oci://HOST/NAME:VERSION",
		Short: "Publish a plugin's archive, and the signature beside it, in an OCI registry, or an index",
		Long: `Pushes an archive as an OCI 1.1 artifact of the type ` + registry.ArtifactType + `.
The tag is the plugin's version, in which a + is a _. Credentials are those of Docker's configuration.
A version that is there is never replaced; the same archive again is no error.`,
		Example: `  graft plugin push flash-decode-0.1.0.tar.gz oci://ghcr.io/me/flash-decode:0.1.0`,
		Args:    exactly(2, "an archive and oci://HOST/NAME:VERSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := registry.Parse(args[1])
			if err != nil {
				return err
			}
			if strings.HasSuffix(args[0], ".yaml") {
				return c.pushIndex(cmd.Context(), args[0], r, o)
			}
			info, err := os.Stat(args[0])
			if err != nil {
				return &diagnostic.Error{Kind: refusal.ErrNotFound, Path: args[0], Found: "cannot read: " + diagnostic.Cause(err),
					Needed: "an archive of a plugin's folder (.tar.gz)", Cause: err}
			}
			if info.IsDir() || !archive.Is(args[0]) {
				return &diagnostic.Error{Kind: refusal.ErrArchive, Path: args[0], Found: "found no archive",
					Needed: "an archive of a plugin's folder (.tar.gz)"}
			}
			in, err := store.Inspect(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			client, err := c.client(o)
			if err != nil {
				return err
			}
			done, err := client.Push(cmd.Context(), args[0], in.Manifest, r)
			if err != nil {
				return err
			}
			return c.pushed(done, !done.Signed)
		},
	}
	c.servers(cmd.Flags(), &o)
	return cmd
}

// pushIndex publishes the file of an index.
func (c *cli) pushIndex(ctx context.Context, file string, r registry.Reference, o registry.Options) error {
	client, err := c.client(o)
	if err != nil {
		return err
	}
	done, err := client.PushIndex(ctx, file, r)
	if err != nil {
		return err
	}
	return c.pushed(done, false)
}

// pushed prints what was.
func (c *cli) pushed(done *registry.Pushed, unsigned bool) error {
	return c.print(done, func(w *page) {
		what := "pushed"
		if done.Known {
			what = "there already:"
		}
		w.printf("%s %s\n%s\n", what, done.Reference, done.Digest)
		if unsigned {
			w.println("it is not signed")
		}
	})
}

func (c *cli) pluginPull() *cobra.Command {
	var (
		o      registry.Options
		folder string
	)
	cmd := &cobra.Command{
		Use:     "pull SOURCE",
		Short:   "Bring a plugin's archive, and its signature, from a registry, without installing it",
		Example: `  graft plugin pull oci://ghcr.io/me/flash-decode:0.1.0 --to mirror`,
		Args:    exactly(1, "oci://HOST/NAME:VERSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !registry.Is(args[0]) {
				_, err := registry.Parse(args[0])
				return err
			}
			if err := os.MkdirAll(folder, 0o777); err != nil {
				return &diagnostic.Error{Kind: registry.ErrContent, Path: folder,
					Found: "cannot make the folder: " + diagnostic.Cause(err), Fix: "name another with --to", Cause: err}
			}
			done, err := c.pull(cmd.Context(), args[0], folder, o)
			if err != nil {
				return err
			}
			return c.print(done, func(w *page) {
				w.printf("%s (%d bytes)\n%s\n", done.Archive, done.Bytes, done.Digest)
				w.println(cmp.Or(done.Signature, "it is not signed"))
			})
		},
	}
	c.servers(cmd.Flags(), &o)
	cmd.Flags().StringVar(&folder, "to", ".", "folder that the archive is written to, made where there is none")
	return cmd
}

// pull brings what a text means to a folder.
func (c *cli) pull(ctx context.Context, source, folder string, o registry.Options) (*registry.Pulled, error) {
	r, err := registry.Parse(source)
	if err != nil {
		return nil, err
	}
	client, err := c.client(o)
	if err != nil {
		return nil, err
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return nil, err
	}
	c.say("bringing %s", source)
	return client.Pull(ctx, r, folder)
}

// bring calls install with the path of a folder or an archive, and what is checked of it: that of what is here, or,
// from a registry, of a temporary folder, with checks that it is what was asked for.
func (c *cli) bring(ctx context.Context, source string, o registry.Options, checks verification.Options,
	install func(path string, checks verification.Options) (*store.Installation, error)) (*store.Installation, error) {
	if !registry.Is(source) {
		return install(source, checks)
	}
	r, err := registry.Parse(source)
	if err != nil {
		return nil, err
	}
	folder, err := storage.Temporary("")
	if err != nil {
		return nil, &diagnostic.Error{Kind: registry.ErrContent, Path: source,
			Found: "cannot write: " + diagnostic.Cause(err), Fix: "set TMPDIR to a writable folder", Cause: err}
	}
	defer folder.Remove()
	pulled, err := c.pull(ctx, source, folder.Path, o)
	if err != nil {
		return nil, err
	}
	checks.From, checks.Accept = source, r.Accept
	return install(pulled.Archive, checks)
}

// indexFlag adds the flag that names an index.
func indexFlag(cmd *cobra.Command, index *string) {
	cmd.Flags().StringVar(index, "index", "",
		"folder, file or oci://HOST/NAME:TAG that lists plugins; $"+indexVariable+" without it")
}

// readIndex reads one that lies here, or in a registry; "" is that of the environment. command is what needs it.
func (c *cli) readIndex(ctx context.Context, command, index string, o registry.Options) ([]registry.Entry, string,
	error) {
	if index = cmp.Or(index, os.Getenv(indexVariable)); index == "" {
		return nil, "", &diagnostic.Error{Kind: registry.ErrReference, Path: command, Found: "found no index",
			Needed: "--index, or " + indexVariable + ": a folder of YAML files, or one"}
	}
	list, err := c.entries(ctx, index, o)
	return list, index, err
}

// sources are what to install for the words of a command line: those that name nothing here come from an index.
func (c *cli) sources(cmd *cobra.Command, words []string, index string, o registry.Options) ([]string, error) {
	var list []registry.Entry
	sources := slices.Clone(words)
	for i, word := range words {
		if _, err := os.Stat(word); err == nil || registry.Is(word) || strings.ContainsRune(word, filepath.Separator) ||
			archive.Is(word) || cmp.Or(index, os.Getenv(indexVariable)) == "" {
			continue
		}
		if list == nil {
			var err error
			if list, index, err = c.readIndex(cmd.Context(), cmd.CommandPath(), index, o); err != nil {
				return nil, err
			}
		}
		e, err := registry.Newest(list, word, platform(), index)
		if err != nil {
			return nil, err
		}
		sources[i] = e.Source
	}
	return sources, nil
}

// platform is this one, as an index names it.
func platform() string { return manifest.ThisPlatform.OS + "-" + manifest.ThisPlatform.Arch }

// entries are those of an index.
func (c *cli) entries(ctx context.Context, index string, o registry.Options) ([]registry.Entry, error) {
	if !registry.Is(index) {
		return registry.ReadIndex(ctx, index)
	}
	r, err := registry.Parse(index)
	if err != nil {
		return nil, err
	}
	client, err := c.client(o)
	if err != nil {
		return nil, err
	}
	folder, err := storage.Temporary("")
	if err != nil {
		return nil, err
	}
	file, err := client.PullIndex(ctx, r, folder.Path)
	var list []registry.Entry
	if err == nil {
		list, err = registry.ReadIndex(ctx, file)
	}
	return list, errors.Join(err, folder.Remove())
}
