package plugintest

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Kit makes a folder of a plugin from a manifest and a C++ source over the kit, and gives the folder that it lies in.
// The library is as the manifest names it: lib and the plugin's name.
func Kit(t testing.TB, name, source string) string {
	t.Helper()
	top := root(t)
	// which has ONNX Runtime's header
	find := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go")
	find.Dir = top
	header, err := find.Output()
	if err != nil {
		t.Fatalf("%v: %v", find, err)
	}
	above := t.TempDir()
	folder := Write(t, filepath.Join(above, name), string(ReadFile(t, filepath.Join(filepath.Dir(source), "plugin.yaml"))),
		"")
	cmd := exec.Command("c++", "-shared", "-fPIC", "-std=c++17", "-O1", "-fvisibility=hidden", "-static-libstdc++",
		"-static-libgcc",
		"-I"+filepath.Join(top, "abi"), "-I"+filepath.Join(top, "abi/kit"), "-isystem", strings.TrimSpace(string(header)),
		`-DGRAFT_PLUGIN_NAME="`+name+`"`, `-DGRAFT_PLUGIN_VERSION="0.1.0"`, `-DGRAFT_PLUGIN_SUMMARY="a test's"`,
		`-DGRAFT_PLUGIN_DEVICE="cpu"`, `-DGRAFT_PLUGIN_ISA="baseline"`,
		"-Wl,--version-script="+filepath.Join(top, "abi/cmake/graft.map"), "-Wl,-z,nodelete", "-o",
		filepath.Join(folder, "lib"+strings.ReplaceAll(name, "-", "_")+".so"), source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, bytes.TrimSpace(out))
	}
	return above
}
