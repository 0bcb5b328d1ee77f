package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/plugin/discovery"
)

// completion writes what a shell completes commands with.
func (c *cli) completion() *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Write a shell's completion of commands, flags, their values, plugins and models",
		Example: `  graft completion bash >~/.local/share/bash-completion/completions/graft
  graft completion fish >~/.config/fish/completions/graft.fish`,
		Args:      exactly(1, "one of bash, zsh and fish"),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(c.out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(c.out)
			case "fish":
				return cmd.Root().GenFishCompletion(c.out, true)
			}
			return misuse(args[0], "one of "+strings.Join(shells, ", "))
		},
	}
}

// flagValues are the values of flags that take one of a few.
var flagValues = map[string][]string{
	"padding": {"exact", "ignore", "keep"}, "device": {"cpu", "cuda"}, "format": {"text", "jsonl"},
	"prefer": {"speed", "memory"}, "cache": {"float32", "fp16", "bf16", "int8"},
	"weights": {"float32", "bf16", "int8", "int4"}, "task": {"transcribe", "translate"},
	"early-stopping": {"true", "false", "never"}, "do-sample": {"true", "false"}, "draft": {"lookup", "none"},
}

// complete gives all commands of a tree completions of what stands after their flags, and of their arguments.
func (c *cli) complete(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		c.complete(sub)
	}
	for name, values := range flagValues {
		if f := cmd.Flags().Lookup(name); f != nil {
			complains(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
		}
	}
	for _, name := range []string{"plugins", "except"} { // not a and b: cobra takes flags of one letter for shorthands
		if cmd.Flags().Lookup(name) != nil {
			complains(cmd.RegisterFlagCompletionFunc(name, c.pluginNames(cobra.ShellCompDirectiveNoFileComp)))
		}
	}
	switch {
	case cmd.ValidArgs != nil || cmd.ValidArgsFunction != nil:
	case strings.Contains(cmd.Use, "NAME") && cmd.HasParent() && cmd.Parent().Name() == "plugin":
		cmd.ValidArgsFunction = c.pluginNames(cobra.ShellCompDirectiveDefault)
	case strings.Contains(cmd.Use, "MODEL.onnx") && !strings.Contains(cmd.Use, "MODEL_DIR"):
		cmd.ValidArgsFunction = cobra.FixedCompletions([]string{"onnx"}, cobra.ShellCompDirectiveFilterFileExt)
	}
}

// complains is for flags that were looked up before.
func complains(err error) {
	if err != nil {
		panic(fmt.Sprintf("completion: %v", err))
	}
}

// pluginNames completes with the names of the plugins that a program would find.
func (c *cli) pluginNames(then cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		before := begun[:strings.LastIndexByte(begun, ',')+1] // of a list
		var names []string
		for _, f := range discovery.Find(discovery.Options{Folders: c.folders}).Found {
			if f.Manifest != nil && !slices.Contains(names, f.Manifest.Name) {
				names = append(names, f.Manifest.Name)
			}
		}
		for i := range names {
			names[i] = before + names[i]
		}
		return names, then
	}
}
