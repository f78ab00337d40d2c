"""What a command takes, before it runs: disk, memory and amount of work, from manifests alone; a file a command."""
