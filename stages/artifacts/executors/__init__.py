"""Where the shards of a stage are computed: in this process, or in several; a module each."""
