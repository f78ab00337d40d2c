"""Methods that learn a stream of tasks, one file each; their settings are in `config`."""
