// Command tool is lowerdump with this compiler's passes.
package main

import (
	"os"

	"example.com/outside"
	"github.com/seed-ee968945/concert/cmd/lowerdump/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], outside.Table())) }
