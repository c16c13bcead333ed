"""Systems that wake people: one adapter a file, each an `activities.ports.Pager`."""
