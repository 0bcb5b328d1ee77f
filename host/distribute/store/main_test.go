package store

import (
	"testing"

	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/verification"
)

func TestMain(m *testing.M) {
	plugintest.Main(m, func() { worker.Main(verification.Tasks()) }) // this executable is its own child
}
