package sessions

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/session/isolation"
	"github.com/opgraft/graft/host/session/patch"
)

// keptFor is how long what was planned is there for another session of the same file: programs look at a model's inputs
// in a session of its own, and make several at once.
var keptFor = 10 * time.Second

// keptPlan is what was planned for a session: a rewritten graph, and the open model in whose files its weights lie.
type keptPlan struct {
	analysis *patch.Analysis
	files    *model.Files

	users int // sessions that are being made of it, and one for the list
}

// recent are the plans of the last sessions.
var recent struct {
	sync.Mutex
	plans map[string]*keptPlan
}

// endUse closes the model with the last use. The lock is held.
func (p *keptPlan) endUse() {
	if p.users--; p.users == 0 {
		p.analysis.Model.Close()
	}
}

// forget takes a plan off the list, if it is there. The lock is held.
func forget(key string, p *keptPlan) {
	if p != nil && recent.plans[key] == p {
		delete(recent.plans, key)
		p.endUse()
	}
}

// Forget takes all plans off the list, when no more sessions are patched.
func Forget() {
	recent.Lock()
	defer recent.Unlock()
	for key, p := range recent.plans {
		forget(key, p)
	}
}

// planKeptFor is what was planned for a session like this one whose files are as they were, nil for nothing. done ends
// its use.
func planKeptFor(key string) (a *patch.Analysis, done func()) {
	if key == "" {
		return nil, nil
	}
	recent.Lock()
	defer recent.Unlock()
	p := recent.plans[key]
	if p == nil {
		return nil, nil
	}
	if p.files.Unchanged() != nil {
		forget(key, p)
		return nil, nil
	}
	p.users++
	return p.analysis, sync.OnceFunc(func() {
		recent.Lock()
		defer recent.Unlock()
		p.endUse()
	})
}

// keepPlan has a plan there for a while, if its model comes from a file. Its model is closed when the last use ends;
// the caller's is one.
func keepPlan(key string, a *patch.Analysis) (done func()) {
	files, err := a.Model.Files()
	if key == "" || err != nil {
		return func() { a.Model.Close() }
	}
	p := &keptPlan{analysis: a, files: files, users: 2}
	recent.Lock()
	defer recent.Unlock()
	forget(key, recent.plans[key])
	if recent.plans == nil {
		recent.plans = map[string]*keptPlan{}
	}
	recent.plans[key] = p
	time.AfterFunc(keptFor, func() {
		recent.Lock()
		defer recent.Unlock()
		forget(key, p)
	})
	return sync.OnceFunc(func() {
		recent.Lock()
		defer recent.Unlock()
		p.endUse()
	})
}

// key says on what a session's plan depends besides the content of its files; "" where it is not to be used again.
func (s *Patcher) key(r session.Request, without plan.LeftOut) string {
	if r.Path == "" {
		return "" // bytes of the program's, which may be gone
	}
	if _, asked := r.Config(ConfigIsolate); asked ||
		slices.ContainsFunc(s.Plugins, func(p *plugin.Plugin) bool { return isolation.For(p) != nil }) {
		return "" // workers may have gone since
	}
	path, err := filepath.Abs(r.Path)
	if err != nil {
		return ""
	}
	config, err := r.ConfigEntries()
	if err != nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%p %p %q\n", s, r.Library, path)
	for _, name := range slices.Sorted(maps.Keys(config)) {
		fmt.Fprintf(&b, "%q %q\n", name, config[name])
	}
	for _, k := range without.Sorted() {
		fmt.Fprintf(&b, "%q %q %q\n", k.Node, k.Kind, without[k])
	}
	return b.String()
}
