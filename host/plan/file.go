package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// fileVersion is the version of plan files.
const fileVersion = 1

// maxFileBytes bounds a plan file; a choice takes some 100 bytes.
const maxFileBytes = 64 << 20

// file is a plan on disk: which operator stands where. Blocks that it does not
// name are left unchanged.
type file struct {
	SchemaVersion int          `json:"schema_version"`
	Choices       []fileChoice `json:"choices"`
}

type fileChoice struct {
	Node     string `json:"node"`
	Operator string `json:"operator"`
}

// WriteFile writes the choices of a plan, whole or not at all.
func WriteFile(path string, p *Plan) error {
	f := file{SchemaVersion: fileVersion, Choices: []fileChoice{}}
	for _, c := range p.Choices {
		if c.Operator != nil {
			f.Choices = append(f.Choices, fileChoice{c.Node, c.Operator.Name})
		}
	}
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := storage.Write(path, append(data, '\n'), storage.Shared); err != nil {
		return fmt.Errorf("cannot write the plan file %s: %w", path, err)
	}
	return nil
}

// ReadFile reads a plan file for Options.Fixed: node to operator. An operator that no manifest has is an
// error, which names one that is a slip away.
func ReadFile(path string, manifests []*manifest.Manifest) (map[string]string, error) {
	var known []string
	for _, m := range manifests {
		for i := range m.Operators {
			known = append(known, m.Operators[i].Name)
		}
	}
	data, err := storage.ReadRegular(path, maxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("cannot read the plan file: %w", err)
	}
	var f file
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("%s is no plan file: %w; graft inspect --write-plan makes one", path, err)
	}
	if f.SchemaVersion != fileVersion {
		return nil, fmt.Errorf("%s has schema_version %d, need %d; graft inspect --write-plan makes one", path,
			f.SchemaVersion, fileVersion)
	}
	fixed := map[string]string{}
	for _, c := range f.Choices {
		if c.Node == "" || c.Operator == "" {
			return nil, fmt.Errorf("%s has a choice without node or operator", path)
		}
		if !slices.Contains(known, c.Operator) {
			hint := ""
			if like := diagnostic.Nearest(c.Operator, known); like != "" {
				hint = ", did you mean " + like + "?"
			}
			return nil, fmt.Errorf("%s names the operator %q for %s, and no plugin that is loaded has it%s; see graft plugin "+
				"list", path, c.Operator, c.Node, hint)
		}
		fixed[c.Node] = c.Operator
	}
	return fixed, nil
}
