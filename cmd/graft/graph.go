package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/trust"
	"github.com/opgraft/graft/host/session/languages"
	"github.com/opgraft/graft/host/session/loaded"
)

func (c *cli) graph() *cobra.Command {
	var flags planFlags
	var key string
	var whole bool
	cmd := &cobra.Command{
		Use:   "graph MODEL.onnx --key KEY",
		Short: "Store the rewritten graph in the cache, for sessions of other languages",
		Long: `Writes the rewrite that graft patch makes into the user's cache, under a key that
the caller chooses, and prints what a session is made from: the graph's file, the
folder of the weights that it refers to in the model's own files, the libraries to
register, and the files that must be as they were for all this to hold. A model in
which nothing is replaced has a reason instead of a graph, and is no error. The same
lines lie in the cache under the key. Python's package and libgraft.so ask for it.
With --whole the graph holds its weights: for a model that lies in no file that stays.`,
		Example: "  graft graph model.onnx --key 0123456789abcdef\n  graft graph model.onnx --key 0123456789abcdef " +
			"--padding ignore -o json",
		Args: exactly(1, "one model"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !languages.IsKey(key) {
				return misuse(fmt.Sprintf("--key %q", key), "8 to 128 of 0-9 and a-z")
			}
			cache, err := languages.UserCache()
			if err != nil {
				return err
			}
			others, err := depends(args[0], whole)
			if err != nil {
				return err
			}
			set, err := c.load(true)
			if err != nil {
				return err
			}
			a, _, on, err := c.analyse(cmd.Context(), args[0], set, &flags)
			if err != nil {
				return err
			}
			defer a.Model.Close()
			if a.Plan.Changes() && a.Obstacle == "" {
				ctx := graph.WithProcessorTime(cmd.Context(), flags.time)
				if err := a.Apply(ctx); err != nil {
					return err
				}
			}
			var libraries []languages.Hashed
			for path, sum := range set.Hashed(a.Plugins(), on) {
				libraries = append(libraries, languages.Hashed{SHA256: sum, Path: path})
			}
			entry, err := cache.Store(cmd.Context(), key, a, libraries, others, whole)
			if err != nil {
				return err
			}
			return c.print(graphOf(args[0], entry), func(w *page) {
				for line := range strings.Lines(string(entry.Text())) {
					w.println(strings.TrimSuffix(line, "\n"))
				}
			})
		},
	}
	flags.add(cmd)
	f := cmd.Flags()
	f.StringVar(&key, "key", "", "name of the entry, of 8 to 128 of 0-9 and a-z")
	f.BoolVar(&whole, "whole", false, "write the weights into the graph's file too")
	return cmd
}

// depends are the files besides a model's own on which a plan depends: the name that the program gave, the lock of
// plugins, the record of those that were verified, and the folders where they are installed, which change when one
// comes or goes. What variables say is part of the caller's key.
func depends(model string, whole bool) ([]languages.File, error) {
	var paths []string
	if !whole {
		paths = append(paths, model)
	}
	if program, err := os.Executable(); err == nil {
		paths = append(paths, program)
	}
	if lock := os.Getenv(loaded.LockVariable); lock != "" {
		paths = append(paths, lock)
	}
	paths = append(paths, filepath.SplitList(os.Getenv(discovery.PathVariable))...)
	if data, err := storage.DataFolder(); err == nil {
		paths = append(paths, filepath.Join(data, "plugins"), filepath.Join(data, trust.FileName))
	}
	var list []languages.File
	for _, path := range paths {
		path, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		f, err := languages.FileAt(path)
		if err != nil {
			return nil, err
		}
		list = append(list, f)
	}
	return list, nil
}

// storedGraph is the JSON object of graft graph.
type storedGraph struct {
	Model     string      `json:"model"`
	Graph     string      `json:"graph,omitempty"`
	Left      string      `json:"left,omitempty"`
	Folder    string      `json:"folder,omitempty"`
	Blocks    int         `json:"blocks"`
	Replaced  int         `json:"replaced"`
	Libraries []string    `json:"libraries"`
	Files     []graphFile `json:"files"`
}

type graphFile struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"` // -1 where there must be none
	Time  int64  `json:"nanoseconds"`
}

func graphOf(model string, e *languages.Entry) *storedGraph {
	g := &storedGraph{Model: model, Graph: e.Graph.Path, Left: e.Left, Folder: e.Folder,
		Blocks: e.Blocks, Replaced: e.Replaced,
		Libraries: []string{}, Files: []graphFile{}}
	for _, l := range e.Libraries {
		g.Libraries = append(g.Libraries, l.Path)
	}
	for _, f := range e.Files {
		g.Files = append(g.Files, graphFile{f.Path, f.Size, f.Modified})
	}
	return g
}
