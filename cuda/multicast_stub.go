//go:build !linux

package cuda

// gift is empty where worlds have one process only: nothing is handed over.
type gift struct{}

var none gift

func exportMem(Driver, Ctx, Mem, Sharing) (gift, error) { return none, errProcesses }
func (gift) importMem(Driver, Ctx) (Mem, error)         { return 0, errProcesses }
func (gift) close()                                     {}
func (c *control) hand(gift) error                      { return errProcesses }
func (c *control) takeHanded() gift                     { return none }
