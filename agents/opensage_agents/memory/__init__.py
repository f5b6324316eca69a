"""The agent that answers questions about the past and tends the memory."""
