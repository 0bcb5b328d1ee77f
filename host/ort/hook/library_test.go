package hook

import "github.com/opgraft/graft/host/ort/internal/orttest"

// library is the runtime that all tests run on.
var library = orttest.Library()
