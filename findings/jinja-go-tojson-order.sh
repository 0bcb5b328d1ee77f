#!/usr/bin/env bash
# github.com/ardanlabs/jinja v1.8.0, a Jinja engine for chat templates: tojson writes a dict in the order of its keys, and
# sorts the same dict as soon as it is given an indent. It writes the float 2.0 as 2, with and without. Chat templates of
# models that take tools write their JSON both ways, and Python's json, which the models were trained with, never sorts
# and writes 2.0. So a prompt with tools depends on the engine.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >main.go <<'GO'
package main

import (
	"fmt"

	"github.com/ardanlabs/jinja"
)

func main() {
	tool := jinja.NewDict()
	for _, key := range []string{"type", "name", "default"} {
		tool.AsDict().Set(key, jinja.NewString(key[:1]))
	}
	tool.AsDict().Set("default", jinja.NewFloat(2))
	for _, source := range []string{"{{ tool | tojson }}", "{{ tool | tojson(indent=1) }}"} {
		t, err := jinja.Compile(source)
		if err != nil {
			panic(err)
		}
		text, err := t.RenderValues(map[string]jinja.Value{"tool": tool})
		if err != nil {
			panic(err)
		}
		fmt.Println(text)
	}
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/ardanlabs/jinja@v1.8.0 >/dev/null 2>&1
go run . | tee found
cat >expected <<'TEXT'
{"type": "t", "name": "n", "default": 2}
{
 "default": 2,
 "name": "n",
 "type": "t"
}
TEXT
diff expected found
