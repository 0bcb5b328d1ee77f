package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/distribute/author"
	"github.com/opgraft/graft/host/distribute/store"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
)

func (c *cli) pluginSDK() *cobra.Command {
	return &cobra.Command{
		Use:   "sdk DIR",
		Short: "Write out what plugins are built with: headers, kits for C++, C and Rust, the CMake module",
		Long: `Writes the C ABI's headers, the kits and the CMake module into a folder. graft plugin build
does so by itself; other build systems include DIR and DIR/kit.`,
		Example: "  graft plugin sdk ./sdk",
		Args:    exactly(1, "a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := author.SDK(args[0])
			if err != nil {
				return err
			}
			return c.print(struct {
				Folder string   `json:"folder"`
				Files  []string `json:"files"`
			}{args[0], files}, func(w *page) {
				w.printf("%s in %s\n", counted(len(files), "file"), args[0])
				w.printf("g++ -I %s -I %s ...\n", args[0], filepath.Join(args[0], "kit"))
			})
		},
	}
}

func (c *cli) pluginNew() *cobra.Command {
	var (
		p  author.Project
		to string
	)
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Begin a plugin: a folder that builds, passes its cases and makes its example model faster",
		Long: `Writes a folder with plugin.yaml, the source of an operator, and a model that it makes
faster. --kind says what the operator is for:

  pattern    stands for some ONNX nodes
  attention  stands for attention, however a model writes it
  cache      attends over the KV cache of graft generate
  fold       no operator: constants computed from constants, and fewer ONNX nodes`,
		Example: `  graft plugin new my-mish --kind pattern
  graft plugin new my-attention --kind attention --lang rust`,
		Args: exactly(1, "the plugin's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Name = args[0]
			folder := to
			if folder == "" {
				folder = p.Name
			}
			files, err := author.New(folder, p)
			if errors.Is(err, author.ErrProject) {
				return misused("", err)
			}
			if err != nil {
				return err
			}
			return c.print(struct {
				Folder string   `json:"folder"`
				Files  []string `json:"files"`
			}{folder, files}, func(w *page) {
				w.printf("%s: %s\n", folder, strings.Join(files, ", "))
				w.printf("next: graft plugin build %s\n", diagnostic.Quote(folder))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.Kind, "kind", "pattern", strings.Join(author.Kinds, ", "))
	f.StringVar(&p.Language, "lang", "c++", strings.Join(author.Languages, ", "))
	f.BoolVar(&p.CUDA, "cuda", false, "with a variant for CUDA, of --kind pattern in c++; building it needs nvcc")
	f.StringVar(&to, "to", "", "folder to make (default: the name)")
	return cmd
}

// built is what graft plugin build prints.
type built struct {
	*author.Built
	Checked []verification.Checked `json:"checked"`
	Skipped []verification.Skipped `json:"skipped"`
}

func (c *cli) pluginBuild() *cobra.Command {
	var deadline time.Duration
	cmd := &cobra.Command{
		Use:   "build DIR",
		Short: "Compile a plugin's sources, and verify what came out",
		Long: `Compiles the C++, C or Rust sources beside a plugin.yaml into DIR/build/NAME, with the
options against errors that graft's own plugins have, writes the ELF note, and runs the
library for the first time in a child process, with all cases. It needs a compiler (CXX,
CC, CARGO and NVCC name others than those in the PATH) and no build system.`,
		Example: "  graft plugin build my-mish\n  CXX=clang++ graft plugin build my-mish -o json",
		Args:    exactly(1, "the folder of a plugin's sources"),
		RunE: func(cmd *cobra.Command, args []string) error {
			done, err := c.buildPlugin(cmd.Context(), args[0], deadline)
			if err != nil {
				return err
			}
			return c.print(done, func(w *page) { builtText(w, done) })
		},
	}
	deadlineFlag(cmd, &deadline)
	return cmd
}

func deadlineFlag(cmd *cobra.Command, to *time.Duration) {
	between(cmd.Flags(), to, "deadline", 30*time.Second, time.Millisecond, 24*time.Hour,
		"time that each step of a run may take")
}

// buildPlugin compiles a plugin and verifies it.
func (c *cli) buildPlugin(ctx context.Context, folder string, deadline time.Duration) (*built, error) {
	done, err := author.Build(ctx, folder,
		author.Options{Output: &printed{to: c.talk}, Step: func(what string) { c.say("%s", what) }})
	if err != nil {
		return nil, err
	}
	s, err := store.User()
	if err != nil {
		return nil, err
	}
	checks := c.checks(deadline)
	checks.Own = true
	list, err := s.Verify(ctx, []string{done.Folder}, checks)
	if refused := (*diagnostic.Error)(nil); errors.As(err, &refused) &&
		refused.Path == filepath.Join(done.Folder, manifest.FileName) {
		refused.Path = filepath.Join(folder, manifest.FileName) // its author's: the other is a copy
	}
	if err != nil {
		return nil, err
	}
	return &built{done, list[0].Checked, list[0].Skipped}, nil
}

func builtText(w *page, b *built) {
	w.printf("built %s\n", b.Folder)
	for _, k := range b.Checked {
		w.printf("%s runs here with score %d, %s passed\n", k.Device, k.Score, counted(len(k.Cases), "case"))
	}
	for _, left := range b.Left {
		w.printf("not built: %s\n", left)
	}
	checkedText(w, b.Checked)
	for _, s := range b.Skipped {
		if s.Reason != "absent" { // that was said above
			skippedText(w, []verification.Skipped{s})
		}
	}
}

func (c *cli) pluginTest() *cobra.Command {
	var deadline time.Duration
	cmd := &cobra.Command{
		Use:   "test DIR",
		Short: "Hold a built plugin to every rule of the ABI, on all of its cases",
		Long: `Runs each case of a plugin's library for the CPU in a child process, as graft plugin verify
does, and then again in ways that a host may choose: with tensors that no more than their
elements align, with strided inputs where the operator takes them, several times at once on
one kernel, and with sizes that are not known yet. DIR is the folder of the sources, once
built, or of a plugin. Exit code 3 when a rule is broken.`,
		Example: "  graft plugin test my-mish\n  graft plugin test ./build/plugins/fused-gelu -o json",
		Args:    exactly(1, "the folder of a plugin"),
		RunE: func(cmd *cobra.Command, args []string) error {
			folder, err := builtFolder(args[0])
			if err != nil {
				return err
			}
			checks := c.checks(deadline)
			checks.Own = true
			results, err := verification.Rules(cmd.Context(), folder, checks)
			if err != nil {
				return err
			}
			broken := 0
			for _, r := range results {
				if r.Problem != "" {
					broken++
				}
			}
			if err := c.print(struct {
				Folder string              `json:"folder"`
				Checks []verification.Rule `json:"checks"`
				Broken int                 `json:"broken"`
			}{folder, results, broken}, func(w *page) { rulesText(w, results) }); err != nil {
				return err
			}
			if broken > 0 {
				return &diagnostic.Error{Kind: refusal.ErrVerification, Path: folder,
					Found: fmt.Sprintf("found %s of %d that the plugin breaks", counted(broken, "rule"), len(results)),
					Fix:   "correct the operators that the list names"}
			}
			return nil
		},
	}
	deadlineFlag(cmd, &deadline)
	return cmd
}

// rulesText lists each case with the rules that it went through, and what was wrong.
func rulesText(w *page, results []verification.Rule) {
	for i := 0; i < len(results); {
		var passed []string
		var broken []verification.Rule
		name := results[i].Case
		for ; i < len(results) && results[i].Case == name; i++ {
			if results[i].Problem != "" {
				broken = append(broken, results[i])
			} else {
				passed = append(passed, results[i].Check)
			}
		}
		w.printf("%s: %s\n", name, strings.Join(passed, ", "))
		for _, r := range broken {
			w.printf("  BROKEN %s: %s\n", r.Check, r.Problem)
		}
	}
}

// builtFolder is where a plugin's library lies: in the folder, or in what graft plugin build made of its sources.
func builtFolder(folder string) (string, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", &diagnostic.Error{Kind: refusal.ErrNotFound, Path: folder, Found: err.Error(), Cause: err}
	}
	m, err := manifest.Read(folder)
	if err != nil {
		return "", err
	}
	if len(m.Present(folder, manifest.ThisPlatform)) > 0 {
		return folder, nil
	}
	built := filepath.Join(author.Plugins(folder), m.Name)
	if !manifest.Exists(built) {
		return "", &diagnostic.Error{Kind: refusal.ErrNotFound, Path: folder, Found: "found no library of the plugin",
			Needed: "one that is built", Fix: "run: graft plugin build " + diagnostic.Quote(folder)}
	}
	return built, nil
}
