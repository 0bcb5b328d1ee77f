package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/session/languages"
)

func (c *cli) run() *cobra.Command {
	var flags planFlags
	var deadline time.Duration
	var verbose bool
	cmd := &cobra.Command{
		Use:   "run -- PROGRAM [ARGUMENT]...",
		Short: "Run a program of any language with its sessions patched",
		Long: `Runs a program that uses ONNX Runtime's C API, in C, C++, Rust, Java, C#,
JavaScript or another language, with libgraft.so before ONNX Runtime: sessions that the
program and its children create are patched. The rewritten graph of each model is made once, by
graft graph, and stored in the user's cache. Where that cannot be, the session is the
one that the program asked for, with a warning. The program takes the place of this
command: its exit code and its signals are its own.`,
		Example: "  graft run -- ./server --port 8080\n  graft run --verbose -- java -jar service.jar\n  graft run " +
			"--padding ignore -- node index.js",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return misuse("no argument", "a program to run")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := without(cmd, "a program", "none: the program loads its own ONNX Runtime", "onnxruntime"); err != nil {
				return err
			}
			options, err := c.graphOptions(cmd, &flags)
			if err != nil {
				return err
			}
			program, err := languages.Program(args[0])
			if err != nil {
				return err
			}
			binary, err := os.Executable()
			if err != nil {
				return err
			}
			library, err := languages.Library(binary)
			if err != nil {
				return err
			}
			s := languages.Settings{Library: library, Binary: binary, Options: options, Verbose: verbose}
			if cmd.Flags().Changed("deadline") {
				s.Deadline = deadline
			}
			environ, err := s.Environment(os.Environ())
			if err != nil {
				return err
			}
			return languages.Exec(program, args, environ)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the program is the program's
	f.StringSliceVar(&flags.plugins, "plugins", nil, "use only these plugins, by name")
	f.StringSliceVar(&flags.except, "except", nil, "never use these plugins")
	f.BoolVar(&flags.force, "force", false, "use every operator that applies, whatever it is expected to gain")
	f.BoolVar(&flags.noise, "accept-quantization-noise", false, acceptNoise)
	f.StringVar(&flags.padding, "padding", "exact", paddingHelp)
	between(f, &deadline, "deadline", time.Minute, time.Millisecond, 24*time.Hour,
		"how long making the graph of a model may take; after that, sessions are created without graft")
	f.BoolVarP(&verbose, "verbose", "v", false, "print a line for each session")
	return cmd
}

// graphOptions are the flags that were given, as graft graph takes them, one each.
func (c *cli) graphOptions(cmd *cobra.Command, flags *planFlags) ([]string, error) {
	var list []string
	for _, folder := range c.folders {
		path, err := filepath.Abs(folder)
		if err != nil {
			return nil, err
		}
		list = append(list, "--plugins-dir="+path)
	}
	// Sessions would say what is wrong with these only in the program.
	f := cmd.Flags()
	if f.Changed("plugins") || f.Changed("except") || f.Changed("padding") {
		set, err := c.load(true)
		if err != nil {
			return nil, err
		}
		if _, err := flags.options(c, set); err != nil {
			return nil, err
		}
	}
	for _, o := range [][2]string{
		{"plugins", strings.Join(flags.plugins, ",")},
		{"except", strings.Join(flags.except, ",")},
		{"padding", flags.padding},
		{"force", strconv.FormatBool(flags.force)},
		{"accept-quantization-noise", strconv.FormatBool(flags.noise)},
	} {
		if f.Changed(o[0]) {
			list = append(list, "--"+o[0]+"="+o[1])
		}
	}
	return list, nil
}
