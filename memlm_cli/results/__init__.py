"""Tables and sentences that a terminal shows of an artifact: a `View` for each kind."""
