// Command gen rebuilds the images of package kernels.
//
//	go run ./gen               compile src/*.cu to PTX with clang-19, in the folder kernels
//	go run ./gen -ptxas PATH   assemble the checked-in PTX with that ptxas
//	go run ./gen -adopt DIR    take machine code that ptxas made elsewhere
//
// The second form runs where a CUDA toolkit is; it takes exactly the PTX that is
// checked in, so clang need not be there. The third is for machines with a toolkit but
// without Go: DIR holds, for each image, NAME.ptx, NAME.cubin and NAME.log by
// "ptxas -v -O3 -arch=sm_90 -o NAME.cubin NAME.ptx > NAME.log 2>&1" (sm_90a for
// matmul_*), and ptxas.txt by
// "ptxas --version".
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/seed-ee968945/concert/kernels/internal/images"
)

func main() {
	ptxas := flag.String("ptxas", "", "assemble with this ptxas instead of compiling")
	adopt := flag.String("adopt", "", "take the machine code in this folder instead of compiling")
	dir := flag.String("dir", ".", "folder of package kernels")
	clang := flag.String("clang", images.Clang, "compiler")
	flag.Parse()
	var err error
	switch {
	case *ptxas != "":
		err = images.Assemble(*dir, *ptxas)
	case *adopt != "":
		var names []string
		names, err = images.Adopt(*dir, *adopt)
		for _, name := range names {
			fmt.Println(name)
		}
	default:
		err = images.Compile(*dir, *clang)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}
