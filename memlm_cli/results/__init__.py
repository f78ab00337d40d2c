"""What a terminal shows of an artifact that was made: a `View` for each kind, tables and sentences."""
