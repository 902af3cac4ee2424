// Package fake implements the driver interface on host memory. It is for tests, and for
// commands that are explicitly asked for it; nothing else imports it.
package fake
