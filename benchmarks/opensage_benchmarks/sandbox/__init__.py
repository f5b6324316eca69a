"""What a sandbox costs beside the engine's own SDK, and what is left after owners that were killed."""
