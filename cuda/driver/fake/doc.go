// Package fake is a driver whose devices are memory of the host. It is for tests, and for
// commands that are asked for it: nothing else imports it.
package fake
