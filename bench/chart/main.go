// Command chart draws the speed-ups that a folder of bench results holds:
//
//	go run ./bench/chart bench/results/DATE      writes bench/results/DATE/chart.svg
//
// The same results give the same bytes.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/host/base/storage"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: chart bench/results/DATE")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// write draws what a folder holds, beside it.
func write(folder string) error {
	c, err := read(folder)
	if err != nil {
		return err
	}
	return storage.Write(filepath.Join(folder, "chart.svg"), c.svg(), storage.Shared)
}
