package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/distribute/author"
	"github.com/opgraft/graft/host/plugin/manifest"
)

func (c *cli) pluginDev() *cobra.Command {
	var deadline time.Duration
	cmd := &cobra.Command{
		Use:   "dev DIR MODEL.onnx|MODEL_DIR [-- FLAGS OF AB]",
		Short: "Build a plugin, verify it and compare it on a model, again whenever a source changes",
		Long: `Does what graft plugin build and graft ab do, and waits. When a file in DIR changes it does
so again; what was going on then is ended. Errors of the compiler and cases that fail are
shown, and the next change is waited for. Ctrl-C ends it. Flags after -- go to graft ab.`,
		Example: `  graft plugin dev my-mish my-mish/example.onnx
  graft plugin dev my-attention model.onnx -- --dim batch=4 --force`,
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				args = args[:at]
			}
			return exactly(2, "the folder of a plugin's sources, and a model")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			folder, model, flags := args[0], args[1], args[2:]
			if err := c.ab().ParseFlags(flags); err != nil {
				return flagError(cmd, err)
			}
			if _, err := manifest.Read(folder); err != nil {
				return err
			}
			if _, err := os.Stat(model); err != nil {
				return &diagnostic.Error{Path: model, Found: "cannot read: " + diagnostic.Cause(err),
					Needed: "a model, or a model folder", Cause: err}
			}
			ctx, end := context.WithCancel(cmd.Context())
			defer end()
			err := author.Watch(ctx, folder, func(ctx context.Context, changed []string) {
				if len(changed) > 0 {
					c.say("changed: %s", strings.Join(changed, ", "))
				}
				err := c.develop(ctx, folder, model, flags, deadline)
				switch {
				case c.out.err != nil: // nobody reads any more
					end()
					return
				case ctx.Err() != nil: // a source changed, or it was interrupted
					return
				case err != nil:
					report(c.talk, c.json, err)
				}
				c.say("waiting for a change in %s; Ctrl-C ends", folder)
			})
			return err
		},
	}
	deadlineFlag(cmd, &deadline)
	return cmd
}

// develop builds, verifies and compares once.
func (c *cli) develop(ctx context.Context, folder, model string, flags []string, deadline time.Duration) error {
	done, err := c.buildPlugin(ctx, folder, deadline)
	if err != nil {
		return err
	}
	if err := c.print(done, func(w *page) { builtText(w, done) }); err != nil {
		return err
	}
	comparing := *c
	comparing.folders = append([]string{author.Plugins(folder)}, c.folders...)
	ab := comparing.ab()
	ab.SilenceUsage, ab.SilenceErrors = true, true
	ab.SetArgs(append([]string{"--a=none", "--b=" + done.Name}, append(flags, "--", model)...))
	return ab.ExecuteContext(ctx)
}
