// Package console tests the pages of cmd/kubectl-ipam/console in a browser: squares,
// links, forms, sizes of windows, dark mode, contrast, names for screen readers, and the
// messages in the developer console.
//
// The tests of butler-ipam console use a real API server and two persons.
//
// The tests need Chromium: make console-packages installs Chromium on Debian and Ubuntu.
// The environment variable CHROMIUM is the path of another browser.
package console
