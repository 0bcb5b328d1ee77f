package main

import (
	"context"

	"github.com/opgraft/graft/host/diagnostic"
	"github.com/opgraft/graft/host/plugin/registry"
	"github.com/opgraft/graft/host/plugin/store"
	"github.com/opgraft/graft/host/plugin/verification"
	"github.com/opgraft/graft/host/storage"
)

// install installs a folder or an archive, or what a registry or a server has.
func (c *cli) install(ctx context.Context, s *store.Store, source string, o registry.Options, checks verification.Options) (done *store.Installation, err error) {
	err = c.brought(ctx, source, o, &checks, func(path string) (err error) {
		done, err = s.Install(ctx, path, checks)
		return err
	})
	return done, err
}

// brought calls a function with the path of a folder or an archive: what is here, or what a registry or a server has, in a temporary folder
// for as long. What is brought has to be what was asked for.
func (c *cli) brought(ctx context.Context, source string, o registry.Options, checks *verification.Options, f func(path string) error) error {
	if !registry.Is(source) {
		return f(source)
	}
	r, err := registry.Parse(source)
	if err != nil {
		return err
	}
	folder, err := storage.Temporary("")
	if err != nil {
		return &diagnostic.Error{Kind: registry.ErrContent, Path: source, Found: "cannot write: " + diagnostic.Cause(err), Fix: "set TMPDIR to a writable folder", Cause: err}
	}
	defer folder.Remove()
	pulled, err := c.pull(ctx, source, folder.Path, o)
	if err != nil {
		return err
	}
	checks.From, checks.Accept = source, r.Accept
	return f(pulled.Archive)
}
