"""A day in one session: thousands of turns with failures of every kind mixed in, real sandbox and files included."""
