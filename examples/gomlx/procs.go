package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/seed-ee968945/concert/runtime/launch"
)

// launchAll starts a process for each device, and again with half of them when one dies.
func launchAll() {
	for *data**tp > 1 {
		args := append([]string{}, os.Args[1:]...)
		args = append(args, "-quiet", "-data", strconv.Itoa(*data), "-model", strconv.Itoa(*tp))
		err := launch.Run(context.Background(), launch.Spec{World: *data * *tp, Args: args, Stdout: os.Stdout, Stderr: os.Stderr, Started: func(rank int, p *os.Process) {
			fmt.Printf("rank %d is process %d\n", rank, p.Pid)
		}, Ended: func(rank int, err error) {
			if err != nil {
				log.Printf("%s: rank %d ended: %v", time.Now().Format("15:04:05.000"), rank, err)
			}
		}})
		if err == nil {
			return
		}
		if *tp > 1 {
			*tp /= 2
		} else {
			*data /= 2
		}
		log.Printf("%d devices go on from the checkpoint", *data**tp)
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
