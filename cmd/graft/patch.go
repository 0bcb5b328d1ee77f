package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
)

func (c *cli) patch() *cobra.Command {
	var flags planFlags
	var check verifyFlags
	cmd := &cobra.Command{
		Use:         "patch MODEL.onnx -o OUT.onnx",
		Short:       "Write the model with operators swapped in, for any language",
		Annotations: map[string]string{writesFile: "yes"},
		Long: `Writes the same rewrite that graft.Enable makes in memory to a file, with its
weights. The file needs the operator libraries that the command names: load them
with register_custom_ops_library (Python) or RegisterCustomOpsLibrary_V2 (C).
With --device cuda the rewrite is that for sessions with the CUDA provider, and the
libraries for CUDA are named after those for the CPU: register both.
With --verify blocks whose operators answer otherwise than the model on synthetic inputs of two
small shapes, in a child process, are left unchanged.`,
		Example: `  graft patch model.onnx -o patched.onnx
  graft patch model.onnx -o patched.onnx --force --plugins flash-decode -o json`,
		Args: exactly(1, "one model"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.file == "" {
				return misuse("no file to write", "-o FILE")
			}
			if err := check.consistent(cmd, &flags, false); err != nil {
				return err
			}
			if err := newFile("-o", c.file); err != nil {
				return err
			}
			set, err := c.load(true)
			if err != nil {
				return err
			}
			a, o, on, err := c.analyse(cmd.Context(), args[0], set, &flags)
			if err != nil {
				return err
			}
			defer a.Model.Close()
			if a.Obstacle != "" {
				return &diagnostic.Error{Path: args[0], Found: a.Obstacle + "; nothing written",
					Fix: "patch the model as it was exported"}
			}
			found, err := check.compare(cmd.Context(), c, args[0], a.Plan, o, flags.time)
			if err != nil {
				return err
			}
			found.leave(a.Plan)
			found.tell(c)
			if !a.Plan.Changes() {
				return &diagnostic.Error{Path: args[0],
					Found: fmt.Sprintf("nothing to replace among %d blocks, nothing written%s", len(a.Plan.Choices), a.Plan.Left()),
					Fix:   "graft inspect shows each block; --force uses operators that are not expected to gain"}
			}
			ctx := graph.WithProcessorTime(cmd.Context(), flags.time)
			if err := a.Apply(ctx); err != nil {
				return err
			}
			done := c.progress("writing " + c.file)
			err = a.Write(cmd.Context(), c.file, model.WriteOptions{Progress: done.set})
			done.end()
			if err != nil {
				return err
			}
			result := &patched{Model: args[0], Output: c.file,
				Replaced: a.Plan.Replaced(), Blocks: len(a.Plan.Choices), Libraries: set.Libraries(a.Plugins(), on)}
			if fi, err := os.Stat(c.file); err == nil {
				result.Bytes = fi.Size()
			}
			return c.print(result, func(w *page) {
				w.printf("%s: %d of %d blocks replaced\n", result.Output, result.Replaced, result.Blocks)
				for _, l := range result.Libraries {
					w.printf("needs %s\n", l)
				}
			})
		},
	}
	flags.add(cmd)
	check.add(cmd)
	return cmd
}

// patched is the JSON object of graft patch.
type patched struct {
	Model     string   `json:"model"`
	Output    string   `json:"output"`
	Bytes     int64    `json:"bytes"`
	Blocks    int      `json:"blocks"`
	Replaced  int      `json:"replaced"`
	Libraries []string `json:"libraries"`
}
