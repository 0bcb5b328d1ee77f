package library

import (
	"testing"

	"github.com/opgraft/graft/host/plugin/plugintest"
)

func TestMain(m *testing.M) { plugintest.Main(m) }
