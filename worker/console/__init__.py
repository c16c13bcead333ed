"""The console: pages for people, rendered here, with the same rights as the API's. Live where a script may run."""
