// Command lowerdump shows what concert does to a program and why: it imports programs, runs
// passes, lowers, simulates, and executes the result.
//
// Run lowerdump help for the subcommands, lowerdump help COMMAND for one.
package main

import (
	"os"

	"github.com/seed-ee968945/concert/cmd/lowerdump/cli"
	"github.com/seed-ee968945/concert/passes/standard"
)

func main() { os.Exit(cli.Main(os.Args[1:], standard.Table())) }
