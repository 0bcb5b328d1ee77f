package session

import (
	"slices"
	"strings"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/given"
)

// Appended are the providers of a session, in order of preference. ONNX Runtime's C API takes
// providers and does not tell them, so they are those that
//
//   - this package appended for a session of its own,
//   - any binding appended through the C API while a hook was installed, or
//   - left their options in the session's config entries (those appended by name or by device).
//
// Providers that were appended before a hook was installed, and those of the exported functions
// beside the table (OrtSessionOptionsAppendExecutionProvider_CUDA), are not seen. automatic reports
// that ONNX Runtime was asked to choose providers itself.
func (r Request) Appended() (list []ort.Appended, automatic bool) {
	list, automatic = given.To(r.Library).Of(r.options)
	list = slices.Clone(list)
	for _, p := range r.own {
		list = ort.AppendProvider(list, p)
	}
	entries, err := r.ConfigEntries()
	if err != nil {
		return list, automatic
	}
	const prefix = "ep.cudaexecutionprovider."
	found := ort.Appended{Name: ort.CUDA, Device: ort.DeviceNumber(entries[prefix+"device_id"])}
	for key := range entries {
		if strings.HasPrefix(key, prefix) {
			list = ort.AppendProvider(list, found)
			break
		}
	}
	return list, automatic
}

// Foreign reports that a session has providers besides the CPU's, which are libraries of their own.
func (c Creation) Foreign() bool {
	list, automatic := c.Request().Appended()
	return automatic || len(list) > 0
}
