package generations

import (
	"fmt"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate/modeldir"
)

// folderPart begins what a side's name says of a folder, at its end.
const folderPart = "+folder="

// folderOf is the model folder that a side's name says, "" for that of the comparison, and what is left of the name.
func folderOf(name string) (base, folder string) {
	if folder, only := strings.CutPrefix(name, folderPart[1:]); only {
		return "auto", folder
	}
	base, folder, _ = strings.Cut(name, folderPart)
	return base, folder
}

// takes is an error of a folder that has another vocabulary than the comparison's: the same tokens mean something
// else there.
func takes(folder string, config *modeldir.Config) error {
	other, err := modeldir.ReadConfig(folder)
	if err != nil {
		return err
	}
	if other.Vocab != config.Vocab || other.ModelType != config.ModelType {
		return &diagnostic.Error{Path: folder,
			Found: fmt.Sprintf("a model of type %q with %d tokens", other.ModelType, other.Vocab),
			Needed: fmt.Sprintf("type %q and %d tokens, as the model has that it is compared with", config.ModelType,
				config.Vocab), Fix: "compare a folder that was made of the same model"}
	}
	return nil
}
