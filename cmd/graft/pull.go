package main

import (
	"path"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/distribute/hub"
)

func (c *cli) pullModel() *cobra.Command {
	var (
		q hub.Request
		o hub.Options
	)
	cmd := &cobra.Command{
		Use:   "pull ORG/NAME[@REVISION]",
		Short: "Bring an exported model from a Hugging Face repository, and print its folder",
		Long: `Brings what graft opens of a repository: the graphs of one variant, float32 unless
--variant names another, with their weights, configuration and tokenizer. Other
variants and weights for other programs are left. The files go into the cache of
Hugging Face's own library, which both then use, and what is there is not brought
again; an interrupted pull goes on where it was. Every file's hash is checked.

HF_ENDPOINT, HF_TOKEN or the file that hf auth login writes, HF_HOME, HF_HUB_CACHE and
HF_HUB_OFFLINE mean what they mean to that library.`,
		Example: `  graft pull onnx-community/Qwen2.5-0.5B-Instruct
  graft generate "$(graft pull ORG/NAME --variant q4)" --input prompts.txt
  graft pull sentence-transformers/all-MiniLM-L6-v2@main --to models/minilm
  graft pull ORG/NAME --dry-run`,
		Args: exactly(1, "one repository, ORG/NAME or ORG/NAME@REVISION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			reference, err := hub.Parse(args[0])
			if err != nil {
				return misused("", err)
			}
			q.Reference = reference
			if len(q.Files) > 0 && q.Variant != "" {
				return misuse("--file with --variant", "one of them")
			}
			settings, err := hub.Environment()
			if err != nil {
				return err
			}
			bar := c.progress("looking at " + reference.Repository)
			o.Say = func(text string) { c.say("%s", text) }
			o.Progress = func(done, total int64) {
				bar.say("bringing " + reference.Repository)
				bar.set(done, total)
			}
			c.resumable = "; the same command goes on from there"
			done, err := hub.New(settings, o).Pull(cmd.Context(), q)
			bar.end()
			if err != nil {
				return err
			}
			return c.pulled(done, &q)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&q.Files, "file", nil,
		"bring the files of this pattern, as *.json or onnx/*, in place of a model's; may be repeated")
	f.StringVar(&q.Variant, "variant", "", "which of several models: fp16, q4, quantized, or the folder of one")
	f.StringVar(&q.To, "to", "", "folder for the files, in place of the cache")
	f.BoolVar(&q.DryRun, "dry-run", false, "list the files, and bring none")
	between(f, &o.Stall, "stall", 30*time.Second, time.Millisecond, time.Hour,
		"time in which a server must send something")
	return cmd
}

// pulled prints the folder, or what would be brought.
func (c *cli) pulled(done *hub.Pulled, q *hub.Request) error {
	if !q.DryRun {
		c.say("%s at %s%s: %s, %s, of which %s came now", done.Repository, done.Commit[:12], variantOf(done),
			counted(len(done.Files), "file"), hub.Size(done.Bytes), hub.Size(done.Missing))
	}
	return c.print(done, func(w *page) {
		if !q.DryRun {
			w.println(done.Folder)
			return
		}
		table := [][]string{{"file", "size", "is"}}
		for _, f := range done.Files {
			is := "to be brought"
			if f.Cached {
				is = "there"
			}
			if f.As != f.Path && path.Base(f.As) != path.Base(f.Path) {
				is += ", as " + f.As
			}
			table = append(table, []string{f.Path, hub.Size(f.Bytes), is})
		}
		w.table(table)
		w.printf("%s at %s%s: %s of %s to be brought\n", done.Repository, done.Commit[:12], variantOf(done),
			hub.Size(done.Missing), hub.Size(done.Bytes))
	})
}

func variantOf(done *hub.Pulled) string {
	if done.Variant == "" {
		return ""
	}
	return ", " + done.Variant
}
