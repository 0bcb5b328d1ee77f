// Command graft finds operator plugins, shows what they can replace in an ONNX
// model, writes patched models and compares one operator with another.
//
// It holds no logic of its own: flags are parsed here, the packages under host
// are called, and what they return is printed.
package main

//go:generate sh -c "cd ../.. && go run ./docs/gen docs/json.md"

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/measure/bisect"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/comparison/generations"
	"github.com/opgraft/graft/host/measure/profile/runs"
	"github.com/opgraft/graft/host/measure/trial"
	"github.com/opgraft/graft/host/plugin/verification"
	"github.com/opgraft/graft/host/session/isolation"
)

func main() {
	worker.Main(tasks()) // a child that runs a library apart does not come back
	code := run(os.Args[1:], os.Stdout, os.Stderr)
	if err := os.Stdout.Close(); err != nil && code == exitOK {
		report(os.Stderr, wantsJSON(os.Args[1:]), err)
		code = exitError
	}
	os.Exit(code)
}

// tasks are what this executable does as a child.
func tasks() map[string]worker.Handler {
	list := verification.Tasks()
	maps.Copy(list, comparison.Tasks())
	maps.Copy(list, generations.Tasks())
	maps.Copy(list, trial.Tasks())
	maps.Copy(list, isolation.Tasks())
	maps.Copy(list, runs.Tasks())
	maps.Copy(list, bisect.Tasks())
	return list
}

// run is main with its surroundings as parameters, for tests.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first interrupt ends the work in good order, a second one the process.
	context.AfterFunc(ctx, stop)
	working := make(chan struct{})
	defer close(working)
	go holdSignals(working)
	defer context.AfterFunc(ctx, func() { insist(working, stderr, wantsJSON(args)) })()
	messages := talkTo(stderr)
	c := &cli{out: &output{to: stdout, talk: messages}, talk: messages}
	root := c.root()
	root.SetArgs(args)
	root.SetOut(c.out)
	root.SetErr(messages)
	cmd, err := execute(ctx, root)
	if err == nil || c.out.err != nil {
		err = c.out.err
	}
	if err == nil {
		return exitOK
	}
	asJSON := wantsJSON(args)
	if ctx.Err() != nil {
		report(stderr, asJSON, &diagnostic.Error{Found: "interrupted", Fix: "nothing was left half-written" + c.resumable})
		return exitInterrupted
	}
	report(stderr, asJSON, helped(cmd, err))
	return exitCode(err)
}

// execute runs a command, of which a panic is an error like any other.
func execute(ctx context.Context, root *cobra.Command) (cmd *cobra.Command, err error) {
	cmd = root
	defer diagnostic.Recovered("", "command", &err)
	return root.ExecuteContextC(ctx)
}

// cli is what all commands share.
type cli struct {
	out       *output
	talk      *talk
	outputs   []string // values of -o
	json      bool     // one JSON object on stdout
	form      string   // the value of -o that is one of takesForms, or text
	file      string   // the value of -o that is no format
	quiet     bool     // no talk on stderr
	runtime   string   // path of libonnxruntime
	folders   []string // plugin folders that come first
	resumable string   // what an interrupt says of going on
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "graft",
		Short: "Swap faster operators into ONNX models",
		Long: `graft finds operator plugins, recognises in an ONNX model what they can replace,
and swaps them in. The model file stays, the answers stay; time and memory shrink.

Data goes to stdout, talk to stderr. Exit codes: 0 ok, 1 error, 2 usage,
3 verification failed, 4 incompatible plugin, 5 answers differ or a culprit found,
130 interrupted.`,
		Version:           buildVersion(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return c.chooseFormat(cmd) },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:              noCommand,
		RunE:              showHelp,
		Example:           "  graft doctor\n  graft inspect model.onnx\n  graft patch model.onnx -o patched.onnx",
	}
	f := root.PersistentFlags()
	f.StringArrayVarP(&c.outputs, "output", "o", nil,
		"json or text: the form of what goes to stdout; for patch, quantize, generate, embed, rerank, predict and plugin "+
			"pack also what to write")
	f.BoolVarP(&c.quiet, "quiet", "q", false, "print data and errors only")
	f.StringVar(&c.runtime, "onnxruntime", "",
		"path of libonnxruntime (default: GRAFT_ONNXRUNTIME, then the cache and the system)")
	f.StringArrayVar(&c.folders, "plugins-dir", nil, "folder with plugins, searched first; may be repeated")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return helped(cmd, flagError(cmd, err))
	})
	root.SetVersionTemplate(versionLine() + "\n")
	root.AddCommand(c.doctor(), c.inspect(), c.patch(), c.graph(), c.run(), c.pullModel(), c.ab(), c.bisect(), c.profile(),
		c.generate(), c.quantize(), c.embed(), c.rerank(), c.predict(), c.tune(), c.plugin(), c.version(), c.abSide(),
		c.man(), c.completion(), workerCommand())
	root.SetHelpCommand(helpCommand())
	root.InitDefaultHelpCmd()
	c.complete(root)
	return root
}

// showHelp is what a command does that only holds others.
func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// noCommand refuses arguments that should have been a command.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	cmd.SuggestionsMinimumDistance = 2
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		hint = fmt.Sprintf(", did you mean %s?", strings.Join(like, " or "))
	}
	return helped(cmd, misuse(fmt.Sprintf("%s has no command %q%s", cmd.CommandPath(), args[0], hint), ""))
}

// helpCommand is cobra's, with an error for a command that there is not.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]...",
		Short:   "Show what a command does, its flags and an example",
		Example: "  graft help ab\n  graft help plugin install",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil {
				err = misused("", err)
			}
			if err == nil && len(rest) > 0 {
				err = noCommand(found, rest)
			}
			if err != nil {
				return err
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}

// chooseFormat reads -o: a format, or for commands that write a file its path.
func (c *cli) chooseFormat(cmd *cobra.Command) error {
	for _, o := range c.outputs {
		switch {
		case o == "json" || o == "text":
			c.json = o == "json"
			if cmd.Annotations[takesForms] != "" && o == "text" {
				c.form = o
			}
		case slices.Contains(strings.Fields(cmd.Annotations[takesForms]), o):
			if c.form != "" && c.form != o {
				return misuse(fmt.Sprintf("-o %s and -o %s", c.form, o), "one form")
			}
			c.form = o
		case cmd.Annotations[writesFile] == "":
			return misuse(fmt.Sprintf("-o %s", o), "text or json")
		case likelyForm(cmd, o) != "":
			return misuse(fmt.Sprintf("-o %s", o), fmt.Sprintf("a form or a file: -o %s, or ./%s for a file of that name",
				likelyForm(cmd, o), o))
		case c.file != "":
			return misuse(fmt.Sprintf("two files to write, %s and %s", c.file, o), "one")
		default:
			c.file = o
		}
	}
	if forms := strings.Fields(cmd.Annotations[takesForms]); len(forms) > 0 && c.form == "" {
		return c.takeForm(forms)
	}
	return nil
}

// takeForm takes the form that the name of the file ends with; on stdout it is the first.
func (c *cli) takeForm(forms []string) error {
	suffix := strings.TrimPrefix(filepath.Ext(c.file), ".")
	switch {
	case c.file == "":
		c.form = forms[0]
	case slices.Contains(forms, suffix):
		c.form = suffix
	case suffix == "txt", suffix == "tsv":
		c.form = "text"
	default:
		return misuse("-o "+c.file, fmt.Sprintf("a name that ends with .%s, .txt or .tsv, or a form beside it, as -o %s",
			strings.Join(forms, ", ."), forms[0]))
	}
	return nil
}

// likelyForm is the form of which a name that is no path is a misspelling, "" where it looks like none.
func likelyForm(cmd *cobra.Command, name string) string {
	if strings.ContainsAny(name, "./") {
		return ""
	}
	return diagnostic.Nearest(name, append(strings.Fields(cmd.Annotations[takesForms]), "json", "text"))
}

// writesFile marks a command whose -o may name a file.
const writesFile = "writes-file"

// takesForms marks a command whose results have forms of their own, which -o may name.
const takesForms = "takes-forms"

// atLeast is cobra.MinimumNArgs with exit code 2.
func atLeast(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) >= n {
			return nil
		}
		return misuse("no argument", what)
	}
}

// exactly is cobra.ExactArgs with exit code 2.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		got := "no argument"
		if len(args) > 0 {
			got = "arguments " + strings.Join(args, " ")
		}
		return misuse(got, what)
	}
}
