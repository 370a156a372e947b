"""Programs and units of the simulated driver's packages; `@VERSION@` is filled in when they are packed."""
