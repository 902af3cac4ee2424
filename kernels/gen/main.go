// Command gen rebuilds the images of package kernels.
//
//	go run ./gen               compile src/*.cu to PTX with clang-19, in the folder kernels
//	go run ./gen -ptxas PATH   assemble the checked-in PTX of sm_90 with that ptxas
//
// The second form runs where a CUDA toolkit is; it takes exactly the PTX that is
// checked in, so clang need not be there.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/seed-ee968945/concert/kernels/internal/images"
)

func main() {
	ptxas := flag.String("ptxas", "", "assemble with this ptxas instead of compiling")
	dir := flag.String("dir", ".", "folder of package kernels")
	clang := flag.String("clang", images.Clang, "compiler")
	flag.Parse()
	var err error
	if *ptxas != "" {
		err = images.Assemble(*dir, *ptxas)
	} else {
		err = images.Compile(*dir, *clang)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}
