package driver

import "errors"

// Preload makes the driver, and the libraries that commands call, load the code that
// commands need, without running any of it: they are collected on s, on which nothing
// else may be under way, into a graph that is instantiated and thrown away.
//
// What is not loaded before is loaded at the first launch. That takes locks of the whole
// process and may wait for the device: if a kernel there waits for a peer whose thread
// wants those locks, neither goes on.
func Preload(drv Driver, ctx Ctx, s Stream, c *Commands) error {
	if c.Len() == 0 {
		return nil
	}
	if err := drv.CaptureBegin(ctx, s); err != nil {
		return err
	}
	err := drv.Run(ctx, c.On(s))
	g, end := drv.CaptureEnd(ctx, s)
	if end != nil {
		return errors.Join(err, end)
	}
	if err == nil {
		var x Exec
		if x, err = drv.GraphInstantiate(ctx, g); err == nil {
			err = drv.ExecDestroy(ctx, x)
		}
	}
	return errors.Join(err, drv.GraphDestroy(ctx, g))
}
