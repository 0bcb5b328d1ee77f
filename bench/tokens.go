package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/session/sessions"
)

// tokens compares 256 greedy tokens on 64 held-out prompts, with the trained
// model of the repository, unpatched against patched.
func tokens() figure {
	return figure{"tokens", "256 greedy tokens on 64 prompts, tiny-gpt2, unpatched against patched", "equal",
		func(ctx context.Context, b *bench) (*outcome, error) {
			const path = "models/tiny-gpt2/model.onnx"
			data, err := os.ReadFile("models/tiny-gpt2/prompts.json")
			if err != nil {
				return nil, err
			}
			var prompts [][]int64
			if err := json.Unmarshal(data, &prompts); err != nil {
				return nil, err
			}
			run := func(o session.Options) ([][]int64, error) {
				s, err := session.Open(b.library, path, o)
				if err != nil {
					return nil, err
				}
				defer s.Close()
				var all [][]int64
				for _, p := range prompts {
					out, err := continued(ctx, b.library, s, p, 256)
					if err != nil {
						return nil, err
					}
					all = append(all, out)
				}
				return all, nil
			}
			unpatched, err := run(session.Options{Unpatched: true})
			if err != nil {
				return nil, err
			}
			replaced := 0
			patcher := &sessions.Patcher{Plugins: b.set.Plugins}
			patched, err := run(session.Options{Patcher: func(r session.Request) (*session.Patch, error) {
				p, err := patcher.Plan(ctx, r)
				if err != nil {
					return nil, err
				}
				replaced = p.Analysis.Plan.Replaced()
				return p.Patch()
			}})
			if err != nil {
				return nil, err
			}
			same, total := 0, 0
			for i := range unpatched {
				for j := range unpatched[i] {
					total++
					if unpatched[i][j] == patched[i][j] {
						same++
					}
				}
			}
			return &outcome{Met: same == total && replaced > 0,
					Detail: map[string]any{"prompts": len(prompts), "tokens": total, "equal": same, "replaced": replaced},
					Got: fmt.Sprintf("%d of %d tokens equal on %d prompts, %d blocks replaced", same, total, len(prompts),
						replaced)},
				nil
		}}
}
