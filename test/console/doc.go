// Package console tests the pages of allocator/inventory/console in a browser: squares, links, forms, sizes of windows, dark mode, contrast, names for
// screen readers, and what the browser reports in its console.
//
// The pages of butler-ipam console are opened by two persons, on a real API server.
//
// The tests need Chromium: make console-packages installs it on Debian and Ubuntu. CHROMIUM names another program.
package console
