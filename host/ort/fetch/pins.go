package fetch

import "github.com/opgraft/graft/host/base/diagnostic"

// pinned lists where the library for a platform comes from, best first. npm's package holds the
// libraries of all platforms; pip's wheel the one of its own, built apart, hence other digests.
func pinned(goos, goarch string) ([]source, error) {
	type pin struct{ npmArch, npmLibrary, wheelPlatform, wheel, wheelLibrary string }
	pins := map[string]pin{
		"linux/amd64": {
			npmArch:       "x64",
			npmLibrary:    "ffb75a925ba05e47b235bb66e3e3911714a80b328a9c9425539feb204aa32a23",
			wheelPlatform: "manylinux_2_28_x86_64",
			wheel:         "fa688e7891a6aa206636fe7372e27ee75fd17713289f6b4fc7b190e0a7de9328",
			wheelLibrary:  "c902c70b3003c0e99fada202f37478c515ae9bba7944c2b2abd0017bae0c82ed",
		},
		"linux/arm64": {
			npmArch:       "arm64",
			npmLibrary:    "1f549d46250b005580b597f4164984aaf75b3bcb9f3aeb07c7f8a8fe60b23c76",
			wheelPlatform: "manylinux_2_28_aarch64",
			wheel:         "6c32a000d5139a38ba9349030b0032e3331acb559d596b22738d9d2b343a2b83",
			wheelLibrary:  "8a218e1e446880131115c368ec7005969a5022af9a15a26173de648fef0b7789",
		},
	}
	p, ok := pins[goos+"/"+goarch]
	if !ok {
		return nil, &diagnostic.Error{Found: "no ONNX Runtime is pinned for " + goos + "/" + goarch,
			Needed: "linux/amd64 or linux/arm64",
			Fix:    "set GRAFT_ONNXRUNTIME to a libonnxruntime of your own"}
	}
	return []source{
		{
			client:      npm,
			requirement: "onnxruntime-node@" + Version,
			digest: digest{"sha512", "b7086cd42d82fc1164cf5c9ce4e634288536194aba0d444eee10f86f1e50d90c" +
				"b79c0309c115d6f31537355733136f5503d96894b3987a9a03f1f8d318e7c8ab"},
			member:  "package/bin/napi-v6/linux/" + p.npmArch + "/libonnxruntime.so.1",
			library: digest{"sha256", p.npmLibrary},
			extract: extractTarGz,
		},
		{
			client:      pip,
			requirement: "onnxruntime==" + Version,
			platform:    p.wheelPlatform,
			digest:      digest{"sha256", p.wheel},
			member:      "onnxruntime/capi/libonnxruntime.so." + Version,
			library:     digest{"sha256", p.wheelLibrary},
			extract:     extractZip,
		},
	}, nil
}
