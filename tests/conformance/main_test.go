package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/hook"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/sessions"
)

var (
	library *ort.Library
	plugins *loaded.Set
)

// configForce is a session config entry of these tests alone: such sessions are
// patched with every operator that fits, the others with what is expected to
// gain.
const configForce = "conformance.force"

// analyses are those of the models that sessions under Force were made from, by
// path.
var analyses sync.Map

func TestMain(m *testing.M) {
	err := setUp()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func setUp() error {
	var err error
	// The newest runtime of the peers, which knows most of the operators of the cases; the pinned one is everywhere else.
	newest := filepath.Join("..", "..", "build", "peers", "new", "lib", "python*", "site-packages", "onnxruntime", "capi",
		"libonnxruntime.so.1.*")
	found, err := filepath.Glob(newest)
	if err != nil || len(found) != 1 {
		return fmt.Errorf("%s: found %d libraries, needed 1: run `make peers`", newest, len(found))
	}
	if library, err = ort.Open(found[0]); err != nil {
		return err
	}
	if plugins, err = loaded.Load(nil, true); err != nil {
		return err
	}
	auto := &sessions.Patcher{Plugins: plugins.Plugins, Options: plugins.Plan(plan.Options{})}
	force := &sessions.Patcher{Plugins: plugins.Plugins, Options: plugins.Plan(plan.Options{Force: true})}
	patcher := func(r session.Request) (*session.Patch, error) {
		if _, ok := r.Config(configForce); ok {
			p, err := force.Plan(context.Background(), r)
			if err != nil {
				return nil, err
			}
			analyses.Store(p.Analysis.Model.Path(), p.Analysis)
			return p.Patch()
		}
		return auto.Patch(r)
	}
	return hook.Install(library, hook.Hook{Patcher: patcher, Strict: true})
}
