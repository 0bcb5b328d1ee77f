package verification

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/plugin/conformance"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/library"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// Rule is the outcome of one rule on one case.
type Rule = conformance.Rule

// Rules holds a plugin's library for the CPU to every rule of the ABI on all of its cases, each in a child process.
// What ends the child is the problem of the case that it ran, and another child goes on with the next.
func Rules(ctx context.Context, folder string, opts Options) ([]Rule, error) {
	m, err := manifest.Read(folder)
	if err != nil {
		return nil, err
	}
	v, err := m.VariantFor("cpu", manifest.ThisPlatform)
	if err != nil {
		return nil, err
	}
	files, err := content.Read(folder, map[string]string{manifest.FileName: m.SHA256()})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(folder, v.File)
	l, err := library.Read(path)
	if err == nil {
		err = l.Check(library.HostABI, manifest.ThisPlatform)
	}
	if err == nil {
		err = l.Agree(m, v)
	}
	if err != nil {
		return nil, err
	}
	var child *worker.Child
	defer func() {
		if child != nil {
			child.Close()
		}
	}()
	list := []Rule{}
	for i, c := range m.Cases {
		opts.Report(i, len(m.Cases), "case %s", c.Name)
		if child == nil {
			if child, err = worker.Start(ctx,
				worker.Options{Subject: path, Deadline: opts.Deadline, Executable: opts.Executable, Own: opts.Own}); err != nil {
				return nil, err
			}
		}
		found, err := ask[[]Rule](ctx, child, taskRules,
			caseRequest{At: libraryAt{Folder: folder, Device: "cpu", Files: files}, Case: i, Name: c.Name})
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && (errors.Is(err, worker.ErrEnded) || errors.Is(err, worker.ErrDeadline)):
			child.Close()
			child = nil
			list = append(list, Rule{Case: c.Name, Check: "lives", Problem: err.Error()})
		case err != nil:
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}
