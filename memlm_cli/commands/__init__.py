"""One file a command: options -> the stage's settings -> run -> print the reference."""
