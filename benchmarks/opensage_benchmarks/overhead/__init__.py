"""What the kit itself costs: CPU and memory of scripted tool turns, import and start. The model costs nothing here."""
