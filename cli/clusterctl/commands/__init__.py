"""The operator's commands: one thin module each: parse, call, print."""
