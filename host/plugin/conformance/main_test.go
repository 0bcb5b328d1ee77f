package conformance

import (
	"testing"

	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/internal/must"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

// mustOpen loads a variation of the fixture.
func mustOpen(t *testing.T, flags ...string) *plugin.Plugin {
	t.Helper()
	folder := plugintest.Write(t, t.TempDir(), plugintest.Manifest, plugintest.Build(t, flags...))
	p := must.Value(plugin.Open(folder, plugin.OpenOptions{AcceptUnverified: true}))(t)
	return p
}
