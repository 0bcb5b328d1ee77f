package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/search"
)

// SearchWith are the options of the model's own configuration with some set anew,
// a JSON object in the words of Hugging Face's generation configuration.
func (g *Generator) SearchWith(object []byte) (search.Options, error) {
	return with(g.Search(), object)
}

// SearchOf are the options of a folder's configuration with some set anew, as
// SearchWith takes them; nil sets none.
func SearchOf(folder string, config *modeldir.Config, object []byte) (search.Options, error) {
	generation, err := storage.ReadRegular(filepath.Join(folder, "generation_config.json"), limit.Config)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return search.Options{}, err
	}
	o, err := search.FromConfig(generation, config.JSON)
	if err != nil {
		return o, fmt.Errorf("%s: %w", folder, err)
	}
	return with(o, object)
}

func with(o search.Options, object []byte) (search.Options, error) {
	if object == nil {
		return o, nil
	}
	var set map[string]json.RawMessage
	if err := json.Unmarshal(object, &set); err != nil {
		return o, err
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if err := o.Set(name, set[name]); err != nil {
			return o, err
		}
	}
	return o, o.Validate()
}
