package main

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/distribute/archive"
	"github.com/opgraft/graft/host/distribute/signing"
	"github.com/opgraft/graft/host/distribute/store"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// keyVariable names the private key that signs without --key.
const keyVariable = "GRAFT_SIGNING_KEY"

// Endings of the names of keys' files.
const (
	privateSuffix = ".key"
	publicSuffix  = ".pub"
)

func (c *cli) pluginKeygen() *cobra.Command {
	var (
		bare bool
		file string
	)
	cmd := &cobra.Command{
		Use:   "keygen FILE.key",
		Short: "Make a pair of keys to sign plugins with: FILE.key, which stays with you, and FILE.pub, which you publish",
		Long: `Makes an ed25519 pair in minisign's format, so that minisign can sign and check with it too. A password
protects the private key: from --password-file, from ` + passwordVariable + `, or from the terminal.
Files that are there are never written over.`,
		Example: "  graft plugin keygen me.key\n  graft plugin keygen ci.key --no-password",
		Args:    exactly(1, "the private key's file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if bare && file != "" {
				return misuse("--no-password with --password-file", "one of them")
			}
			if strings.HasSuffix(args[0], publicSuffix) {
				return misuse("the name "+args[0]+" for a private key",
					"another, such as "+strings.TrimSuffix(args[0], publicSuffix)+privateSuffix)
			}
			password := c.password(cmd.Context(), args[0], file, true)
			if bare {
				password = nil
			}
			public := strings.TrimSuffix(args[0], privateSuffix) + publicSuffix
			k, err := signing.Generate(args[0], public, password)
			if err != nil {
				return err
			}
			return c.print(struct {
				ID      string `json:"id"`
				Key     string `json:"key"`
				Private string `json:"private_file"`
				Public  string `json:"public_file"`
			}{k.ID(), k.String(), args[0], public}, func(w *page) {
				w.printf("wrote %s, which only you should have, and %s, which you publish\n", args[0], public)
				w.printf("who installs what you sign runs: graft plugin trust add %s\n", k)
			})
		},
	}
	cmd.Flags().BoolVar(&bare, "no-password", false,
		"do not protect the private key: for machines that sign by themselves")
	passwordFlag(cmd.Flags(), &file)
	return cmd
}

func (c *cli) pluginSign() *cobra.Command {
	var key, file string
	cmd := &cobra.Command{
		Use:   "sign ARCHIVE",
		Short: "Sign a plugin's archive: ARCHIVE" + signing.Suffix + " says who made it, and which plugin and version it is",
		Long: `Signs an archive with a private key of graft plugin keygen, or of minisign, and writes the signature
beside it, where install, push and minisign -V look for it. The same archive and key give the same
signature. A signature that is there is replaced.`,
		Example: "  graft plugin sign flash-decode-0.1.0.tar.gz --key me.key\n  " + keyVariable +
			"=me.key graft plugin sign flash-decode-0.1.0.tar.gz",
		Args: exactly(1, "an archive"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if key == "" {
				key = os.Getenv(keyVariable)
			}
			if key == "" {
				return misuse("no key", "--key, or "+keyVariable+": the file of a private key, which graft plugin keygen makes")
			}
			info, err := os.Stat(args[0])
			if err != nil {
				return &diagnostic.Error{Kind: refusal.ErrNotFound, Path: args[0], Found: "cannot read: " + diagnostic.Cause(err),
					Needed: "an archive of a plugin's folder", Cause: err}
			}
			if info.IsDir() || !archive.Is(args[0]) {
				return &diagnostic.Error{Kind: refusal.ErrArchive, Path: args[0], Found: "found no archive",
					Needed: "an archive of a plugin's folder (.tar.gz, .tgz, .tar)",
					Fix:    "make one with: graft plugin pack DIR"}
			}
			in, err := store.Inspect(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			k, err := signing.ReadPrivate(key, c.password(cmd.Context(), key, file, false))
			if err != nil {
				return err
			}
			m, public := in.Manifest, k.Public()
			path, err := signing.Sign(cmd.Context(), args[0], k, m.Name, m.Version)
			if err != nil {
				return err
			}
			return c.print(struct {
				Name      string `json:"name"`
				Version   string `json:"version"`
				Signature string `json:"signature"`
				ID        string `json:"id"`
				Key       string `json:"key"`
			}{m.Name, m.Version, path, public.ID(), public.String()}, func(w *page) {
				w.printf("signed %s %s with the key %s: %s\n", m.Name, m.Version, public.ID(), path)
			})
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "file of the private key; $"+keyVariable+" without it")
	passwordFlag(cmd.Flags(), &file)
	return cmd
}

// signatureRow is what inspect says of an archive's signature.
type signatureRow struct {
	Key     string `json:"key,omitempty"`  // that made it and is trusted
	ID      string `json:"id,omitempty"`   // of that key
	Name    string `json:"name,omitempty"` // that the user gave it
	Problem string `json:"problem,omitempty"`
	as      string
}

// signatureOf checks the signature of an archive; nil for what is none. tampered is that archive and signature do not
// belong together.
func signatureOf(ctx context.Context, path string) (row *signatureRow, tampered, err error) {
	if info, err := os.Stat(path); err != nil || info.IsDir() || !archive.Is(path) {
		return nil, nil, nil
	}
	trusted, err := signing.User()
	if err != nil {
		return nil, nil, err
	}
	keys, err := trusted.Read()
	if err != nil {
		return nil, nil, err
	}
	signer, err := signing.Check(ctx, path, keys)
	switch {
	case errors.Is(err, signing.ErrSignature):
		return &signatureRow{Problem: err.Error()}, err, nil
	case errors.Is(err, signing.ErrUntrusted):
		return &signatureRow{Problem: err.Error()}, nil, nil
	case err != nil:
		return nil, nil, err
	case signer == nil:
		return &signatureRow{}, nil, nil
	}
	return &signatureRow{Key: signer.Key, ID: signer.ID, Name: signer.Name, as: signer.Plugin + " " + signer.Version}, nil,
		nil
}

func (r *signatureRow) text(w *page) {
	switch {
	case r == nil:
	case r.Problem != "":
		w.printf("signature: %s\n", r.Problem)
	case r.Key == "":
		w.println("not signed")
	case r.Name == "":
		w.printf("signed by %s, as %s\n", r.ID, r.as)
	default:
		w.printf("signed by %s (%s), as %s\n", r.Name, r.ID, r.as)
	}
}
